"""All that the hub knows for one client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from emceepee.clock import Clock
from emceepee.core.buffers import ServerBuffers
from emceepee.core.deadlines import DeadlineQueue
from emceepee.core.events import EventLog
from emceepee.core.journal import Journal
from emceepee.core.questions import QuestionTable
from emceepee.core.tasks import TaskLimits, TaskTable
from emceepee.core.timers import Timer
from emceepee.core.watching import TaskWatchers
from emceepee.ids import IdFactory, MonotonicIds, secure_ids

__all__ = ["SessionLimits", "SessionState"]


@dataclass(frozen=True, slots=True)
class SessionLimits:
    tasks: TaskLimits = field(default_factory=TaskLimits)
    max_tasks: int = 100
    max_events: int = 1000
    question_timeout_ms: int = 600_000
    max_notifications: int = 100
    max_logs: int = 500


class SessionState:
    """The event log, the tables and the one deadline queue of a session."""

    def __init__(
        self,
        clock: Clock,
        limits: SessionLimits,
        deadlines: DeadlineQueue[Timer] | None = None,
        *,
        ids: IdFactory | None = None,
        journal: Journal | None = None,
        on_warning: Callable[[str, Mapping[str, Any]], None] = lambda _name, _facts: None,
    ) -> None:
        ids = ids or secure_ids(clock)
        self.deadlines: DeadlineQueue[Timer] = DeadlineQueue() if deadlines is None else deadlines
        self.events = EventLog(
            clock, MonotonicIds(clock), limit=limits.max_events, journal=journal, on_warning=on_warning
        )
        self.buffers = ServerBuffers(clock, max_notifications=limits.max_notifications, max_logs=limits.max_logs)
        self.watchers = TaskWatchers()
        self.tasks = TaskTable(
            clock,
            ids,
            self.deadlines,
            self.events.append,
            limits.tasks,
            journal=journal,
            on_change=self.watchers.changed,
        )
        self.questions = QuestionTable(
            clock,
            ids,
            self.deadlines,
            self.events.append,
            timeout_ms=limits.question_timeout_ms,
            journal=journal,
            on_change=self.watchers.changed,
        )
