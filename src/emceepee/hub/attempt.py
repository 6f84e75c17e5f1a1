"""One try to connect to a server."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio

from emceepee.client import ServerConnection

__all__ = ["Attempt"]


@dataclass(slots=True)
class Attempt:
    """One try to connect, for everybody who waits for it, and the connection that came of it."""

    done: anyio.Event = field(default_factory=anyio.Event)
    server: ServerConnection | None = None
    error: str | None = None
    over: anyio.Event = field(default_factory=anyio.Event)
    """Set when the next attempt, if there is one, has taken this one's place."""
    is_retired: bool = False
    """Its connection is to be used no more: another one is wanted."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    is_under_way: bool = False

    @property
    def usable(self) -> ServerConnection | None:
        return None if self.server is None or self.is_retired or self.server.is_over else self.server
