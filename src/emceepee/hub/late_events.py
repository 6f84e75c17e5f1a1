"""What a flooding server says, before it is written down: most of it has been told or dropped by then.

Pure: the session's deadline queue says when it is time, `journal.py` writes.
"""

from __future__ import annotations

from emceepee.clock import Clock
from emceepee.core.deadlines import DeadlineQueue
from emceepee.core.events import Event
from emceepee.core.timers import Timer
from emceepee.pace import Pace

__all__ = ["LATE_SECONDS", "URGENT_NOTIFICATIONS", "LateEvents"]

URGENT_NOTIFICATIONS = 200
URGENT_NOTIFICATIONS_PER_SECOND = 5
"""Of each server: these are written at once, and durable before they are told, like everything else. Those of a server
that sends more are written late, and only if nobody has been told of them by then."""

LATE_SECONDS = 1.0
"""After so long, and at most twice that. A log that is flooded keeps no notification for much longer."""


class LateEvents:
    """The events of a session that are not written yet, in two generations: due the next time, and the time after."""

    def __init__(self, timer: Timer, clock: Clock, deadlines: DeadlineQueue[Timer]) -> None:
        """While there is any, `timer` is among the deadlines; when it fires, `due` says what to write."""
        self._timer = timer
        self._clock = clock
        self._deadlines = deadlines
        self._older: dict[str, Event] = {}
        self._newer: dict[str, Event] = {}
        self._urgent: dict[str, Pace] = {}

    def takes(self, event: Event) -> bool:
        """Whether `event` can wait; if so, it does from now on."""
        if event.type != "notification" or self._pace(event.server).try_take():
            return False
        self._newer[event.id] = event
        if self._timer not in self._deadlines:
            self._set_timer()
        return True

    def forget(self, event_id: str) -> bool:
        """Whether that event waited; it does no more."""
        return self._older.pop(event_id, self._newer.pop(event_id, None)) is not None

    def forget_up_to(self, last_event_id: str) -> None:
        for events in (self._older, self._newer):
            for event_id in [event_id for event_id in events if event_id <= last_event_id]:
                del events[event_id]

    def due(self) -> list[Event]:
        """What has waited long enough."""
        due, self._older, self._newer = self._older, self._newer, {}
        if self._older:
            self._set_timer()
        return list(due.values())

    def take_all(self) -> list[Event]:
        """What has waited at all."""
        events = [*self._older.values(), *self._newer.values()]
        self._older, self._newer = {}, {}
        return events

    def _set_timer(self) -> None:
        self._deadlines.set(self._timer, self._clock.monotonic() + LATE_SECONDS)

    def _pace(self, server: str) -> Pace:
        if server not in self._urgent:
            self._urgent[server] = Pace(
                self._clock, burst=URGENT_NOTIFICATIONS, per_second=URGENT_NOTIFICATIONS_PER_SECOND
            )
        return self._urgent[server]
