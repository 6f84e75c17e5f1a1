"""What is needed to go on with a call on another connection, when that is possible at all.

A task lives at its server, and a modern call that waits for answers lives nowhere but in its `requestState`: both can
be taken up again after the connection was lost. A plain call that was in flight cannot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from emceepee.client.questions import Question
from emceepee.client.tasks import RemoteTask

__all__ = ["OpenInput", "Resumption"]

JsonObject: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class OpenInput:
    """One entry of a task's `inputRequests`: what was asked under its key, and how far the answer is."""

    content: str
    question: Question | None = None
    is_delivered: bool = False


@dataclass(slots=True)
class Resumption:
    """Filled in while a call goes on; hand it in again with the next connection."""

    server_task: RemoteTask | None = None
    inputs: dict[str, OpenInput] = field(default_factory=dict)
    retry: JsonObject | None = None
    """Answers, and the state that goes with them, which were not sent yet."""

    @property
    def is_possible(self) -> bool:
        return self.server_task is not None or self.retry is not None
