"""What becomes of a server's state when its connection is lost, and when it is back.

One table, as two pure functions: from what is held, and what the server answered, to decisions that the shell applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from emceepee.core.questions import Question
from emceepee.core.tasks import Task

__all__ = ["LostDecisions", "Reconciled", "ServerAnswer", "decide_on_loss", "reconcile"]

ServerAnswer: TypeAlias = Literal["known", "finished", "unknown"]
"""What `tasks/get` says of a task after a reconnect."""


@dataclass(frozen=True, slots=True)
class LostDecisions:
    """Ids of tasks and questions, by what becomes of them."""

    failed_tasks: tuple[str, ...]
    kept_tasks: tuple[str, ...]
    rejected_questions: tuple[str, ...]
    kept_questions: tuple[str, ...]


def decide_on_loss(tasks: Iterable[Task], questions: Iterable[Question]) -> LostDecisions:
    """The connection is gone: nobody can ask the server about plain calls, but about its own tasks we can, later.

    A call that waits for the answer to a question which does not live on the connection is as good as asleep: it lives.
    """
    tasks, questions = list(tasks), list(questions)
    kept_questions = [question for question in questions if question.survives]
    asleep = {question.task_id for question in kept_questions}
    kept_tasks = [task for task in tasks if task.server_task_id is not None or task.task_id in asleep]
    kept = {task.task_id for task in kept_tasks}
    return LostDecisions(
        failed_tasks=tuple(task.task_id for task in tasks if task.task_id not in kept),
        kept_tasks=tuple(task.task_id for task in kept_tasks),
        rejected_questions=tuple(question.request_id for question in questions if not question.survives),
        kept_questions=tuple(question.request_id for question in kept_questions),
    )


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What a reconnect found, as it is told in `server_reconnected`."""

    refreshed: Mapping[str, int]
    changed: tuple[str, ...]
    tasks_kept: int
    tasks_lost: int
    questions_kept: int

    def as_json(self) -> dict[str, Any]:
        return {
            "refreshed": dict(self.refreshed),
            "changed": list(self.changed),
            "tasks_kept": self.tasks_kept,
            "tasks_lost": self.tasks_lost,
            "questions_kept": self.questions_kept,
        }


def reconcile(
    *,
    lists_before: Mapping[str, object],
    lists_after: Mapping[str, object],
    answers: Mapping[str, ServerAnswer],
    questions_kept: int,
) -> Reconciled:
    """Compare what was held with what the server says now; `answers` are by task."""
    return Reconciled(
        refreshed={name: len(after) if isinstance(after, list | dict) else 0 for name, after in lists_after.items()},
        changed=tuple(name for name, after in lists_after.items() if lists_before.get(name) != after),
        tasks_kept=sum(answer != "unknown" for answer in answers.values()),
        tasks_lost=sum(answer == "unknown" for answer in answers.values()),
        questions_kept=questions_kept,
    )
