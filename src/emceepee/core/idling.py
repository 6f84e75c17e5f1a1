"""How long a session has been idle, over restarts.

Time goes on while the hub is down: what was written down last says since when a session is idle, so that one whose
client never comes back ends. Not every activity is written down, only one that comes some time after the last; a
session gets that time on top after a restart, and so never too little. And however long the hub was down, its clients
get a minute to come back.
"""

from __future__ import annotations

from collections.abc import Callable

from emceepee.clock import Clock

__all__ = ["Idleness"]

SHARE = 1 / 4
"""Of the time that a session may be idle: how much later than the last an activity has to be to be written down."""


GRACE = 60.0
"""Seconds after a restart in which no session ends for being idle, unless it may be idle for less."""


class Idleness:
    """`touch` it when the session is active, and at `next_look` if it has been all along; then ask if it `is_over`."""

    def __init__(
        self, clock: Clock, idle_seconds: float, save: Callable[[float], None], *, saved_at: float | None = None
    ) -> None:
        """`save` writes down a time of activity, `saved_at` was written down before a restart."""
        self._clock = clock
        self._idle = idle_seconds
        self._save = save
        self._last = self._saved = clock.monotonic()
        if saved_at is not None:
            age = max(0.0, clock.now() - saved_at)
            self._saved -= age
            idle_for = max(0.0, age - idle_seconds * SHARE)
            self._last -= min(idle_for, idle_seconds - min(idle_seconds, GRACE))

    def touch(self) -> None:
        self._last = self._clock.monotonic()
        if self._last >= self._saved + self._idle * SHARE:
            self._saved = self._last
            self._save(self._clock.now())

    def is_over(self) -> bool:
        return self._clock.monotonic() >= self._last + self._idle

    def next_look(self) -> float:
        """On the monotonic clock."""
        return min(self._last + self._idle, self._clock.monotonic() + self._idle * SHARE)
