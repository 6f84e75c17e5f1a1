"""The event log: told exactly once, in order, and honest about what it had to drop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from emceepee.core.events import Delivery, Event, EventLog, EventType
from emceepee.core.journal import Journal
from tests.core.clockwork import START, STATEFUL, HandClock, numbered
from tests.requirements import requirement

Warnings = list[tuple[str, Mapping[str, Any]]]


@pytest.fixture
def log(clock: HandClock) -> EventLog:
    return EventLog(clock, numbered("event"))


def tell(log: EventLog, *names: str) -> list[Event]:
    return [log.append("notification", "demo", {"method": name}) for name in names]


def small_log(limit: int) -> tuple[EventLog, Warnings]:
    warnings: Warnings = []

    def on_warning(name: str, facts: Mapping[str, Any]) -> None:
        warnings.append((name, facts))

    return EventLog(HandClock(), numbered("event"), limit=limit, on_warning=on_warning), warnings


@requirement("T001-event-shape")
def test_an_event_is_recorded_with_its_id_and_its_time(log: EventLog, clock: HandClock) -> None:
    clock.elapsed = 12.5
    event = log.append("task_completed", "demo", {"task_id": "task-1", "tool": "book"})
    assert event == Event("event-1", START + 12.5, "task_completed", "demo", {"task_id": "task-1", "tool": "book"})
    assert event.as_json() == {
        "id": "event-1",
        "created_at": "2027-01-15T08:00:12.500Z",
        "type": "task_completed",
        "server": "demo",
        "data": {"task_id": "task-1", "tool": "book"},
    }


def test_a_new_log_has_nothing_to_tell(log: EventLog) -> None:
    assert (len(log), log.undelivered, log.has_news, log.last_event_id, log.waiters) == (0, 0, False, None, 0)
    assert log.read_new() == Delivery(())
    assert log.has_after("event-1") is False


@requirement("T001-event-once", "T001-event-order")
def test_new_events_are_told_once_oldest_first(log: EventLog) -> None:
    first = tell(log, "a", "b", "c")
    assert log.read_new() == Delivery(tuple(first))
    assert log.read_new() == Delivery(())
    later = tell(log, "d")
    assert log.read_new() == Delivery(tuple(later))


def test_what_was_told_is_no_news_any_more(log: EventLog) -> None:
    tell(log, "a", "b")
    assert (log.has_news, log.undelivered) == (True, 2)
    log.read_new()
    assert (log.has_news, log.undelivered, len(log), log.last_event_id) == (False, 0, 2, "event-2")


@requirement("P001-unit-events-kept")
def test_a_cursor_is_answered_from_there_whatever_was_told_before(log: EventLog) -> None:
    a, b, c = tell(log, "a", "b", "c")
    log.read_new()
    assert log.read_after(a.id) == Delivery((b, c))
    assert log.read_after(a.id) == Delivery((b, c))


def test_reading_after_a_cursor_tells_the_news_with_it(log: EventLog) -> None:
    a, b = tell(log, "a", "b")
    log.read_new()
    (c,) = tell(log, "c")
    assert log.read_after(a.id) == Delivery((b, c))
    assert (log.has_news, log.read_new()) == (False, Delivery(()))


@requirement("T001-await-cursor")
def test_an_old_cursor_never_moves_delivery_back(log: EventLog) -> None:
    a, *_ = tell(log, "a", "b", "c")
    log.read_new()
    log.read_after(a.id)
    assert (log.has_news, log.undelivered, log.read_new()) == (False, 0, Delivery(()))


def test_a_cursor_takes_the_events_before_it_as_known(log: EventLog) -> None:
    _, b, c = tell(log, "a", "b", "c")
    assert log.read_after(b.id) == Delivery((c,))
    assert log.read_new() == Delivery(())


def test_the_newest_event_as_cursor_has_nothing_after_it(log: EventLog) -> None:
    *_, last = tell(log, "a", "b")
    log.read_new()
    assert (log.has_after(last.id), log.read_after(last.id)) == (False, Delivery(()))


@requirement("T001-await-unknown-cursor")
def test_an_unknown_cursor_gives_all_that_is_kept_with_a_warning() -> None:
    log, warnings = small_log(1000)
    events = tell(log, "a", "b")
    log.read_new()
    assert log.has_after("event-of-another-log") is True
    assert log.read_after("event-of-another-log") == Delivery(tuple(events))
    assert warnings == [("event_cursor_not_found", {"last_event_id": "event-of-another-log", "kept": 2})]


def test_an_evicted_cursor_is_an_unknown_one() -> None:
    log, warnings = small_log(10)
    events = tell(log, *"abcdefghij")
    log.read_new()
    events += tell(log, "k")
    assert log.has_after(events[0].id) is True
    assert log.read_after(events[0].id) == Delivery(tuple(events[1:]))
    assert warnings[-1] == ("event_cursor_not_found", {"last_event_id": "event-1", "kept": 10})


@requirement("T001-event-eviction", "P001-unit-events-eviction")
def test_a_full_log_drops_its_oldest_tenth() -> None:
    log, _ = small_log(50)
    events = tell(log, *map(str, range(51)))
    assert len(log) == 46
    assert log.read_new() == Delivery(tuple(events[5:]), lost=5)


def test_a_log_of_one_event_keeps_the_newest() -> None:
    log, _ = small_log(1)
    _, _, last = tell(log, "a", "b", "c")
    assert log.read_new() == Delivery((last,), lost=2)


def test_dropping_what_was_told_loses_nothing() -> None:
    log, warnings = small_log(10)
    tell(log, *"abcdefghij")
    log.read_new()
    (k,) = tell(log, "k")
    assert log.read_new() == Delivery((k,), lost=0)
    assert warnings[1] == ("event_store_eviction", {"evicted_count": 1, "undelivered": 0, "server": "demo"})


def test_only_the_untold_part_of_what_is_dropped_counts_as_lost() -> None:
    log, warnings = small_log(20)
    tell(log, "a")
    log.read_new()
    tell(log, *map(str, range(20)))
    assert ("event_store_eviction", {"evicted_count": 2, "undelivered": 1, "server": "demo"}) in warnings
    assert log.read_new().lost == 1


@requirement("T001-events-lost")
def test_losses_are_told_once_and_add_up_over_evictions() -> None:
    log, _ = small_log(10)
    tell(log, *map(str, range(25)))
    assert log.read_new().lost == 15
    assert log.read_new().lost == 0


def test_losses_are_told_to_a_reader_with_a_cursor_too() -> None:
    log, _ = small_log(10)
    events = tell(log, *map(str, range(12)))
    assert log.read_after(events[5].id) == Delivery(tuple(events[6:]), lost=2)
    assert log.read_new() == Delivery(())


@requirement("T001-event-warning")
def test_the_owner_is_warned_once_from_four_fifths_on() -> None:
    log, warnings = small_log(10)
    tell(log, *"abcdefg")
    assert warnings == []
    tell(log, *"hij")
    assert warnings == [("event_store_approaching_limit", {"count": 8, "limit": 10})]


@requirement("T001-event-waiters", "P001-unit-events-wait")
def test_all_waiters_wake_on_one_event_and_the_first_reader_gets_it(log: EventLog) -> None:
    woken: list[tuple[str, Event]] = []
    log.add_waiter(lambda event: woken.append(("first", event)))
    log.add_waiter(lambda event: woken.append(("second", event)))
    assert log.waiters == 2
    (event,) = tell(log, "a")
    assert woken == [("first", event), ("second", event)]
    assert [log.read_new(), log.read_new()] == [Delivery((event,)), Delivery(())]


def test_a_waiter_wakes_once(log: EventLog) -> None:
    woken: list[Event] = []
    log.add_waiter(woken.append)
    events = tell(log, "a", "b")
    assert (woken, log.waiters) == (events[:1], 0)


def test_a_waiter_that_was_taken_back_is_not_woken(log: EventLog) -> None:
    woken: list[Event] = []
    remove = log.add_waiter(woken.append)
    remove()
    remove()
    tell(log, "a")
    assert (woken, log.waiters) == ([], 0)


def test_taking_a_waiter_back_after_it_woke_leaves_the_others(log: EventLog) -> None:
    woken: list[Event] = []
    remove = log.add_waiter(lambda _event: None)
    tell(log, "a")
    log.add_waiter(woken.append)
    remove()
    (event,) = tell(log, "b")
    assert woken == [event]


def test_one_callback_can_wait_twice(log: EventLog) -> None:
    woken: list[Event] = []
    remove = log.add_waiter(woken.append)
    log.add_waiter(woken.append)
    remove()
    (event,) = tell(log, "a")
    assert woken == [event]


def test_a_woken_waiter_finds_its_event_in_the_log(log: EventLog) -> None:
    read: list[Delivery] = []
    log.add_waiter(lambda _event: read.append(log.read_new()))
    (event,) = tell(log, "a")
    assert read == [Delivery((event,))]


def test_whoever_waits_again_while_being_woken_gets_the_next_event(log: EventLog) -> None:
    woken: list[Event] = []

    def wake(event: Event) -> None:
        woken.append(event)
        log.add_waiter(wake)

    log.add_waiter(wake)
    events = tell(log, "a", "b")
    assert (woken, log.waiters) == (events, 1)


def test_an_event_that_a_waking_waiter_appends_comes_after_the_one_it_woke_on(log: EventLog) -> None:
    woken: list[str] = []
    log.add_waiter(lambda _event: woken.extend(event.id for event in tell(log, "b")))
    log.add_waiter(lambda event: woken.append(event.id))
    (a,) = tell(log, "a")
    assert woken == ["event-2", "event-1"]
    assert [event.id for event in log.read_new().events] == [a.id, "event-2"]


def test_a_waiter_still_gets_its_event_when_that_event_drops_others() -> None:
    log, _ = small_log(10)
    tell(log, *"abcdefghij")
    woken: list[Event] = []
    log.add_waiter(woken.append)
    (event,) = tell(log, "k")
    delivery = log.read_new()
    assert woken == [event] == [delivery.events[-1]]
    assert (len(delivery.events), delivery.lost) == (10, 1)


# A server that floods the log


def flood(log: EventLog, count: int, server: str = "flooder") -> list[Event]:
    return [log.append("notification", server, {"method": "tick", "params": {"n": n}}) for n in range(count)]


def end_tasks(log: EventLog, count: int, server: str = "demo") -> list[Event]:
    return [log.append("task_completed", server, {"task_id": str(n)}) for n in range(count)]


def test_a_flood_drops_its_own_oldest_and_no_other_servers_events() -> None:
    log, warnings = small_log(100)
    others = [*end_tasks(log, 20), *tell(log, "a", "b")]
    flooded = flood(log, 1000)
    delivery = log.read_new()
    assert [event for event in delivery.events if event.server == "demo"] == others
    kept = [event for event in delivery.events if event.server == "flooder"]
    assert kept == flooded[-len(kept) :]
    assert (len(kept) + delivery.lost, len(log) <= 100) == (1000, True)
    evicted = ("event_store_eviction", {"evicted_count": 10, "undelivered": 10, "server": "flooder"})
    assert [found for found in warnings if found[0] == "event_store_eviction"] == [evicted] * (delivery.lost // 10)


def test_two_floods_at_once_drop_each_its_own() -> None:
    log, _ = small_log(100)
    others = end_tasks(log, 30)
    for _ in range(500):
        flood(log, 1, "one")
        flood(log, 1, "two")
    delivery = log.read_new()
    assert [event for event in delivery.events if event.server == "demo"] == others
    assert {event.server for event in delivery.events} == {"demo", "one", "two"}


def test_what_was_told_of_others_can_be_read_again_while_a_server_floods() -> None:
    log, _ = small_log(100)
    first, *rest = end_tasks(log, 40)
    for _ in range(50):
        flood(log, 20)
        log.read_new()
    again = log.read_after(first.id)
    assert [event for event in again.events if event.server == "demo"] == rest


def test_what_was_told_goes_before_the_news_of_a_server_that_is_only_busy() -> None:
    log, _ = small_log(100)
    end_tasks(log, 80)
    log.read_new()
    news = flood(log, 40)
    assert log.read_new() == Delivery(tuple(news))


def test_a_log_that_is_full_of_what_nobody_floods_drops_its_oldest() -> None:
    log, warnings = small_log(20)
    events = end_tasks(log, 21)
    assert log.read_new() == Delivery(tuple(events[2:]), lost=2)
    assert ("event_store_eviction", {"evicted_count": 2, "undelivered": 2}) in warnings


@pytest.mark.parametrize(
    ("method", "params"),
    [("notifications/tools/list_changed", {}), ("notifications/resources/updated", {"uri": "demo://menu"})],
)
def test_a_signal_that_nobody_has_heard_yet_is_not_recorded_again(log: EventLog, method: str, params: Any) -> None:
    data = {"method": method, "params": params}
    signal = log.append("notification", "demo", data)
    woken: list[Event] = []
    log.add_waiter(woken.append)
    assert log.append("notification", "demo", dict(data)) is signal
    assert (log.read_new(), woken) == (Delivery((signal,)), [])
    again = log.append("notification", "demo", data)
    assert (again.id, log.read_new(), woken) == ("event-2", Delivery((again,)), [again])


def test_signals_that_differ_are_each_told(log: EventLog) -> None:
    def changed(server: str, method: str, **params: object) -> Event:
        return log.append("notification", server, {"method": f"notifications/{method}", "params": params})

    events = (
        changed("demo", "tools/list_changed"),
        changed("demo", "prompts/list_changed"),
        changed("demo", "tools/list_changed", _meta={"subscription": 1}),
        changed("other", "tools/list_changed"),
        changed("demo", "resources/updated", uri="demo://1"),
        changed("demo", "resources/updated", uri="demo://2"),
        changed("demo", "resources/updated", uri=["no uri"]),
        changed("demo", "resources/updated", uri=["no uri"]),
        changed("demo", "message", text="the same"),
        changed("demo", "message", text="the same"),
    )
    assert log.read_new() == Delivery(events)


def test_a_signal_that_was_dropped_is_recorded_again() -> None:
    log, _ = small_log(10)
    data = {"method": "notifications/tools/list_changed", "params": {}}
    dropped = log.append("notification", "demo", data)
    flood(log, 10, "demo")
    again = log.append("notification", "demo", data)
    delivery = log.read_new()
    assert dropped not in delivery.events
    assert delivery.events[-1] is again


def test_what_a_flood_dropped_is_taken_out_of_the_journal() -> None:
    class Kept(Journal):
        def __init__(self) -> None:
            self.ids: list[str] = []

        def save_event(self, event: Event) -> None:
            self.ids.append(event.id)

        def forget_event(self, event_id: str) -> None:
            self.ids.remove(event_id)

    journal = Kept()
    log = EventLog(HandClock(), numbered("event"), limit=20, journal=journal)
    end_tasks(log, 5)
    flood(log, 100)
    assert journal.ids == [event.id for event in log.read_new().events]


def test_what_reached_nobody_is_new_again_after_a_flood_as_well() -> None:
    log, _ = small_log(20)
    ended = end_tasks(log, 3)
    flood(log, 100)
    delivery = log.read_new()
    log.take_back(delivery)
    assert (log.undelivered, log.has_news) == (len(delivery.events), True)
    (more,) = tell(log, "more")
    again = log.read_new()
    assert [event for event in again.events if event.server == "demo"] == [*ended, more]
    assert again.events[-1] is more
    assert len(again.events) + again.lost == 3 + 100 + 1


SOURCES: dict[str, tuple[EventType, str]] = {
    "demo": ("notification", "demo"),
    "other": ("notification", "other"),
    "tasks": ("task_completed", "demo"),
}


class EventsToldExactlyOnce(RuleBasedStateMachine):
    """The log beside three plain lists: what is kept, what was told, what was lost.

    Readers are honest: a cursor is an event they were told, or one that the log cannot know.
    """

    @initialize(limit=st.sampled_from([1, 2, 5, 10, 11, 25]))
    def open(self, limit: int) -> None:
        self.limit = limit
        self.log, self.warnings = small_log(limit)
        self.appended: list[Event] = []
        self.kept: list[Event] = []
        self.news: list[Event] = []
        self.told_as_new: list[Event] = []
        self.dropped_untold: list[Event] = []
        self.lost_counted = 0
        self.waiting: dict[int, Callable[[], None]] = {}
        self.woken: dict[int, list[Event]] = {}
        self.due: dict[int, list[Event]] = {}

    def evict(self) -> None:
        count = max(1, self.limit // 10)
        by_server = {name: [event for event in self.kept if is_notification(event, name)] for name in ("demo", "other")}
        flooder = max(by_server, key=lambda name: (len(by_server[name]), name))
        most = len(by_server[flooder])
        is_flooded = max(most, len(self.news)) > self.limit // 2 and most > count
        evicted = (by_server[flooder] if is_flooded else self.kept)[:count]
        self.kept = [event for event in self.kept if event not in evicted]
        self.dropped_untold += [event for event in evicted if event in self.news]
        self.news = [event for event in self.news if event not in evicted]

    def append_one(self, source: str) -> None:
        if len(self.kept) == self.limit:
            self.evict()
        event_type, server = SOURCES[source]
        event = self.log.append(event_type, server, {"number": len(self.appended)})
        for number in self.waiting:
            self.due[number] = [event]
        self.waiting.clear()
        self.appended.append(event)
        self.kept.append(event)
        self.news.append(event)

    def lost_since_last_read(self) -> int:
        return len(self.dropped_untold) - self.lost_counted

    def note(self, delivery: Delivery) -> None:
        self.lost_counted += delivery.lost
        self.told_as_new += self.news
        self.news = []

    @rule(count=st.integers(1, 12), source=st.sampled_from(sorted(SOURCES)))
    def append(self, count: int, source: str) -> None:
        for _ in range(count):
            self.append_one(source)

    @rule()
    def read_new(self) -> None:
        expected = Delivery(tuple(self.news), self.lost_since_last_read())
        assert self.log.has_news is bool(expected.events or expected.lost)
        delivery = self.log.read_new()
        assert delivery == expected
        self.note(delivery)

    @precondition(lambda self: bool(self.told_as_new))
    @rule(data=st.data())
    def read_after_an_event_that_was_told(self, data: st.DataObject) -> None:
        cursor = data.draw(st.sampled_from(self.told_as_new))
        after = self.kept[self.kept.index(cursor) + 1 :] if cursor in self.kept else self.kept
        expected = Delivery(tuple(after), self.lost_since_last_read())
        assert self.log.has_after(cursor.id) is bool(expected.events or expected.lost)
        delivery = self.log.read_after(cursor.id)
        assert delivery == expected
        self.note(delivery)

    @rule()
    def read_after_an_unknown_event(self) -> None:
        expected = Delivery(tuple(self.kept), self.lost_since_last_read())
        assert self.log.has_after("nobody's") is bool(expected.events)
        delivery = self.log.read_after("nobody's")
        assert delivery == expected
        assert self.warnings[-1] == (
            "event_cursor_not_found",
            {"last_event_id": "nobody's", "kept": len(self.kept)},
        )
        self.note(delivery)

    @rule()
    def wait(self) -> None:
        number = len(self.woken)
        self.woken[number], self.due[number] = [], []
        self.waiting[number] = self.log.add_waiter(self.woken[number].append)

    @precondition(lambda self: bool(self.waiting))
    @rule(data=st.data())
    def stop_waiting(self, data: st.DataObject) -> None:
        self.waiting.pop(data.draw(st.sampled_from(sorted(self.waiting))))()

    @invariant()
    def every_event_is_told_once_or_lost_or_news(self) -> None:
        assert sorted([*self.told_as_new, *self.dropped_untold, *self.news], key=self.appended.index) == self.appended

    @invariant()
    def events_are_told_in_the_order_they_happened(self) -> None:
        assert all(self.appended.index(a) < self.appended.index(b) for a, b in pairwise(self.told_as_new))

    @invariant()
    def the_log_says_of_itself_what_is_so(self) -> None:
        assert (len(self.log), self.log.undelivered) == (len(self.kept), len(self.news))
        assert self.log.has_news is bool(self.news)
        assert self.log.last_event_id == (self.appended[-1].id if self.appended else None)
        assert len(self.log) <= self.limit

    @invariant()
    def each_waiter_wakes_on_the_next_event_and_on_no_other(self) -> None:
        assert self.woken == self.due
        assert self.log.waiters == len(self.waiting)

    @invariant()
    def every_untold_event_that_was_dropped_is_in_a_warning(self) -> None:
        dropped = [facts["undelivered"] for name, facts in self.warnings if name == "event_store_eviction"]
        assert sum(dropped) == len(self.dropped_untold)


def is_notification(event: Event, server: str) -> bool:
    return (event.type, event.server) == ("notification", server)


TestEventsToldExactlyOnce = EventsToldExactlyOnce.TestCase
TestEventsToldExactlyOnce.settings = STATEFUL
