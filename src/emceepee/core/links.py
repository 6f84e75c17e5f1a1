"""The life of a link: when it connects, what a loss means, when it tries again and when it gives up.

Pure: the shell around it (`emceepee.hub.link`) connects and sleeps as it is told here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from emceepee.core.backoff import Backoff
from emceepee.errors import ImpossibleTransition

__all__ = ["TRANSITIONS", "LinkIdentity", "LinkLife", "LinkStatus", "ReconnectKind", "Retry"]

LinkStatus: TypeAlias = Literal["not_connected", "connecting", "connected", "reconnecting", "error", "disconnected"]
ReconnectKind: TypeAlias = Literal["restart", "network_blip"]

TRANSITIONS: Mapping[LinkStatus, frozenset[LinkStatus]] = {
    "not_connected": frozenset({"connecting", "disconnected"}),
    "connecting": frozenset({"connected", "reconnecting", "error", "disconnected"}),
    "connected": frozenset({"reconnecting", "error", "disconnected"}),
    "reconnecting": frozenset({"connecting", "error", "disconnected"}),
    "error": frozenset({"connecting", "disconnected"}),
    "disconnected": frozenset(),
}
"""`reconnecting` waits for the next try; `disconnected` is on purpose, and for good."""

STABLE_SECONDS = 30.0
"""A connection that lasted this long was a good one: the count of failures begins anew."""


@dataclass(frozen=True, slots=True)
class LinkIdentity:
    """By what we recognise a server: what of this changed over a reconnect says that it was restarted."""

    session_id: str | None = None
    version: tuple[str, str] = ("", "")
    process_id: int | None = None

    def since(self, before: LinkIdentity) -> ReconnectKind:
        return "network_blip" if self == before else "restart"


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again in `delay` seconds; it will be try number `attempt`."""

    attempt: int
    delay: float


class LinkLife:
    """`budget` is how many restarts in a row a program gets; None is for ever, as for servers behind a URL."""

    def __init__(self, backoff: Backoff, budget: int | None = None) -> None:
        self.status: LinkStatus = "not_connected"
        self.last_error: str | None = None
        self.connected_at: float | None = None
        self.identity: LinkIdentity | None = None
        """Of the last connection; kept after its loss, to compare the next one with."""
        self.times_connected = 0
        self._backoff = backoff
        self._budget = budget
        self._failures = 0

    @property
    def has_given_up(self) -> bool:
        """No more tries until somebody asks for a new connection by name."""
        return self._budget is not None and self._failures > self._budget

    def forgive(self) -> None:
        """Somebody asked for a new connection by name: all tries are open again."""
        self._failures = 0

    def connecting(self) -> None:
        self._move("connecting")

    def connected(self, identity: LinkIdentity, now: float) -> ReconnectKind | None:
        """Connected; says what happened to the server if it was connected before."""
        self._move("connected")
        kind = None if self.identity is None else identity.since(self.identity)
        self.identity = identity
        self.connected_at = now
        self.last_error = None
        self.times_connected += 1
        return kind

    def failed(self, reason: str, now: float, chance: float) -> Retry | None:
        """A try failed, or the connection was lost; None means that it was the last try."""
        if self.status == "connected" and self.connected_at is not None and now - self.connected_at >= STABLE_SECONDS:
            self._failures = 0
        self._failures += 1
        self.last_error = reason
        if self.has_given_up:
            self._move("error")
            return None
        # A server that was never there is in error, which a person wants to know; one that was is missed.
        self._move("reconnecting" if self.times_connected else "error")
        return Retry(self._failures, self._backoff.delay(self._failures, chance))

    def closed(self, reason: str) -> None:
        self.last_error = reason
        self._move("disconnected")

    def _move(self, status: LinkStatus) -> None:
        if status not in TRANSITIONS[self.status]:
            raise ImpossibleTransition("link", self.status, status)
        self.status = status
