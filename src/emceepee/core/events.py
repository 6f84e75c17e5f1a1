"""What happened, told to the client exactly once.

The log keeps the newest events, a delivery cursor and the waiters of `await_activity`. All servers of a session share
it, so one that floods it with notifications pays with its own. Replaying a broken HTTP stream is not its business: that
repeats messages, this never repeats an event.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice, takewhile
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

FLOODED_SHARE = 2
"""A log is flooded when one server's notifications, or what nobody has been told of, take more than half of it."""

SIGNALS = ("/list_changed", "resources/updated")
"""Ends of methods that say "look again": two of the same, of which nobody has heard yet, say no more than one."""


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
    news: tuple[Event, ...] = field(default=(), compare=False)
    """Those of the events that nobody had been told of before."""


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
        self._kept: OrderedDict[int, Event] = OrderedDict()
        """By number, which counts up; there are gaps where a flooding server's notifications went."""
        self._number_of: dict[str, int] = {}
        self._count = 0
        self._delivered = 0
        """The number of the newest event that was told."""
        self._undelivered = 0
        self._notifications: dict[str, deque[int]] = {}
        """The notifications among the kept, by server, oldest first."""
        self._signals: dict[tuple[str, str, object], int] = {}
        """The signals that nobody has been told of."""
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
        return self._undelivered

    @property
    def has_news(self) -> bool:
        return self._undelivered > 0

    @property
    def last_event_id(self) -> str | None:
        return self._kept[next(reversed(self._kept))].id if self._kept else None

    @property
    def waiters(self) -> int:
        return len(self._waiters)

    def append(self, event_type: EventType, server: str, data: Mapping[str, Any], /) -> Event:
        """Record an event and wake all waiters with it; a signal that waits to be told is not recorded again."""
        signal = _signal(event_type, server, data)
        if signal is not None and (same := self._waiting(signal, data)) is not None:
            return same
        if len(self._kept) >= self._limit:
            self._evict()
        event = Event(self._ids(), self._clock.now(), event_type, server, data)
        self._keep(event)
        if signal is not None:
            self._signals[signal] = self._count
        self._journal.save_event(event)
        self._warn_when_nearly_full()
        waiters, self._waiters = self._waiters, {}
        for wake in waiters.values():
            wake(event)
        return event

    def read_new(self) -> Delivery:
        """The events that nobody has been told of, which are delivered by this."""
        return self._deliver(self._after(self._delivered))

    def read_after(self, event_id: str) -> Delivery:
        """The events after `event_id`, whatever was delivered before; the delivery cursor never moves back."""
        number = self._number_of.get(event_id)
        if number is None:
            self._on_warning("event_cursor_not_found", {"last_event_id": event_id, "kept": len(self._kept)})
            number = 0
        return self._deliver(self._after(number))

    def restore(self, events: Iterable[Event], lost: int = 0) -> None:
        """Put back what was undelivered before a restart, and how many events were lost by then."""
        self._lost = self._lost_kept = lost
        for event in events:
            self._keep(event)

    def _keep(self, event: Event) -> None:
        self._count += 1
        self._undelivered += 1
        self._kept[self._count] = event
        self._number_of[event.id] = self._count
        if event.type == "notification":
            self._notifications.setdefault(event.server, deque()).append(self._count)

    def _deliver(self, events: tuple[Event, ...]) -> Delivery:
        lost, self._lost = self._lost, 0
        before, self._delivered = self._delivered, self._count
        told_before = max(0, len(events) - self._undelivered)
        self._undelivered = 0
        self._signals.clear()
        return Delivery(events, lost, before, self._count, events[told_before:])

    def take_back(self, delivery: Delivery) -> None:
        """The response with these events reached nobody: they are new again, or lost if later ones were told since."""
        gone = delivery.news
        if self._delivered == delivery.cursor_after:
            self._delivered = delivery.cursor_before
            self._undelivered = len(self._after(self._delivered))
            gone = tuple(event for event in gone if event.id not in self._number_of)
        for event in gone:
            self._journal.forget_event(event.id)
        self._lost += delivery.lost + len(gone)
        self._keep_lost(len(gone))

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

    def _after(self, number: int) -> tuple[Event, ...]:
        # From the newest backwards, so that it costs no more than what is found.
        found = [self._kept[later] for later in takewhile(lambda kept: kept > number, reversed(self._kept))]
        return tuple(reversed(found))

    def _waiting(self, signal: tuple[str, str, object], data: Mapping[str, Any]) -> Event | None:
        """The same signal, down to the last parameter, of which nobody has heard yet."""
        number = self._signals.get(signal)
        same = None if number is None else self._kept.get(number)
        return same if same is not None and same.data == data else None

    def _evict(self) -> None:
        count = max(1, self._limit // EVICTED_SHARE)
        facts: dict[str, Any] = {}
        if (server := self._flooding(count)) is not None:
            victims = list(islice(self._notifications[server], count))
            facts["server"] = server
        else:
            victims = list(islice(self._kept, count))
        evicted = [self._drop(number) for number in victims]
        undelivered = sum(number > self._delivered for number in victims)
        self._undelivered -= undelivered
        self._lost += undelivered
        if server is not None:
            for event in evicted:
                self._journal.forget_event(event.id)
        else:
            self._journal.forget_events(evicted[-1].id)
        self._keep_lost(undelivered)
        self._warned = False
        self._on_warning("event_store_eviction", {"evicted_count": count, "undelivered": undelivered, **facts})

    def _flooding(self, count: int) -> str | None:
        """The server that has to make room: the one with most notifications, if the log is flooded with such.

        What others have to tell stays then, and what was told of them can still be read again.
        """
        most, server = max(((len(numbers), server) for server, numbers in self._notifications.items()), default=(0, ""))
        is_flooded = max(most, self._undelivered) > self._limit // FLOODED_SHARE
        return server if is_flooded and most > count else None

    def _drop(self, number: int) -> Event:
        event = self._kept.pop(number)
        del self._number_of[event.id]
        if event.type == "notification":
            # The oldest of its server, whichever way it was chosen.
            numbers = self._notifications[event.server]
            numbers.popleft()
            if not numbers:
                del self._notifications[event.server]
            signal = _signal(event.type, event.server, event.data)
            if signal is not None and self._signals.get(signal) == number:
                del self._signals[signal]
        return event

    def _keep_lost(self, change: int) -> None:
        if change:
            self._lost_kept += change
            self._journal.save_events_lost(self._lost_kept)

    def _warn_when_nearly_full(self) -> None:
        if not self._warned and len(self._kept) >= self._limit * WARNING_SHARE:
            self._warned = True
            self._on_warning("event_store_approaching_limit", {"count": len(self._kept), "limit": self._limit})


def _signal(event_type: EventType, server: str, data: Mapping[str, Any]) -> tuple[str, str, object] | None:
    """What a signal is about; None for everything else."""
    method, params = data.get("method"), data.get("params")
    if event_type != "notification" or not isinstance(method, str) or not method.endswith(SIGNALS):
        return None
    uri = params.get("uri") if isinstance(params, Mapping) else None
    return (server, method, uri) if uri is None or isinstance(uri, str) else None
