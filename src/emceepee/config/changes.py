"""What became of the servers from one reading of the file to the next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from emceepee.config.servers import ServerConfig

__all__ = ["Changes", "changes"]


@dataclass(frozen=True, slots=True)
class Changes:
    """Servers that are the same before and after are in none of these."""

    added: tuple[ServerConfig, ...] = ()
    updated: tuple[tuple[ServerConfig, ServerConfig], ...] = ()
    """As they were, and as they are now."""
    removed: tuple[ServerConfig, ...] = ()


def changes(before: Iterable[ServerConfig], after: Iterable[ServerConfig]) -> Changes:
    old = {server.name: server for server in before}
    new = {server.name: server for server in after}
    return Changes(
        added=tuple(server for name, server in new.items() if name not in old),
        updated=tuple((old[name], server) for name, server in new.items() if name in old and server != old[name]),
        removed=tuple(server for name, server in old.items() if name not in new),
    )
