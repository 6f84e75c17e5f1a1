"""What becomes of a server's state when its connection is lost, and when it is back.

The table of `docs/architecture.md`, as pure functions: `fate_of_call` for a call whose connection is gone,
`tasks_that_live_on` for what clients are told meanwhile, `reconcile` for what they are told when the server is back.
Which questions outlive a connection is said by `Question.survives`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from emceepee.core.questions import Question
from emceepee.core.tasks import Task

__all__ = ["CallFate", "Reconciled", "ServerAnswer", "fate_of_call", "reconcile", "tasks_that_live_on"]

CallFate: TypeAlias = Literal["goes_on", "is_sent_again", "fails"]

ServerAnswer: TypeAlias = Literal["known", "finished", "unknown", "silent"]
"""What `tasks/get` says of a task after a reconnect; `silent` if there was no answer, which proves nothing."""


def fate_of_call(*, can_be_resumed: bool, was_taken: bool, was_sent_again: bool) -> CallFate:
    """The connection of a call is gone.

    A task of the server's and an `input_required` result go on with the next connection. Of anything else nobody can
    ask the server, unless it cannot have begun: a request that no server took is sent once more.
    """
    if can_be_resumed:
        return "goes_on"
    return "fails" if was_taken or was_sent_again else "is_sent_again"


def tasks_that_live_on(tasks: Iterable[Task], questions: Iterable[Question]) -> tuple[str, ...]:
    """Ids of the tasks that outlive their server's connection.

    About its own tasks the server can be asked later, and a call that waits for the answer to a question which does
    not live on the connection is as good as asleep.
    """
    asleep = {question.task_id for question in questions if question.survives}
    return tuple(task.task_id for task in tasks if task.server_task_id is not None or task.task_id in asleep)


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
