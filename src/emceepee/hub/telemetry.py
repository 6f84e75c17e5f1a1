"""What can be counted. The hub tells; `emceepee.observe.metrics` counts."""

from __future__ import annotations

from typing import Literal, TypeAlias

from emceepee.core.questions import QuestionKind, QuestionState
from emceepee.core.tasks import TaskStatus

__all__ = ["CallOutcome", "Telemetry"]

CallOutcome: TypeAlias = Literal["completed", "failed", "cancelled", "expired"]


class Telemetry:
    """Ignores everything; override what you want to know. Calls are synchronous and must be quick."""

    def call_ended(self, server: str, outcome: CallOutcome, seconds: float) -> None: ...

    def call_promoted(self, server: str, reason: str) -> None: ...

    def task_ended(self, status: TaskStatus) -> None: ...

    def question_settled(self, kind: QuestionKind, state: QuestionState) -> None: ...

    def link_connected(self, server: str, *, again: bool) -> None: ...

    def link_lost(self, server: str) -> None: ...

    def events_evicted(self, count: int, undelivered: int) -> None: ...
