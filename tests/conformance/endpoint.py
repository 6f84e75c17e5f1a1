"""Where the hub shows one server as if the client were connected to it."""

import pytest

__all__ = ["not_yet", "through"]

not_yet = pytest.mark.xfail(strict=True, reason="the hub has no /mcp/server/{name} yet")
"""For what goes through the hub. Strict, so that it has to be taken off when the endpoint is there."""


def through(hub: str, server: str) -> str:
    """The URL of a server at a hub whose own is `hub`."""
    return f"{hub}/server/{server}"
