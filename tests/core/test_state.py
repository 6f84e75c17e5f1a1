"""All that the hub knows for one client, together: one log, one deadline queue, both tables."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from emceepee.core.deadlines import DeadlineQueue
from emceepee.core.questions import TRANSITIONS, Question, QuestionKind
from emceepee.core.state import SessionLimits, SessionState
from emceepee.core.tasks import FinalStatus, TaskLimits
from emceepee.core.timers import Timer
from emceepee.errors import ImpossibleTransition
from tests.core.clockwork import STATEFUL, HandClock, numbered

LIMITS = SessionLimits(
    tasks=TaskLimits(default_ttl_ms=5000, max_ttl_ms=10_000, retention_ms=2000),
    max_events=20,
    question_timeout_ms=8000,
)


def test_the_tables_tell_their_news_through_the_sessions_log(clock: HandClock) -> None:
    state = SessionState(clock, LIMITS, ids=numbered("id"))
    task = state.tasks.create("demo", "book", {})
    question = state.questions.add("sampling", "demo", {}, arrival="request", certainty="exact", task_id=task.task_id)
    state.questions.settle(question.request_id, "completed")
    state.tasks.finish(task.task_id, "completed")
    types = [event.type for event in state.events.read_new().events]
    assert types == ["task_created", "sampling_request", "task_completed"]


def test_the_sessions_sleeper_hears_of_an_earlier_deadline_of_either_table(clock: HandClock) -> None:
    heard: list[float | None] = []
    deadlines: DeadlineQueue[Timer] = DeadlineQueue(lambda: heard.append(deadlines.next_deadline()))
    state = SessionState(clock, LIMITS, deadlines)
    state.questions.add("sampling", "demo", {}, arrival="request", certainty="unknown")
    state.tasks.create("demo", "book", {})
    state.tasks.create("demo", "book", {}, ttl_ms=10_000)
    assert heard == [8, 5]
    assert state.deadlines is deadlines


def test_the_ids_of_tasks_and_questions_tell_nothing_of_each_other(clock: HandClock) -> None:
    state = SessionState(clock, LIMITS)
    made = [state.tasks.create("demo", "book", {}).task_id for _ in range(3)]
    made += [
        state.questions.add("sampling", "demo", {}, arrival="request", certainty="unknown").request_id for _ in range(3)
    ]
    assert len({made_id[10:] for made_id in made}) == 6


def test_a_warning_of_the_log_reaches_the_owner(clock: HandClock) -> None:
    warnings: list[str] = []
    state = SessionState(clock, LIMITS, on_warning=lambda name, _facts: warnings.append(name))
    for _ in range(21):
        state.events.append("notification", "demo", {})
    assert warnings == ["event_store_approaching_limit", "event_store_eviction", "event_store_approaching_limit"]


class ASessionsLife(RuleBasedStateMachine):
    """Calls become tasks, tasks ask and end, time passes, somebody reads now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = HandClock()
        self.state = SessionState(self.clock, LIMITS, ids=numbered("id"))
        self.told: list[str] = []
        self.lost = 0
        self.expected: list[str] = []

    def settle(self, question: Question, state: str) -> None:
        found = next(end for end in TRANSITIONS[question.kind] if end == state)
        self.state.questions.settle(question.request_id, found)
        if found == "withdrawn":
            self.expected.append("question_withdrawn")
        elif found in ("rejected", "expired"):
            self.expected.append(f"{question.kind}_expired")
        if question.task_id is not None:
            self.state.tasks.resume_ttl(question.task_id)

    def finish(self, task_id: str, status: FinalStatus) -> None:
        self.state.tasks.finish(task_id, status)
        self.expected.append(f"task_{status}")
        for question in self.state.questions.pending(task_id=task_id):
            self.settle(question, "withdrawn")

    def has_live(self) -> bool:
        return self.state.tasks.live_count > 0

    def has_open(self) -> bool:
        return len(self.state.questions) > 0

    @rule(ttl_ms=st.sampled_from([None, 0, 1000, 99_000]))
    def promote(self, ttl_ms: int | None) -> None:
        self.state.tasks.create("demo", "book", {}, ttl_ms=ttl_ms)
        self.expected.append("task_created")

    @rule(kind=st.sampled_from(get_args(QuestionKind)), data=st.data())
    def ask(self, kind: QuestionKind, data: st.DataObject) -> None:
        task_id = data.draw(st.sampled_from([None, *(task.task_id for task in self.state.tasks.live())]))
        self.state.questions.add(kind, "demo", {}, arrival="request", certainty="exact", task_id=task_id)
        if task_id is not None:
            self.state.tasks.pause_ttl(task_id)
        self.expected.append(f"{kind}_request")

    @precondition(has_open)
    @rule(data=st.data())
    def answer_or_lose_a_question(self, data: st.DataObject) -> None:
        question = data.draw(st.sampled_from(self.state.questions.pending()))
        self.settle(question, data.draw(st.sampled_from(sorted(TRANSITIONS[question.kind]))))

    @precondition(has_live)
    @rule(data=st.data(), status=st.sampled_from(["completed", "failed", "cancelled"]))
    def end_a_task(self, data: st.DataObject, status: FinalStatus) -> None:
        task_id = data.draw(st.sampled_from(self.state.tasks.live())).task_id
        self.finish(task_id, status)
        with pytest.raises(ImpossibleTransition):
            self.state.tasks.finish(task_id, "completed")

    @rule(seconds=st.integers(0, 4))
    def let_time_pass(self, seconds: int) -> None:
        self.clock.elapsed += seconds
        for timer in self.state.deadlines.pop_due(self.clock.monotonic()):
            match timer.kind:
                case "task_ttl":
                    self.finish(timer.key, "expired")
                case "task_retention":
                    self.state.tasks.forget(timer.key)
                case "question":
                    (question,) = (q for q in self.state.questions.pending() if q.request_id == timer.key)
                    self.settle(question, "expired")
                case _:
                    raise AssertionError(f"nobody set {timer}")

    @rule()
    def read(self) -> None:
        delivery = self.state.events.read_new()
        self.told += [event.type for event in delivery.events]
        self.lost += delivery.lost

    @invariant()
    def every_timer_has_an_owner_and_every_owner_a_timer(self) -> None:
        pending = self.state.questions.pending()
        asking = {question.task_id for question in pending}
        timers = [Timer("question", question.request_id) for question in pending]
        for task in self.state.tasks.find(terminal=True):
            if task.is_terminal:
                timers.append(Timer("task_retention", task.task_id))
            elif task.task_id not in asking:
                timers.append(Timer("task_ttl", task.task_id))
        assert [timer for timer in timers if timer not in self.state.deadlines] == []
        assert len(self.state.deadlines) == len(timers)

    @invariant()
    def no_question_outlives_its_task(self) -> None:
        live = {task.task_id for task in self.state.tasks.live()}
        assert {question.task_id for question in self.state.questions.pending()} <= {None, *live}

    def teardown(self) -> None:
        """Everything that happened was told once and in order, or is in the count of what was lost."""
        self.read()
        assert len(self.told) + self.lost == len(self.expected)
        rest = iter(self.expected)
        assert all(told in rest for told in self.told)


TestASessionsLife = ASessionsLife.TestCase
TestASessionsLife.settings = STATEFUL
