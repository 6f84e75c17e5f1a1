"""Which addresses only this machine can reach."""

from __future__ import annotations

from ipaddress import ip_address

__all__ = ["is_loopback"]


def is_loopback(host: str) -> bool:
    """Whether nobody from outside can connect to `host`; of names that is known of `localhost` alone."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
