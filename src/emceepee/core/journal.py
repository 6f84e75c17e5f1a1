"""What a session writes down as it happens, so that it survives a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emceepee.core.events import Event
    from emceepee.core.questions import Question
    from emceepee.core.tasks import Task

__all__ = ["Journal"]


class Journal:
    """Writes nothing; `emceepee.hub.journal` writes to a store. Calls are synchronous and must be quick."""

    def save_task(self, task: Task) -> None: ...

    def forget_task(self, task_id: str) -> None: ...

    def save_question(self, question: Question) -> None: ...

    def forget_question(self, request_id: str) -> None: ...

    def save_event(self, event: Event) -> None: ...

    def forget_event(self, event_id: str) -> None:
        """The response that tells of it is out."""

    def forget_events(self, last_event_id: str) -> None:
        """Events up to this one need not be told after a restart: they were evicted."""

    def save_events_lost(self, count: int) -> None:
        """So many were evicted before anyone was told of them, and nobody has been told of that yet."""
