"""What becomes of a server's state over a lost connection: the table, row by row."""

from __future__ import annotations

import pytest

from emceepee.core.questions import Arrival, Question
from emceepee.core.reconcile import CallFate, fate_of_call, reconcile, tasks_that_live_on
from emceepee.core.tasks import Task
from tests.requirements import requirement


def task(task_id: str, *, server_task_id: str | None = None) -> Task:
    return Task(
        task_id=task_id,
        origin="promoted",
        server="demo",
        tool="book",
        args={},
        status="working",
        status_message=None,
        created_at=0.0,
        last_updated_at=0.0,
        ttl_ms=1000,
        expires_at=1.0,
        server_task_id=server_task_id,
    )


def question(task_id: str, arrival: Arrival) -> Question:
    return Question(
        request_id=f"question of {task_id}",
        kind="elicitation",
        server="demo",
        received_at=0.0,
        expires_at=1.0,
        params={},
        arrival=arrival,
        certainty="exact",
        task_id=task_id,
    )


@requirement("P001-unit-reconciliation")
@pytest.mark.parametrize(
    ("can_be_resumed", "was_taken", "was_sent_again", "fate"),
    [
        (True, True, True, "goes_on"),
        (True, False, False, "goes_on"),
        (False, True, False, "fails"),
        (False, True, True, "fails"),
        (False, False, False, "is_sent_again"),
        (False, False, True, "fails"),
    ],
)
def test_a_call_goes_on_is_sent_again_or_fails(
    can_be_resumed: bool, was_taken: bool, was_sent_again: bool, fate: CallFate
) -> None:
    found = fate_of_call(can_be_resumed=can_be_resumed, was_taken=was_taken, was_sent_again=was_sent_again)
    assert found == fate


def test_tasks_of_the_server_and_those_that_wait_for_an_answer_live_on() -> None:
    tasks = [task("plain"), task("native", server_task_id="1"), task("asked"), task("blocked"), task("asked by task")]
    questions = [
        question("asked", "input_required"),
        question("blocked", "request"),
        question("asked by task", "receiver_task"),
    ]
    assert tasks_that_live_on(tasks, questions) == ("native", "asked")


def test_only_a_task_that_the_server_says_it_does_not_know_is_lost() -> None:
    found = reconcile(
        lists_before={"tools": {"a": 1}, "prompts": None},
        lists_after={"tools": {"a": 1}, "prompts": ["b", "c"]},
        answers={"1": "known", "2": "finished", "3": "unknown", "4": "silent"},
        questions_kept=5,
    )
    assert found.as_json() == {
        "refreshed": {"tools": 1, "prompts": 2},
        "changed": ["prompts"],
        "tasks_kept": 3,
        "tasks_lost": 1,
        "questions_kept": 5,
    }
