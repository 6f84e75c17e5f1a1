"""What can come of a request beside its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from emceepee.core.questions import Question
from emceepee.front.client import ClientFacts

__all__ = ["AskedBack", "BecameTask", "Outcome", "can_be_asked_back"]

JsonObject: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class BecameTask:
    """It goes on as a task, of which the client is told in its protocol's own way."""

    task_id: str


@dataclass(frozen=True, slots=True)
class AskedBack:
    """It waits for answers to the open questions of its task, which the client is asked for in the response."""

    task_id: str


Outcome: TypeAlias = JsonObject | BecameTask | AskedBack


def can_be_asked_back(client: ClientFacts, questions: Sequence[Question]) -> bool:
    """Whether there are questions, and the client has said with this very request that it can be asked all of them."""
    return (
        client.is_modern
        and bool(questions)
        and all(client.can_be_asked(question.kind, question.params) for question in questions)
    )
