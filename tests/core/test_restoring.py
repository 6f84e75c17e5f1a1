"""The tables of a session after a restart: with what is left of everything's time."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from emceepee.core.events import Event, EventLog
from emceepee.core.journal import Journal
from emceepee.core.questions import Arrival, Question
from emceepee.core.state import SessionLimits, SessionState
from emceepee.core.tasks import Task
from emceepee.core.timers import Timer
from tests.core.clockwork import HandClock


class Kept(Journal):
    """A journal whose records are there for the next process."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.questions: dict[str, Question] = {}
        self.events: dict[str, Event] = {}
        self.events_lost = 0

    def save_task(self, task: Task) -> None:
        self.tasks[task.task_id] = task

    def save_question(self, question: Question) -> None:
        self.questions[question.request_id] = question

    def forget_question(self, request_id: str) -> None:
        del self.questions[request_id]

    def save_event(self, event: Event) -> None:
        self.events[event.id] = event

    def forget_event(self, event_id: str) -> None:
        self.events.pop(event_id, None)

    def forget_events(self, last_event_id: str) -> None:
        self.events = {id_: event for id_, event in self.events.items() if id_ > last_event_id}

    def save_events_lost(self, count: int) -> None:
        self.events_lost = count

    def state(self, clock: HandClock) -> SessionState:
        """The next process."""
        state = SessionState(clock, SessionLimits(), journal=self)
        state.events.restore(self.events.values(), self.events_lost)
        for task in tuple(self.tasks.values()):
            state.tasks.restore(task)
        for question in tuple(self.questions.values()):
            state.questions.restore(question)
            if not question.survives:
                state.questions.settle(question.request_id, "rejected", reason="restarted")
            elif question.task_id is not None:
                state.tasks.pause_ttl(question.task_id)
        return state


@pytest.fixture
def kept() -> Kept:
    return Kept()


def ask(state: SessionState, task: Task | None, arrival: Arrival = "input_required") -> Question:
    task_id = None if task is None else task.task_id
    question = state.questions.add(
        "elicitation", "demo", {}, arrival=arrival, certainty="exact", task_id=task_id, input_key="name"
    )
    if task_id is not None:
        state.tasks.pause_ttl(task_id)
    return question


def answer(state: SessionState, question: Question) -> None:
    state.questions.settle(question.request_id, "accepted")
    if question.task_id is not None:
        state.tasks.resume_ttl(question.task_id)


# Tasks


def test_a_task_has_what_is_left_of_its_ttl(clock: HandClock, kept: Kept) -> None:
    task = kept.state(clock).tasks.create("demo", "book", {}, ttl_ms=100_000)
    clock.elapsed = 30
    assert kept.state(clock).tasks.remaining_ttl(task.task_id) == 70
    clock.elapsed = 130
    assert kept.state(clock).tasks.remaining_ttl(task.task_id) == 0


def test_a_ttl_that_stood_still_stands_still_again_with_its_question(clock: HandClock, kept: Kept) -> None:
    state = kept.state(clock)
    task = state.tasks.create("demo", "book", {}, ttl_ms=100_000)
    clock.elapsed = 30
    question = ask(state, task)
    clock.elapsed = 500
    state = kept.state(clock)
    assert state.tasks.remaining_ttl(task.task_id) == 70
    assert Timer("task_ttl", task.task_id) not in state.deadlines
    clock.elapsed = 550
    answer(state, question)
    clock.elapsed = 560
    assert kept.state(clock).tasks.remaining_ttl(task.task_id) == 60, "and what stood still does not count later"


def test_a_ttl_that_stood_still_for_a_question_that_is_lost_runs_on(clock: HandClock, kept: Kept) -> None:
    state = kept.state(clock)
    task = state.tasks.create("demo", "book", {}, ttl_ms=100_000)
    ask(state, task, arrival="request")
    clock.elapsed = 500
    state = kept.state(clock)
    assert state.deadlines.get(Timer("task_ttl", task.task_id)) == 600
    assert state.tasks.get(task.task_id) == replace(task, expires_at=clock.now() + 100)


def test_that_a_task_waits_and_that_it_goes_on_is_when_it_was_updated(clock: HandClock, kept: Kept) -> None:
    state = kept.state(clock)
    task = state.tasks.create("demo", "book", {})
    clock.elapsed = 5
    question = ask(state, task)
    assert state.tasks.get(task.task_id).last_updated_at == task.created_at + 5
    clock.elapsed = 7
    answer(state, question)
    assert state.tasks.get(task.task_id).last_updated_at == task.created_at + 7


# Questions


@pytest.mark.parametrize("arrival", ["input_required", "task_input"])
def test_a_question_that_lives_on_no_connection_is_there_with_the_rest_of_its_time(
    clock: HandClock, kept: Kept, arrival: Arrival
) -> None:
    question = ask(kept.state(clock), None, arrival)
    clock.elapsed = 200
    state = kept.state(clock)
    assert state.questions.pending() == [question]
    assert question.input_key == "name"
    assert "input_key" not in question.as_json()
    assert state.deadlines.get(Timer("question", question.request_id)) == 600
    state.questions.settle(question.request_id, "expired")
    assert kept.questions == {}


@pytest.mark.parametrize("arrival", ["request", "receiver_task"])
def test_a_question_that_lives_on_a_connection_is_kept_to_be_told_of_its_end(
    clock: HandClock, kept: Kept, arrival: Arrival
) -> None:
    question = ask(kept.state(clock), None, arrival)
    state = kept.state(clock)
    assert (state.questions.pending(), kept.questions) == ([], {})
    asked, lost = state.events.read_new().events
    assert (asked.type, lost.type) == ("elicitation_request", "elicitation_expired")
    assert lost.data == {"request_id": question.request_id, "reason": "restarted"}


def test_a_question_whose_time_was_up_meanwhile_is_due_at_once(clock: HandClock, kept: Kept) -> None:
    question = ask(kept.state(clock), None)
    clock.elapsed = 5000
    assert kept.state(clock).deadlines.pop_due(5000) == [Timer("question", question.request_id)]


def test_the_task_that_a_question_is_given_to_is_kept_too(clock: HandClock, kept: Kept) -> None:
    state = kept.state(clock)
    question = ask(state, None)
    state.questions.assign(question.request_id, "task")
    assert kept.state(clock).questions.pending(task_id="task") != []


# Events


def small_log(clock: HandClock, kept: Kept, prefix: str) -> EventLog:
    numbers = count(1)
    log = EventLog(clock, lambda: f"{prefix}-{next(numbers):03}", limit=10, journal=kept)
    log.restore(kept.events.values(), kept.events_lost)
    return log


def overflow(log: EventLog, count: int) -> None:
    for _ in range(count):
        log.append("notification", "demo", {})


def test_how_many_events_were_lost_is_told_after_a_restart(clock: HandClock, kept: Kept) -> None:
    overflow(small_log(clock, kept, "a"), 13)
    log = small_log(clock, kept, "b")
    assert (log.read_new().lost, log.undelivered) == (3, 0)


def test_it_is_told_again_if_the_response_was_not_out(clock: HandClock, kept: Kept) -> None:
    log = small_log(clock, kept, "a")
    overflow(log, 13)
    assert log.read_new().lost == 3
    assert small_log(clock, kept, "b").read_new().lost == 3


def test_it_is_not_told_again_if_the_response_was_out(clock: HandClock, kept: Kept) -> None:
    log = small_log(clock, kept, "a")
    overflow(log, 13)
    log.told(log.read_new())
    assert (kept.events_lost, kept.events) == (0, {})


def test_losses_add_up_over_restarts_and_while_a_response_is_on_its_way(clock: HandClock, kept: Kept) -> None:
    overflow(small_log(clock, kept, "a"), 12)
    log = small_log(clock, kept, "b")
    overflow(log, 1)
    first = log.read_new()
    assert first.lost == 3
    overflow(log, 12)
    assert kept.events_lost == 3 + 2
    log.told(first)
    assert kept.events_lost == 2
    assert small_log(clock, kept, "c").read_new().lost == 2
