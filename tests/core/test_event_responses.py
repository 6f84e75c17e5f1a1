"""Events whose response is under way: it goes out, or reaches nobody, in any order."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from emceepee.core.events import Delivery, Event, EventLog
from emceepee.core.journal import Journal
from tests.core.clockwork import STATEFUL, HandClock, numbered


class KeptEvents(Journal):
    """What a restart would find."""

    def __init__(self) -> None:
        self.events: dict[str, Event] = {}
        self.lost = 0

    def save_event(self, event: Event) -> None:
        self.events[event.id] = event

    def forget_event(self, event_id: str) -> None:
        self.events.pop(event_id, None)

    def forget_events(self, last_event_id: str) -> None:
        last = _number(last_event_id)
        self.events = {each: event for each, event in self.events.items() if _number(each) > last}

    def save_events_lost(self, count: int) -> None:
        self.lost = count


def _number(event_id: str) -> int:
    return int(event_id.rpartition("-")[2])


def test_events_that_reached_nobody_after_later_ones_were_told_are_lost_in_the_journal_as_well() -> None:
    journal = KeptEvents()
    log = EventLog(HandClock(), numbered("event"), journal=journal)
    log.append("task_completed", "demo", {})
    first = log.read_new()
    log.append("task_failed", "demo", {})
    log.told(log.read_new())
    log.take_back(first)
    assert (list(journal.events), journal.lost) == ([], 1)
    after = log.read_new()
    assert after == Delivery((), lost=1)
    log.told(after)
    assert journal.lost == 0


def test_an_event_that_was_dropped_before_its_response_came_back_is_lost() -> None:
    log = EventLog(HandClock(), numbered("event"), limit=2)
    log.append("task_completed", "demo", {})
    delivery = log.read_new()
    for _ in range(2):
        log.append("task_failed", "demo", {})
    log.take_back(delivery)
    assert (log.undelivered, log.read_new().lost) == (2, 1)


def test_what_was_told_before_is_not_lost_when_it_is_told_again_in_vain() -> None:
    log = EventLog(HandClock(), numbered("event"))
    known = log.append("task_created", "demo", {})
    log.append("task_completed", "demo", {})
    log.told(log.read_new())
    again = log.read_after(known.id)
    log.append("task_failed", "demo", {})
    log.told(log.read_new())
    log.take_back(again)
    assert log.read_new() == Delivery(())


class EventsOfResponses(RuleBasedStateMachine):
    """Every event is told, or counted as lost, or there to be told: before a restart and after it."""

    @initialize(limit=st.sampled_from([1, 2, 5, 25]))
    def open(self, limit: int) -> None:
        self.journal = KeptEvents()
        self.log = EventLog(HandClock(), numbered("event"), limit=limit, journal=self.journal)
        self.under_way: list[Delivery] = []
        self.appended = self.told = self.lost_told = 0

    @rule(count=st.integers(1, 8))
    def append(self, count: int) -> None:
        for _ in range(count):
            self.log.append("task_completed", "demo", {})
        self.appended += count

    @rule()
    def respond(self) -> None:
        self.under_way.append(self.log.read_new())

    @precondition(lambda self: bool(self.under_way))
    @rule(data=st.data())
    def go_out(self, data: st.DataObject) -> None:
        delivery = self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))
        self.log.told(delivery)
        self.told += len(delivery.events)
        self.lost_told += delivery.lost

    @precondition(lambda self: bool(self.under_way))
    @rule(data=st.data())
    def reach_nobody(self, data: st.DataObject) -> None:
        self.log.take_back(self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1))))

    @invariant()
    def no_loss_is_taken_back_twice(self) -> None:
        assert self.journal.lost >= 0

    @precondition(lambda self: not self.under_way)
    @invariant()
    def the_journal_accounts_for_every_event(self) -> None:
        assert self.told + self.lost_told + len(self.journal.events) + self.journal.lost == self.appended

    @precondition(lambda self: not self.under_way)
    @invariant()
    def the_log_has_what_the_journal_has(self) -> None:
        assert self.log.undelivered == len(self.journal.events)


TestEventsOfResponses = EventsOfResponses.TestCase
TestEventsOfResponses.settings = STATEFUL
