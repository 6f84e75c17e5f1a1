"""Calls that go on without a client waiting on them.

A task is *promoted* (its call outlived its timeout, or waits for an answer) or *native* (the server made it a task).
`TRANSITIONS` is the state machine; a terminal state never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from emceepee.clock import Clock, isoformat
from emceepee.core.deadlines import DeadlineQueue
from emceepee.core.events import Emit, EventType
from emceepee.core.journal import Journal
from emceepee.core.timers import Timer
from emceepee.errors import ImpossibleTransition, TaskNotFound
from emceepee.ids import IdFactory

__all__ = ["TERMINAL", "TRANSITIONS", "Task", "TaskLimits", "TaskStatus", "TaskTable"]

TaskOrigin: TypeAlias = Literal["promoted", "native"]
TaskStatus: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled", "expired"]
FinalStatus: TypeAlias = Literal["completed", "failed", "cancelled", "expired"]

TERMINAL: frozenset[TaskStatus] = frozenset({"completed", "failed", "cancelled", "expired"})

TRANSITIONS: Mapping[TaskStatus, frozenset[TaskStatus]] = {
    "working": TERMINAL | {"input_required"},
    "input_required": TERMINAL | {"working"},
    "completed": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
    "expired": frozenset(),
}

_EVENT_OF: Mapping[FinalStatus, EventType] = {
    "completed": "task_completed",
    "failed": "task_failed",
    "cancelled": "task_cancelled",
    "expired": "task_expired",
}


@dataclass(frozen=True, slots=True)
class TaskLimits:
    default_ttl_ms: int = 300_000
    max_ttl_ms: int = 1_800_000
    retention_ms: int = 300_000

    def ttl_ms(self, wished: int | None) -> int:
        return min(self.default_ttl_ms if wished is None else wished, self.max_ttl_ms)


@dataclass(frozen=True, slots=True)
class Task:
    task_id: str
    origin: TaskOrigin
    server: str
    tool: str
    args: Mapping[str, Any]
    status: TaskStatus
    status_message: str | None
    created_at: float
    last_updated_at: float
    ttl_ms: int
    expires_at: float
    """When its TTL ends, as far as that does not stand still."""
    ttl_left: float | None = None
    """What is left of its TTL, in seconds, while that stands still."""
    progress: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None
    error: str | None = None
    peer_error: Mapping[str, Any] | None = None
    """The server's own error, if it was one: `code`, `message` and perhaps `data`."""
    server_task_id: str | None = None
    """The server's own id of a native task: ours to use, never shown to a client."""
    poll_interval_ms: int | None = None

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL

    def as_json(self) -> dict[str, Any]:
        return {
            "task_id": self.task_id,
            "origin": self.origin,
            "server": self.server,
            "tool": self.tool,
            "status": self.status,
            "status_message": self.status_message,
            "created_at": isoformat(self.created_at),
            "last_updated_at": isoformat(self.last_updated_at),
            "ttl_ms": self.ttl_ms,
            "progress": self.progress,
        }


class TaskTable:
    """The tasks of one session, with their TTL and retention in the session's deadline queue."""

    def __init__(
        self,
        clock: Clock,
        ids: IdFactory,
        deadlines: DeadlineQueue[Timer],
        emit: Emit,
        limits: TaskLimits,
        *,
        journal: Journal | None = None,
        on_change: Callable[[str], None] = lambda _task_id: None,
    ) -> None:
        self._on_change = on_change
        self._journal = journal or Journal()
        self._clock = clock
        self._ids = ids
        self._deadlines = deadlines
        self._emit = emit
        self.limits = limits
        self._tasks: dict[str, Task] = {}
        self._live: dict[str, None] = {}
        self._paused: dict[str, tuple[int, float]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def live_count(self) -> int:
        return len(self._live)

    def get(self, task_id: str) -> Task:
        try:
            return self._tasks[task_id]
        except KeyError:
            raise TaskNotFound(task_id) from None

    def live(self, server: str | None = None) -> list[Task]:
        """What is not terminal, oldest first."""
        tasks = (self._tasks[task_id] for task_id in self._live)
        return [task for task in tasks if server is None or task.server == server]

    def find(
        self, server: str | None = None, statuses: Collection[TaskStatus] | None = None, *, terminal: bool = False
    ) -> list[Task]:
        """Tasks by server and status, oldest first; terminal ones only if asked for, or if named in `statuses`."""
        return [
            task
            for task in self._tasks.values()
            if (server is None or task.server == server)
            and (task.status in statuses if statuses is not None else terminal or not task.is_terminal)
        ]

    def create(
        self,
        server: str,
        tool: str,
        args: Mapping[str, Any],
        *,
        ttl_ms: int | None = None,
        origin: TaskOrigin = "promoted",
        progress: Mapping[str, Any] | None = None,
        status_message: str | None = None,
    ) -> Task:
        now = self._clock.now()
        ttl_ms = self.limits.ttl_ms(ttl_ms)
        task = Task(
            task_id=self._ids(),
            origin=origin,
            server=server,
            tool=tool,
            args=args,
            status="working",
            status_message=status_message,
            created_at=now,
            last_updated_at=now,
            ttl_ms=ttl_ms,
            expires_at=now + ttl_ms / 1000,
            progress=progress,
        )
        self._tasks[task.task_id] = task
        self._live[task.task_id] = None
        self._deadlines.set(Timer("task_ttl", task.task_id), self._clock.monotonic() + task.ttl_ms / 1000)
        self._journal.save_task(task)
        self._emit("task_created", server, {"task_id": task.task_id, "tool": tool, "ttl_ms": task.ttl_ms})
        return task

    def update(
        self,
        task_id: str,
        *,
        status: TaskStatus | None = None,
        status_message: str | None = None,
        progress: Mapping[str, Any] | None = None,
    ) -> Task:
        """Record news of a task that goes on."""
        task = self.get(task_id)
        status = status or task.status
        if (
            task.is_terminal
            or status in TERMINAL
            or (status != task.status and status not in TRANSITIONS[task.status])
            or (status == "input_required" and task.origin != "native")
        ):
            raise ImpossibleTransition(f"task {task_id}", task.status, status)
        return self._replace(
            task,
            status=status,
            status_message=task.status_message if status_message is None else status_message,
            progress=task.progress if progress is None else progress,
        )

    def make_native(self, task_id: str, server_task_id: str, poll_interval_ms: int | None) -> Task:
        """The server has made a task of it, under an id of its own."""
        task = self.get(task_id)
        if task.is_terminal:
            raise ImpossibleTransition(f"task {task_id}", task.status, "native")
        task = self._replace(task, origin="native", server_task_id=server_task_id, poll_interval_ms=poll_interval_ms)
        self._journal.save_task(task)
        return task

    def finish(
        self,
        task_id: str,
        status: FinalStatus,
        *,
        result: Mapping[str, Any] | None = None,
        error: str | None = None,
        peer_error: Mapping[str, Any] | None = None,
    ) -> Task:
        """Move a live task to a terminal state, tell it, and keep it for the retention time."""
        task = self.get(task_id)
        if status not in TRANSITIONS[task.status]:
            raise ImpossibleTransition(f"task {task_id}", task.status, status)
        task = self._replace(
            task,
            status=status,
            result=result,
            error=error,
            peer_error=peer_error,
            status_message=None,
            ttl_left=None,
        )
        self._journal.save_task(task)
        del self._live[task_id]
        self._paused.pop(task_id, None)
        self._deadlines.discard(Timer("task_ttl", task_id))
        self._deadlines.set(Timer("task_retention", task_id), self._clock.monotonic() + self.limits.retention_ms / 1000)
        data: dict[str, Any] = {"task_id": task_id, "tool": task.tool}
        if status == "expired":
            data["ttl_ms"] = task.ttl_ms
        if error is not None:
            data["error"] = error
        self._emit(_EVENT_OF[status], task.server, data)
        return task

    def remaining_ttl(self, task_id: str) -> float:
        """Seconds until the task expires, if no question of it opens meanwhile."""
        if (paused := self._paused.get(task_id)) is not None:
            return paused[1]
        deadline = self._deadlines.get(Timer("task_ttl", task_id))
        return 0.0 if deadline is None else max(0.0, deadline - self._clock.monotonic())

    def pause_ttl(self, task_id: str) -> None:
        """A question of the task opened: its TTL stands still, because nobody loses a call for thinking."""
        if task_id not in self._live:
            return
        holders, remaining = self._paused.get(task_id, (0, self.remaining_ttl(task_id)))
        self._paused[task_id] = (holders + 1, remaining)
        self._deadlines.discard(Timer("task_ttl", task_id))
        if holders == 0:
            self._note_ttl(replace(self.get(task_id), ttl_left=remaining, last_updated_at=self._clock.now()))

    def resume_ttl(self, task_id: str) -> None:
        """A question of the task was settled; the TTL runs on after the last of them."""
        if (paused := self._paused.get(task_id)) is None:
            return
        holders, remaining = paused
        if holders > 1:
            self._paused[task_id] = (holders - 1, remaining)
            return
        del self._paused[task_id]
        self._deadlines.set(Timer("task_ttl", task_id), self._clock.monotonic() + remaining)
        now = self._clock.now()
        self._note_ttl(replace(self.get(task_id), ttl_left=None, expires_at=now + remaining, last_updated_at=now))

    def _note_ttl(self, task: Task) -> None:
        """Write down how the TTL stands; that the task waits, or does so no longer, its questions tell."""
        self._tasks[task.task_id] = task
        self._journal.save_task(task)

    def forget(self, task_id: str) -> None:
        """Drop a terminal task whose retention is over."""
        task = self.get(task_id)
        if not task.is_terminal:
            raise ImpossibleTransition(f"task {task_id}", task.status, "forgotten")
        self._deadlines.discard(Timer("task_retention", task_id))
        del self._tasks[task_id]
        self._journal.forget_task(task_id)

    def restore(self, task: Task) -> None:
        """Put back a task from before a restart, with what is left of its time."""
        now = self._clock.now()
        if task.is_terminal:
            left = task.last_updated_at + self.limits.retention_ms / 1000 - now
        else:
            # The questions that it stood still for may be lost; those that are not make it stand still again.
            left = task.expires_at - now if task.ttl_left is None else task.ttl_left
            task = replace(task, ttl_left=None, expires_at=now + left)
            self._live[task.task_id] = None
        self._tasks[task.task_id] = task
        timer = Timer("task_retention" if task.is_terminal else "task_ttl", task.task_id)
        self._deadlines.set(timer, self._clock.monotonic() + max(0.0, left))

    def _replace(self, task: Task, **changes: Any) -> Task:
        task = replace(task, last_updated_at=self._clock.now(), **changes)
        self._tasks[task.task_id] = task
        self._on_change(task.task_id)
        return task
