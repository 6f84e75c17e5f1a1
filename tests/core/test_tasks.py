"""The task table: one state machine, one TTL or one retention each, and nothing left behind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, get_args

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from emceepee.core.deadlines import DeadlineQueue
from emceepee.core.tasks import TERMINAL, TRANSITIONS, FinalStatus, Task, TaskLimits, TaskOrigin, TaskStatus, TaskTable
from emceepee.core.timers import Timer
from emceepee.errors import ImpossibleTransition, TaskNotFound
from tests.core.clockwork import START, STATEFUL, HandClock, Recorder, numbered
from tests.requirements import requirement

LIMITS = TaskLimits(default_ttl_ms=300_000, max_ttl_ms=1_800_000, retention_ms=60_000)
FINAL: tuple[FinalStatus, ...] = get_args(FinalStatus)


class Desk:
    """A table with everything that it works on in reach."""

    def __init__(self, clock: HandClock | None = None, limits: TaskLimits = LIMITS) -> None:
        self.clock = clock or HandClock()
        self.deadlines: DeadlineQueue[Timer] = DeadlineQueue()
        self.emit = Recorder()
        self.table = TaskTable(self.clock, numbered("task"), self.deadlines, self.emit, limits)

    def task(self, *, origin: TaskOrigin = "promoted", ttl_ms: int | None = None, server: str = "demo") -> Task:
        return self.table.create(server, "book", {"guests": 2}, origin=origin, ttl_ms=ttl_ms)

    def finished(self, status: FinalStatus, **facts: Any) -> Task:
        return self.table.finish(self.task().task_id, status, **facts)


@pytest.fixture
def desk(clock: HandClock) -> Desk:
    return Desk(clock)


def ttl(task: Task) -> Timer:
    return Timer("task_ttl", task.task_id)


def retention(task: Task) -> Timer:
    return Timer("task_retention", task.task_id)


# Beginning


@requirement("T001-event-task-data")
def test_a_new_task_is_working_and_told(desk: Desk) -> None:
    task = desk.table.create("demo", "book", {"guests": 2}, progress={"progress": 1}, status_message="asked")
    assert task == Task(
        task_id="task-1",
        origin="promoted",
        server="demo",
        tool="book",
        args={"guests": 2},
        status="working",
        status_message="asked",
        created_at=START,
        last_updated_at=START,
        ttl_ms=300_000,
        expires_at=START + 300,
        progress={"progress": 1},
    )
    assert desk.emit.told == [("task_created", "demo", {"task_id": "task-1", "tool": "book", "ttl_ms": 300_000})]
    assert (desk.table.get("task-1"), desk.table.live(), len(desk.table)) == (task, [task], 1)


@requirement("T000-task-fields")
def test_a_task_reads_the_same_everywhere_and_keeps_the_servers_own_id_to_itself(desk: Desk) -> None:
    task = replace(desk.task(), server_task_id="the server's", poll_interval_ms=500)
    assert task.as_json() == {
        "task_id": "task-1",
        "origin": "promoted",
        "server": "demo",
        "tool": "book",
        "status": "working",
        "status_message": None,
        "created_at": "2027-01-15T08:00:00.000Z",
        "last_updated_at": "2027-01-15T08:00:00.000Z",
        "ttl_ms": 300_000,
        "progress": None,
    }


@requirement("T000-ttl", "P001-unit-tasks-ttl")
@pytest.mark.parametrize(
    ("wished", "given"), [(None, 300_000), (1, 1), (0, 0), (1_800_000, 1_800_000), (1_800_001, 1_800_000)]
)
def test_a_ttl_is_the_wished_one_or_the_default_and_capped(wished: int | None, given: int, desk: Desk) -> None:
    task = desk.task(ttl_ms=wished)
    assert (task.ttl_ms, desk.deadlines.get(ttl(task))) == (given, given / 1000)


def test_a_default_above_the_cap_is_capped_too() -> None:
    assert TaskLimits(default_ttl_ms=100, max_ttl_ms=50).ttl_ms(None) == 50


# Ending


@requirement("T001-event-task-data", "P001-unit-tasks-transitions")
@pytest.mark.parametrize(
    ("status", "facts", "told"),
    [
        ("completed", {"result": {"content": []}}, {}),
        ("failed", {"error": "Server disconnected"}, {"error": "Server disconnected"}),
        ("cancelled", {}, {}),
        ("expired", {}, {"ttl_ms": 300_000}),
    ],
)
def test_a_finished_task_holds_its_outcome_and_is_told(
    desk: Desk, status: FinalStatus, facts: dict[str, Any], told: dict[str, Any]
) -> None:
    task = desk.task()
    desk.clock.elapsed = 2.0
    desk.emit.take()
    finished = desk.table.finish(task.task_id, status, **facts)
    assert finished == replace(task, status=status, last_updated_at=START + 2, **facts)
    assert desk.table.get(task.task_id) == finished
    assert desk.emit.told == [(f"task_{status}", "demo", {"task_id": "task-1", "tool": "book", **told})]
    assert (desk.table.live(), desk.table.live_count) == ([], 0)


@requirement("T000-task-completed")
def test_an_iserror_result_is_a_completed_task(desk: Desk) -> None:
    result = {"content": [{"type": "text", "text": "no table free"}], "isError": True}
    assert desk.finished("completed", result=result).result == result


@requirement("T000-task-states", "P000-unit-transitions", "P001-unit-tasks-transitions")
@pytest.mark.parametrize("second", FINAL)
@pytest.mark.parametrize("first", FINAL)
def test_a_terminal_task_never_changes(desk: Desk, first: FinalStatus, second: FinalStatus) -> None:
    task = desk.finished(first)
    before = desk.deadlines.get(retention(task))
    desk.clock.elapsed = 3.0
    desk.emit.take()
    with pytest.raises(ImpossibleTransition) as refused:
        desk.table.finish(task.task_id, second, result={"late": True}, error="late")
    assert (refused.value.subject, refused.value.state, refused.value.target) == ("task task-1", first, second)
    assert desk.table.get(task.task_id) == task
    assert (desk.deadlines.get(retention(task)), len(desk.deadlines), desk.emit.told) == (before, 1, [])


def test_a_result_after_expiry_is_refused(desk: Desk) -> None:
    task = desk.finished("expired")
    with pytest.raises(ImpossibleTransition):
        desk.table.finish(task.task_id, "completed", result={"content": []})
    assert desk.table.get(task.task_id) == task


def test_a_completion_that_loses_the_race_against_cancel_is_refused(desk: Desk) -> None:
    task = desk.finished("cancelled")
    with pytest.raises(ImpossibleTransition):
        desk.table.finish(task.task_id, "completed", result={"content": []})
    assert desk.table.get(task.task_id).status == "cancelled"


def test_a_cancel_that_loses_the_race_against_completion_is_refused(desk: Desk) -> None:
    task = desk.finished("completed", result={"content": []})
    with pytest.raises(ImpossibleTransition):
        desk.table.finish(task.task_id, "cancelled")
    assert desk.table.get(task.task_id).result == {"content": []}


@pytest.mark.parametrize("status", FINAL)
def test_news_of_a_terminal_task_is_refused(desk: Desk, status: FinalStatus) -> None:
    task = desk.finished(status)
    news: list[dict[str, Any]] = [{"progress": {"progress": 1}}, {"status": "working"}, {"status_message": "alive"}]
    for facts in news:
        with pytest.raises(ImpossibleTransition):
            desk.table.update(task.task_id, **facts)
    assert desk.table.get(task.task_id) == task


def test_a_task_that_nobody_knows_is_not_found(desk: Desk) -> None:
    for action in (desk.table.get, desk.table.update, desk.table.forget):
        with pytest.raises(TaskNotFound) as missing:
            action("task-9")
        assert (missing.value.code, missing.value.task_id) == ("TASK_NOT_FOUND", "task-9")
    with pytest.raises(TaskNotFound):
        desk.table.finish("task-9", "completed")


# Going on


def test_news_of_a_task_that_goes_on_is_kept_and_not_told(desk: Desk) -> None:
    task = desk.task()
    desk.emit.take()
    desk.clock.elapsed = 1.0
    updated = desk.table.update(task.task_id, progress={"progress": 3}, status_message="half way")
    assert updated == replace(task, progress={"progress": 3}, status_message="half way", last_updated_at=START + 1)
    assert (desk.table.get(task.task_id), desk.emit.told) == (updated, [])


def test_news_that_leaves_something_out_leaves_it_as_it_was(desk: Desk) -> None:
    task = desk.task()
    desk.table.update(task.task_id, progress={"progress": 3}, status_message="half way")
    desk.clock.elapsed = 1.0
    again = desk.table.update(task.task_id)
    assert again == replace(task, progress={"progress": 3}, status_message="half way", last_updated_at=START + 1)


def test_a_native_task_goes_to_input_required_and_back_and_ends_from_either(desk: Desk) -> None:
    steps: list[TaskStatus] = ["input_required", "working", "input_required", "input_required"]
    for status in FINAL:
        task = desk.task(origin="native")
        assert [desk.table.update(task.task_id, status=step).status for step in steps] == steps
        assert desk.table.finish(task.task_id, status).status == status


def test_a_promoted_task_never_becomes_input_required(desk: Desk) -> None:
    task = desk.task(origin="promoted")
    with pytest.raises(ImpossibleTransition):
        desk.table.update(task.task_id, status="input_required")


@pytest.mark.parametrize("status", FINAL)
def test_news_cannot_end_a_task(desk: Desk, status: TaskStatus) -> None:
    task = desk.task()
    with pytest.raises(ImpossibleTransition):
        desk.table.update(task.task_id, status=status)
    assert desk.table.get(task.task_id) == task


@requirement("T000-task-states")
def test_the_transition_table_has_every_status_and_no_way_out_of_a_terminal_one() -> None:
    assert set(TRANSITIONS) == set(get_args(TaskStatus))
    assert {status for status, targets in TRANSITIONS.items() if not targets} == TERMINAL == set(FINAL)
    assert TRANSITIONS["working"] == TERMINAL | {"input_required"}
    assert TRANSITIONS["input_required"] == TERMINAL | {"working"}


# Finding


@requirement("T001-task-table")
def test_tasks_are_found_by_server_and_status_oldest_first(desk: Desk) -> None:
    one, two, three = desk.task(server="a"), desk.task(server="b"), desk.task(server="a")
    done = desk.table.finish(one.task_id, "completed")
    assert desk.table.live() == [two, three]
    assert desk.table.live("a") == [three]
    assert desk.table.find() == [two, three]
    assert desk.table.find("a", terminal=True) == [done, three]
    assert desk.table.find(statuses=["completed"]) == [done]
    assert desk.table.find("b", ["completed", "working"]) == [two]
    assert desk.table.find("c", terminal=True) == []


# Time to live


@requirement("T000-ttl-from-creation")
def test_the_ttl_runs_from_creation_in_time_that_cannot_step_back(desk: Desk) -> None:
    desk.clock.elapsed = 100.0
    task = desk.task(ttl_ms=5000)
    desk.clock.wall_error = -3600.0
    desk.clock.elapsed = 103.0
    assert (desk.table.remaining_ttl(task.task_id), desk.deadlines.get(ttl(task))) == (2, 105)


@requirement("T000-ttl-from-creation")
def test_news_of_a_task_does_not_prolong_it(desk: Desk) -> None:
    task = desk.task(ttl_ms=5000)
    desk.clock.elapsed = 4.0
    desk.table.update(task.task_id, progress={"progress": 1})
    assert desk.deadlines.get(ttl(task)) == 5


def test_the_remaining_ttl_is_never_negative(desk: Desk) -> None:
    task = desk.task(ttl_ms=5000)
    desk.clock.elapsed = 60.0
    assert desk.table.remaining_ttl(task.task_id) == 0


@requirement("T000-ttl-paused")
def test_the_ttl_stands_still_while_a_question_of_the_task_is_open(desk: Desk) -> None:
    task = desk.task(ttl_ms=5000)
    desk.clock.elapsed = 2.0
    desk.table.pause_ttl(task.task_id)
    desk.clock.elapsed = 1000.0
    assert (desk.table.remaining_ttl(task.task_id), desk.deadlines.next_deadline()) == (3, None)
    desk.table.resume_ttl(task.task_id)
    assert (desk.table.remaining_ttl(task.task_id), desk.deadlines.get(ttl(task))) == (3, 1003)


def test_the_ttl_runs_on_after_the_last_of_several_questions(desk: Desk) -> None:
    task = desk.task(ttl_ms=5000)
    desk.table.pause_ttl(task.task_id)
    desk.clock.elapsed = 2.0
    desk.table.pause_ttl(task.task_id)
    desk.table.resume_ttl(task.task_id)
    assert len(desk.deadlines) == 0
    desk.clock.elapsed = 4.0
    desk.table.resume_ttl(task.task_id)
    assert desk.deadlines.get(ttl(task)) == 9


def test_resuming_a_ttl_that_runs_changes_nothing(desk: Desk) -> None:
    task = desk.task(ttl_ms=5000)
    desk.clock.elapsed = 2.0
    desk.table.resume_ttl(task.task_id)
    assert desk.deadlines.get(ttl(task)) == 5


@pytest.mark.parametrize("status", FINAL)
def test_a_task_that_ends_with_an_open_question_leaves_no_ttl_behind(desk: Desk, status: FinalStatus) -> None:
    task = desk.task()
    desk.table.pause_ttl(task.task_id)
    desk.table.finish(task.task_id, status)
    desk.table.resume_ttl(task.task_id)
    assert (ttl(task) in desk.deadlines, len(desk.deadlines), desk.table.remaining_ttl(task.task_id)) == (False, 1, 0)


def test_pausing_a_task_that_has_ended_changes_nothing(desk: Desk) -> None:
    task = desk.finished("completed")
    desk.table.pause_ttl(task.task_id)
    desk.table.pause_ttl("task-9")
    desk.table.resume_ttl(task.task_id)
    assert (len(desk.deadlines), retention(task) in desk.deadlines) == (1, True)


# Retention


@requirement("T000-retention")
@pytest.mark.parametrize("status", FINAL)
def test_a_finished_task_is_kept_for_the_retention_time(desk: Desk, status: FinalStatus) -> None:
    desk.clock.elapsed = 10.0
    task = desk.finished(status)
    assert (len(desk.deadlines), desk.deadlines.get(retention(task))) == (1, 70)


@requirement("T001-task-timers", "P001-unit-tasks-timers")
def test_a_forgotten_task_leaves_nothing_behind(desk: Desk) -> None:
    task = desk.finished("completed")
    desk.emit.take()
    desk.table.forget(task.task_id)
    assert (len(desk.table), desk.table.find(terminal=True), len(desk.deadlines), desk.emit.told) == (0, [], 0, [])
    with pytest.raises(TaskNotFound):
        desk.table.get(task.task_id)


def test_a_live_task_is_not_forgotten(desk: Desk) -> None:
    task = desk.task()
    with pytest.raises(ImpossibleTransition):
        desk.table.forget(task.task_id)
    assert (desk.table.live(), ttl(task) in desk.deadlines) == ([task], True)


@dataclass
class Expected:
    """What the machine below knows of one task."""

    task: Task
    expires: float
    """When the TTL ends, or what is left of it while questions hold it."""
    questions: int = 0
    forgotten_at: float | None = None

    @property
    def is_live(self) -> bool:
        return self.forgotten_at is None


class TasksWithoutLeaks(RuleBasedStateMachine):
    """The table beside a dict of expectations, with the timers fired as a session fires them: sometimes late."""

    eighths = st.integers(0, 40)
    """Times are multiples of 125 ms, which floats hold exactly."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(limits=TaskLimits(default_ttl_ms=2000, max_ttl_ms=4000, retention_ms=1500))
        self.table = self.desk.table
        self.known: dict[str, Expected] = {}
        self.gone: list[str] = []

    @property
    def now(self) -> float:
        return self.desk.clock.monotonic()

    def one_of(self, data: st.DataObject, *, live: bool | None = None) -> Expected:
        found = [expected for expected in self.known.values() if live is None or expected.is_live == live]
        return data.draw(st.sampled_from(found))

    def has_live(self) -> bool:
        return any(expected.is_live for expected in self.known.values())

    def has_terminal(self) -> bool:
        return any(not expected.is_live for expected in self.known.values())

    def ended(self, expected: Expected, status: FinalStatus, **facts: Any) -> None:
        expected.task = replace(
            expected.task,
            status=status,
            status_message=None,
            ttl_left=None,
            last_updated_at=START + self.now,
            **facts,
        )
        expected.questions = 0
        expected.forgotten_at = self.now + 1.5
        data: dict[str, Any] = {"task_id": expected.task.task_id, "tool": expected.task.tool}
        if status == "expired":
            data["ttl_ms"] = expected.task.ttl_ms
        if facts.get("error") is not None:
            data["error"] = facts["error"]
        assert self.desk.emit.take() == [(f"task_{status}", expected.task.server, data)]

    @rule(
        origin=st.sampled_from(get_args(TaskOrigin)),
        server=st.sampled_from(["a", "b"]),
        wished=st.none() | eighths.map(lambda eighths: eighths * 125),
    )
    def create(self, origin: TaskOrigin, server: str, wished: int | None) -> None:
        task = self.desk.task(origin=origin, server=server, ttl_ms=wished)
        ttl_ms = min(2000 if wished is None else wished, 4000)
        now = START + self.now
        expires_at = now + ttl_ms / 1000
        expected = Task(
            task.task_id, origin, server, "book", {"guests": 2}, "working", None, now, now, ttl_ms, expires_at
        )
        assert task == expected
        assert task.task_id not in self.known
        self.known[task.task_id] = Expected(task, self.now + ttl_ms / 1000)
        told = {"task_id": task.task_id, "tool": "book", "ttl_ms": ttl_ms}
        assert self.desk.emit.take() == [("task_created", server, told)]

    @precondition(has_live)
    @rule(data=st.data(), message=st.none() | st.text(max_size=3), progress=st.none() | st.just({"progress": 1}))
    def update(self, data: st.DataObject, message: str | None, progress: dict[str, int] | None) -> None:
        expected = self.one_of(data, live=True)
        task = expected.task
        statuses: list[TaskStatus] = ["working", "input_required"] if task.origin == "native" else ["working"]
        status = data.draw(st.sampled_from(statuses))
        expected.task = replace(
            task,
            status=status,
            status_message=task.status_message if message is None else message,
            progress=task.progress if progress is None else progress,
            last_updated_at=START + self.now,
        )
        updated = self.table.update(task.task_id, status=status, status_message=message, progress=progress)
        assert updated == expected.task

    @precondition(has_live)
    @rule(data=st.data(), status=st.sampled_from(FINAL), error=st.none() | st.just("no"))
    def finish(self, data: st.DataObject, status: FinalStatus, error: str | None) -> None:
        expected = self.one_of(data, live=True)
        result: dict[str, Any] | None = {"content": []} if status == "completed" else None
        finished = self.table.finish(expected.task.task_id, status, result=result, error=error)
        self.ended(expected, status, result=result, error=error)
        assert finished == expected.task

    @precondition(has_terminal)
    @rule(data=st.data(), status=st.sampled_from(FINAL))
    def finish_or_update_what_is_finished(self, data: st.DataObject, status: FinalStatus) -> None:
        task = self.one_of(data, live=False).task
        with pytest.raises(ImpossibleTransition):
            self.table.finish(task.task_id, status, result={}, error="late")
        for news in (None, "working", "input_required", status):
            with pytest.raises(ImpossibleTransition):
                self.table.update(task.task_id, status=news, status_message="late")

    @precondition(has_live)
    @rule(data=st.data(), status=st.sampled_from(FINAL))
    def end_or_forget_what_is_live_by_the_wrong_door(self, data: st.DataObject, status: FinalStatus) -> None:
        task = self.one_of(data, live=True).task
        with pytest.raises(ImpossibleTransition):
            self.table.update(task.task_id, status=status)
        with pytest.raises(ImpossibleTransition):
            self.table.forget(task.task_id)

    @precondition(lambda self: bool(self.known))
    @rule(data=st.data())
    def open_a_question(self, data: st.DataObject) -> None:
        expected = self.one_of(data)
        self.table.pause_ttl(expected.task.task_id)
        if expected.is_live:
            if expected.questions == 0:
                expected.expires = max(0.0, expected.expires - self.now)
                expected.task = replace(expected.task, ttl_left=expected.expires, last_updated_at=START + self.now)
            expected.questions += 1

    @precondition(lambda self: bool(self.known))
    @rule(data=st.data())
    def settle_a_question(self, data: st.DataObject) -> None:
        expected = self.one_of(data)
        self.table.resume_ttl(expected.task.task_id)
        if expected.questions:
            expected.questions -= 1
            if expected.questions == 0:
                expected.expires += self.now
                expected.task = replace(
                    expected.task,
                    ttl_left=None,
                    expires_at=START + expected.expires,
                    last_updated_at=START + self.now,
                )

    @precondition(has_terminal)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        task_id = self.one_of(data, live=False).task.task_id
        self.table.forget(task_id)
        del self.known[task_id]
        self.gone.append(task_id)

    @rule(eighths=eighths)
    def let_time_pass(self, eighths: int) -> None:
        self.desk.clock.elapsed += eighths / 8

    @rule()
    def fire_what_is_due(self) -> None:
        for timer in self.desk.deadlines.pop_due(self.now):
            expected = self.known[timer.key]
            if timer.kind == "task_ttl":
                assert (expected.is_live, expected.questions) == (True, 0)
                assert expected.expires <= self.now
                self.table.finish(timer.key, "expired")
                self.ended(expected, "expired")
            else:
                assert expected.forgotten_at is not None
                assert expected.forgotten_at <= self.now
                self.table.forget(timer.key)
                del self.known[timer.key]
                self.gone.append(timer.key)

    @invariant()
    def every_task_is_as_expected(self) -> None:
        tasks = [expected.task for expected in self.known.values()]
        assert self.table.find(terminal=True) == tasks
        assert self.table.live() == self.table.find() == [task for task in tasks if not task.is_terminal]
        assert (len(self.table), self.table.live_count) == (len(tasks), len(self.table.live()))

    @invariant()
    def every_task_has_one_timer_or_an_open_question(self) -> None:
        timers = {}
        for task_id, expected in self.known.items():
            if expected.forgotten_at is not None:
                timers[Timer("task_retention", task_id)] = expected.forgotten_at
            elif expected.questions == 0:
                timers[Timer("task_ttl", task_id)] = expected.expires
        assert {timer: self.desk.deadlines.get(timer) for timer in timers} == timers
        assert len(self.desk.deadlines) == len(timers)

    @invariant()
    def the_remaining_ttl_is_known(self) -> None:
        for task_id, expected in self.known.items():
            left = expected.expires if expected.questions else expected.expires - self.now
            assert self.table.remaining_ttl(task_id) == (max(0.0, left) if expected.is_live else 0)

    @invariant()
    def nothing_is_left_of_what_was_forgotten(self) -> None:
        for task_id in self.gone:
            assert self.table.remaining_ttl(task_id) == 0
            with pytest.raises(TaskNotFound):
                self.table.get(task_id)

    @invariant()
    def nothing_was_told_twice(self) -> None:
        assert self.desk.emit.told == []

    def teardown(self) -> None:
        """Ending and forgetting everything empties the table and the queue."""
        for task_id, expected in self.known.items():
            if expected.is_live:
                self.table.finish(task_id, "cancelled")
            self.table.forget(task_id)
        assert (len(self.table), self.table.live_count, len(self.desk.deadlines)) == (0, 0, 0)


TestTasksWithoutLeaks = TasksWithoutLeaks.TestCase
TestTasksWithoutLeaks.settings = STATEFUL
