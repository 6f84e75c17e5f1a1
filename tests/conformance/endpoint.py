"""Where the hub shows one server as if the client were connected to it."""

__all__ = ["through"]


def through(hub: str, server: str) -> str:
    """The URL of a server at a hub whose own is `hub`."""
    return f"{hub}/server/{server}"
