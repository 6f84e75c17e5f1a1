"""What happened, told to the client exactly once.

The log keeps the newest events, a delivery cursor and the waiters of `await_activity`. Replaying a broken HTTP stream
is not its business: that repeats messages, this never repeats an event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, Protocol, TypeAlias

from emceepee.clock import Clock, isoformat
from emceepee.core.journal import Journal
from emceepee.ids import IdFactory

__all__ = ["Delivery", "Emit", "Event", "EventLog", "EventType"]

EventType: TypeAlias = Literal[
    "notification",
    "elicitation_request",
    "elicitation_expired",
    "sampling_request",
    "sampling_expired",
    "question_withdrawn",
    "task_created",
    "task_completed",
    "task_failed",
    "task_cancelled",
    "task_expired",
    "server_added",
    "server_removed",
    "server_connected",
    "server_disconnected",
    "server_reconnecting",
    "server_reconnected",
]

EVICTED_SHARE = 10
"""A full log drops its oldest tenth at once, so that appending stays O(1) amortised."""

WARNING_SHARE = 0.8
"""How full the log is when its owner is warned."""


@dataclass(frozen=True, slots=True)
class Event:
    id: str
    created_at: float
    type: EventType
    server: str
    data: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "created_at": isoformat(self.created_at),
            "type": self.type,
            "server": self.server,
            "data": dict(self.data),
        }


@dataclass(frozen=True, slots=True)
class Delivery:
    """Events that are told now, oldest first, and how many were evicted before anyone heard of them."""

    events: tuple[Event, ...]
    lost: int = 0
    cursor_before: int = field(default=0, compare=False)
    cursor_after: int = field(default=0, compare=False)


class Emit(Protocol):
    """How the tables of a session tell that something happened: `EventLog.append`."""

    def __call__(self, event_type: EventType, server: str, data: Mapping[str, Any], /) -> Event: ...


class EventLog:
    """A bounded log with one delivery cursor; append, read-new and wake are O(1) amortised per event."""

    def __init__(
        self,
        clock: Clock,
        ids: IdFactory,
        *,
        limit: int = 1000,
        journal: Journal | None = None,
        on_warning: Callable[[str, Mapping[str, Any]], None] = lambda _name, _facts: None,
    ) -> None:
        self._journal = journal or Journal()
        self._clock = clock
        self._ids = ids
        self._limit = limit
        self._on_warning = on_warning
        self._kept: deque[Event] = deque()
        self._number_of: dict[str, int] = {}
        self._count = 0
        self._delivered = 0
        self._lost = 0
        self._lost_kept = 0
        """How many lost events the journal knows of: those that nobody has been told of for certain."""
        self._warned = False
        self._waiters: dict[object, Callable[[Event], None]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def undelivered(self) -> int:
        """How many kept events nobody has been told of."""
        return min(self._count - self._delivered, len(self._kept))

    @property
    def has_news(self) -> bool:
        return self._count > self._delivered

    @property
    def last_event_id(self) -> str | None:
        return self._kept[-1].id if self._kept else None

    @property
    def waiters(self) -> int:
        return len(self._waiters)

    def append(self, event_type: EventType, server: str, data: Mapping[str, Any], /) -> Event:
        """Record an event and wake all waiters with it."""
        if len(self._kept) >= self._limit:
            self._evict()
        event = Event(self._ids(), self._clock.now(), event_type, server, data)
        self._count += 1
        self._kept.append(event)
        self._number_of[event.id] = self._count
        self._journal.save_event(event)
        self._warn_when_nearly_full()
        waiters, self._waiters = self._waiters, {}
        for wake in waiters.values():
            wake(event)
        return event

    def read_new(self) -> Delivery:
        """The events that nobody has been told of, which are delivered by this."""
        events = self._newest(self.undelivered)
        return self._deliver(events)

    def read_after(self, event_id: str) -> Delivery:
        """The events after `event_id`, whatever was delivered before; the delivery cursor never moves back."""
        number = self._number_of.get(event_id)
        if number is None:
            self._on_warning("event_cursor_not_found", {"last_event_id": event_id, "kept": len(self._kept)})
            number = self._count - len(self._kept)
        events = self._newest(self._count - number)
        return self._deliver(events)

    def restore(self, events: Iterable[Event], lost: int = 0) -> None:
        """Put back what was undelivered before a restart, and how many events were lost by then."""
        self._lost = self._lost_kept = lost
        for event in events:
            self._count += 1
            self._kept.append(event)
            self._number_of[event.id] = self._count

    def _deliver(self, events: tuple[Event, ...]) -> Delivery:
        lost, self._lost = self._lost, 0
        before, self._delivered = self._delivered, self._count
        return Delivery(events, lost, before, self._count)

    def take_back(self, delivery: Delivery) -> None:
        """The response with these events reached nobody: they are new again, or lost if later ones were told since."""
        self._lost += delivery.lost
        if self._delivered == delivery.cursor_after:
            self._delivered = delivery.cursor_before
        else:
            self._lost += len(delivery.events)

    def told(self, delivery: Delivery) -> None:
        """The response with these events is out: after a restart they need not be told again."""
        for event in delivery.events:
            self._journal.forget_event(event.id)
        self._keep_lost(-delivery.lost)

    def has_after(self, event_id: str) -> bool:
        """Whether `read_after` would have anything to tell."""
        return self._number_of.get(event_id, -1) < self._count and self._count > 0

    def add_waiter(self, wake: Callable[[Event], None]) -> Callable[[], None]:
        """Have `wake` called once with the next event; the returned function takes it back."""
        key = object()
        self._waiters[key] = wake

        def remove() -> None:
            self._waiters.pop(key, None)

        return remove

    def _newest(self, count: int) -> tuple[Event, ...]:
        # From the right end: a deque is O(n) in its middle.
        return tuple(islice(reversed(self._kept), count))[::-1]

    def _evict(self) -> None:
        count = max(1, self._limit // EVICTED_SHARE)
        first_kept = self._count - len(self._kept)
        undelivered = max(0, first_kept + count - max(self._delivered, first_kept))
        for _ in range(count):
            evicted = self._kept.popleft()
            del self._number_of[evicted.id]
        self._journal.forget_events(evicted.id)
        self._lost += undelivered
        self._keep_lost(undelivered)
        self._warned = False
        self._on_warning("event_store_eviction", {"evicted_count": count, "undelivered": undelivered})

    def _keep_lost(self, change: int) -> None:
        if change:
            self._lost_kept += change
            self._journal.save_events_lost(self._lost_kept)

    def _warn_when_nearly_full(self) -> None:
        if not self._warned and len(self._kept) >= self._limit * WARNING_SHARE:
            self._warned = True
            self._on_warning("event_store_approaching_limit", {"count": len(self._kept), "limit": self._limit})
