"""The question table: each question settles once, and takes its timer with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from emceepee.core.deadlines import DeadlineQueue
from emceepee.core.events import EventType
from emceepee.core.questions import (
    REMEMBERED,
    TRANSITIONS,
    Belonging,
    Question,
    QuestionKind,
    QuestionState,
    QuestionTable,
    belonging,
)
from emceepee.core.timers import Timer
from emceepee.errors import ImpossibleTransition, RequestNotFound
from tests.core.clockwork import START, STATEFUL, HandClock, Recorder, numbered
from tests.requirements import requirement

KINDS: tuple[QuestionKind, ...] = get_args(QuestionKind)
STATES: tuple[QuestionState, ...] = get_args(QuestionState)
ENDS = [(kind, state) for kind in KINDS for state in sorted(TRANSITIONS[kind])]
NO_ENDS = [(kind, state) for kind in KINDS for state in STATES if state not in TRANSITIONS[kind]]
PARAMS: Mapping[str, Any] = {"message": "How many guests?", "requestedSchema": {"type": "object"}}


class Desk:
    """A table with everything that it works on in reach."""

    def __init__(self, clock: HandClock | None = None) -> None:
        self.clock = clock or HandClock()
        self.deadlines: DeadlineQueue[Timer] = DeadlineQueue()
        self.emit = Recorder()
        self.table = QuestionTable(self.clock, numbered("question"), self.deadlines, self.emit, timeout_ms=60_000)

    def question(
        self, kind: QuestionKind = "elicitation", *, server: str = "demo", task_id: str | None = None
    ) -> Question:
        return self.table.add(kind, server, PARAMS, arrival="request", certainty="exact", task_id=task_id)


@pytest.fixture
def desk(clock: HandClock) -> Desk:
    return Desk(clock)


def told_of(kind: QuestionKind, state: QuestionState) -> EventType | None:
    """The event that tells how a question ended; an answered one is not told."""
    if state in ("rejected", "expired"):
        return "elicitation_expired" if kind == "elicitation" else "sampling_expired"
    return "question_withdrawn" if state == "withdrawn" else None


@requirement("T001-question-told", "T001-event-question-data", "P001-unit-questions-timeout")
@pytest.mark.parametrize("kind", KINDS)
def test_a_question_is_parked_told_and_timed(desk: Desk, kind: QuestionKind) -> None:
    desk.clock.elapsed = 5.0
    question = desk.question(kind, task_id="task-1")
    assert question == Question(
        request_id="question-1",
        kind=kind,
        server="demo",
        received_at=START + 5,
        expires_at=START + 65,
        params=PARAMS,
        arrival="request",
        certainty="exact",
        task_id="task-1",
    )
    as_json = {
        "request_id": "question-1",
        "kind": kind,
        "server": "demo",
        "received_at": "2027-01-15T08:00:05.000Z",
        "expires_at": "2027-01-15T08:01:05.000Z",
        "task_id": "task-1",
        "certainty": "exact",
        "message": "How many guests?",
        "params": PARAMS,
    }
    assert question.as_json() == as_json
    assert desk.emit.told == [(f"{kind}_request", "demo", as_json)]
    assert (desk.table.get("question-1", kind), len(desk.table)) == (question, 1)
    assert (desk.deadlines.get(Timer("question", "question-1")), len(desk.deadlines)) == (65, 1)


def test_a_sampling_request_has_no_message_of_its_own(desk: Desk) -> None:
    params = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 10}
    question = desk.table.add("sampling", "demo", params, arrival="request", certainty="unknown")
    assert (question.as_json()["message"], question.as_json()["task_id"]) == (None, None)


def test_the_timeout_is_reckoned_in_time_that_cannot_step_back(desk: Desk) -> None:
    desk.clock.wall_error = -3600.0
    question = desk.question()
    desk.clock.wall_error = 3600.0
    assert desk.deadlines.pop_due(59.999) == []
    assert desk.deadlines.pop_due(60) == [Timer("question", question.request_id)]


@requirement(
    "T001-question-timers",
    "P001-unit-questions-respond",
    "P001-unit-questions-reject",
    "P001-unit-questions-timers",
)
@pytest.mark.parametrize(("kind", "state"), ENDS)
def test_a_settled_question_is_off_the_list_and_leaves_no_timer(
    desk: Desk, kind: QuestionKind, state: QuestionState
) -> None:
    question = desk.question(kind)
    desk.emit.take()
    assert desk.table.settle(question.request_id, state, reason="because") == question
    assert (len(desk.table), desk.table.pending(), len(desk.deadlines)) == (0, [], 0)
    event = told_of(kind, state)
    told = {"request_id": question.request_id, "reason": "because"}
    assert desk.emit.told == ([] if event is None else [(event, "demo", told)])


@requirement("T001-event-question-data")
@pytest.mark.parametrize("state", ["rejected", "expired", "withdrawn"])
def test_a_question_that_nobody_answered_is_told_with_its_state_where_there_is_no_other_reason(
    desk: Desk, state: QuestionState
) -> None:
    question = desk.question()
    desk.table.settle(question.request_id, state)
    assert desk.emit.told[-1][2] == {"request_id": question.request_id, "reason": state}


@requirement("T000-question-states")
@pytest.mark.parametrize(("kind", "state"), NO_ENDS)
def test_a_question_does_not_end_in_a_state_of_the_other_kind(
    desk: Desk, kind: QuestionKind, state: QuestionState
) -> None:
    question = desk.question(kind)
    desk.emit.take()
    with pytest.raises(ImpossibleTransition) as refused:
        desk.table.settle(question.request_id, state)
    assert (refused.value.state, refused.value.target) == ("pending", state)
    assert (desk.table.pending(), len(desk.deadlines), desk.emit.told) == ([question], 1, [])


@requirement("T000-question-once")
@pytest.mark.parametrize(("kind", "state"), ENDS)
def test_an_answer_after_the_end_is_refused_and_told_what_became_of_the_question(
    desk: Desk, kind: QuestionKind, state: QuestionState
) -> None:
    question = desk.question(kind)
    desk.table.settle(question.request_id, state)
    desk.emit.take()
    for second in sorted(TRANSITIONS[kind]):
        with pytest.raises(ImpossibleTransition) as refused:
            desk.table.settle(question.request_id, second)
        assert (refused.value.state, refused.value.target) == (state, second)
    with pytest.raises(RequestNotFound) as missing:
        desk.table.get(question.request_id, kind)
    assert (missing.value.code, missing.value.settled) == ("REQUEST_NOT_FOUND", state)
    assert (desk.emit.told, len(desk.deadlines)) == ([], 0)


def test_the_timer_of_an_answered_question_never_fires(desk: Desk) -> None:
    question = desk.question()
    desk.clock.elapsed = 60.0
    desk.table.settle(question.request_id, "accepted")
    assert desk.deadlines.pop_due(desk.clock.monotonic()) == []


def test_an_unknown_question_is_not_found_and_cannot_be_settled(desk: Desk) -> None:
    with pytest.raises(RequestNotFound) as missing:
        desk.table.get("question-9", "sampling")
    assert (missing.value.code, missing.value.request_id, missing.value.settled) == (
        "REQUEST_NOT_FOUND",
        "question-9",
        None,
    )
    with pytest.raises(ImpossibleTransition) as refused:
        desk.table.settle("question-9", "completed")
    assert refused.value.state == "unknown"


def test_a_question_is_not_found_under_the_other_kind(desk: Desk) -> None:
    question = desk.question("sampling")
    with pytest.raises(RequestNotFound):
        desk.table.get(question.request_id, "elicitation")


def test_the_memory_of_settled_questions_is_bounded(desk: Desk) -> None:
    questions = [desk.question("sampling") for _ in range(REMEMBERED + 1)]
    for question in questions:
        desk.table.settle(question.request_id, "completed")
    ends = []
    for question in questions:
        with pytest.raises(RequestNotFound) as missing:
            desk.table.get(question.request_id, "sampling")
        ends.append(missing.value.settled)
    assert ends == [None] + ["completed"] * REMEMBERED


def test_open_questions_are_listed_by_kind_server_and_task_oldest_first(desk: Desk) -> None:
    one = desk.question("elicitation", server="a", task_id="task-1")
    two = desk.question("sampling", server="a")
    three = desk.question("elicitation", server="b", task_id="task-2")
    assert desk.table.pending() == [one, two, three]
    assert desk.table.pending("elicitation") == [one, three]
    assert desk.table.pending(server="a") == [one, two]
    assert desk.table.pending("sampling", server="b") == []
    assert desk.table.pending(task_id="task-2") == [three]


def test_the_question_of_a_call_that_became_a_task_names_the_task(desk: Desk) -> None:
    one, two = desk.question(), desk.question()
    assigned = desk.table.assign(one.request_id, "task-1")
    assert assigned == replace(one, task_id="task-1")
    assert desk.table.pending() == [assigned, two]
    assert desk.table.settle(one.request_id, "accepted") == assigned


def test_a_settled_question_cannot_be_given_to_a_task(desk: Desk) -> None:
    question = desk.question()
    desk.table.settle(question.request_id, "accepted")
    with pytest.raises(ImpossibleTransition):
        desk.table.assign(question.request_id, "task-1")


@requirement("T000-question-states")
def test_every_end_of_each_kind_is_in_the_transition_table() -> None:
    lost = {"rejected", "expired", "withdrawn"}
    assert set(TRANSITIONS) == set(KINDS)
    assert TRANSITIONS["elicitation"] == lost | {"accepted", "declined", "cancelled"}
    assert TRANSITIONS["sampling"] == lost | {"completed"}


@requirement("T000-question-belongs")
@pytest.mark.parametrize(
    ("exact", "in_flight", "expected"),
    [
        ("a", ["a", "b"], Belonging("a", "exact")),
        ("a", [], Belonging("a", "exact")),
        (None, ["a"], Belonging("a", "sole")),
        (None, ["a", "b"], Belonging(None, "unknown")),
        (None, [], Belonging(None, "unknown")),
        (0, [1, 2], Belonging(0, "exact")),
    ],
)
def test_a_question_belongs_to_its_own_call_or_to_the_only_one(
    exact: object, in_flight: list[object], expected: Belonging[object]
) -> None:
    assert belonging(exact, in_flight) == expected


class QuestionsSettledOnce(RuleBasedStateMachine):
    """The table beside a dict of open questions and a dict of ends, with timers fired as a session fires them."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk()
        self.table = self.desk.table
        self.open: dict[str, Question] = {}
        self.ends: dict[str, tuple[Question, QuestionState]] = {}

    def settled(self, request_id: str, state: QuestionState, reason: str) -> None:
        question = self.open.pop(request_id)
        assert request_id not in self.ends
        self.ends[request_id] = (question, state)
        event = told_of(question.kind, state)
        told = {"request_id": request_id, "reason": reason}
        assert self.desk.emit.take() == ([] if event is None else [(event, question.server, told)])

    @rule(
        kind=st.sampled_from(KINDS),
        server=st.sampled_from(["a", "b"]),
        task_id=st.sampled_from([None, "task-1", "task-2"]),
    )
    def add(self, kind: QuestionKind, server: str, task_id: str | None) -> None:
        question = self.desk.question(kind, server=server, task_id=task_id)
        assert question.request_id not in self.open
        assert question.request_id not in self.ends
        self.open[question.request_id] = question
        assert self.desk.emit.take() == [(f"{kind}_request", server, question.as_json())]

    @precondition(lambda self: bool(self.open))
    @rule(data=st.data(), state=st.sampled_from(STATES), reason=st.sampled_from(["gone", "late"]))
    def settle(self, data: st.DataObject, state: QuestionState, reason: str) -> None:
        question = self.open[data.draw(st.sampled_from(list(self.open)))]
        if state in TRANSITIONS[question.kind]:
            assert self.table.settle(question.request_id, state, reason=reason) == question
            self.settled(question.request_id, state, reason)
        else:
            with pytest.raises(ImpossibleTransition):
                self.table.settle(question.request_id, state, reason=reason)

    @precondition(lambda self: bool(self.ends))
    @rule(data=st.data(), state=st.sampled_from(STATES))
    def settle_again(self, data: st.DataObject, state: QuestionState) -> None:
        request_id = data.draw(st.sampled_from(list(self.ends)))
        with pytest.raises(ImpossibleTransition) as refused:
            self.table.settle(request_id, state)
        assert refused.value.state == self.ends[request_id][1]

    @precondition(lambda self: bool(self.open))
    @rule(data=st.data(), task_id=st.sampled_from(["task-1", "task-2"]))
    def assign(self, data: st.DataObject, task_id: str) -> None:
        request_id = data.draw(st.sampled_from(list(self.open)))
        self.open[request_id] = replace(self.open[request_id], task_id=task_id)
        assert self.table.assign(request_id, task_id) == self.open[request_id]

    @rule(server=st.sampled_from(["a", "b"]))
    def lose_a_server(self, server: str) -> None:
        for question in self.table.pending(server=server):
            self.table.settle(question.request_id, "rejected", reason="Server disconnected")
            self.settled(question.request_id, "rejected", "Server disconnected")

    @rule(seconds=st.integers(0, 40))
    def let_time_pass(self, seconds: int) -> None:
        self.desk.clock.elapsed += seconds

    @rule()
    def fire_what_is_due(self) -> None:
        now = self.desk.clock.now()
        overdue = [question.request_id for question in self.open.values() if question.expires_at <= now]
        assert [timer.key for timer in self.desk.deadlines.pop_due(self.desk.clock.monotonic())] == overdue
        for request_id in overdue:
            self.table.settle(request_id, "expired", reason="nobody answered")
            self.settled(request_id, "expired", "nobody answered")

    @invariant()
    def what_is_open_is_listed(self) -> None:
        assert self.table.pending() == list(self.open.values())
        assert len(self.table) == len(self.open)
        for request_id, question in self.open.items():
            assert self.table.get(request_id, question.kind) == question

    @invariant()
    def what_is_settled_stays_settled(self) -> None:
        for request_id, (question, state) in self.ends.items():
            with pytest.raises(RequestNotFound) as missing:
                self.table.get(request_id, question.kind)
            assert missing.value.settled == state

    @invariant()
    def each_open_question_has_one_timer_and_nothing_else_has(self) -> None:
        timers = {Timer("question", key): question.expires_at - START for key, question in self.open.items()}
        assert {timer: self.desk.deadlines.get(timer) for timer in timers} == timers
        assert len(self.desk.deadlines) == len(timers)

    @invariant()
    def nothing_was_told_twice(self) -> None:
        assert self.desk.emit.told == []


TestQuestionsSettledOnce = QuestionsSettledOnce.TestCase
TestQuestionsSettledOnce.settings = STATEFUL
