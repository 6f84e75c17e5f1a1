"""Tasks that a server has with us: a question that came with `params.task`, which the server polls.

The protocol of 2025-11-25 decides the states (`TRANSITIONS`) and the shape on the wire. One table per connection: what
one server asked is no other server's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from emceepee.clock import Clock, isoformat
from emceepee.core.deadlines import DeadlineQueue
from emceepee.errors import ImpossibleTransition, PeerError
from emceepee.ids import IdFactory
from emceepee.protocol import INVALID_PARAMS

__all__ = ["TERMINAL", "TRANSITIONS", "ReceiverStatus", "ReceiverTable", "ReceiverTask"]

ReceiverStatus: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]

TERMINAL: frozenset[ReceiverStatus] = frozenset({"completed", "failed", "cancelled"})

TRANSITIONS: Mapping[ReceiverStatus, frozenset[ReceiverStatus]] = {
    "working": TERMINAL | {"input_required"},
    "input_required": TERMINAL | {"working"},
    "completed": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}

POLL_INTERVAL_MS = 2000
"""How often a server should ask: people take seconds to answer, and are announced besides."""
PAGE_SIZE = 50
MAX_TASKS = 1000
"""Per connection; a server that has more open is refused."""


@dataclass(frozen=True, slots=True)
class ReceiverTask:
    task_id: str
    status: ReceiverStatus
    status_message: str | None
    created_at: float
    last_updated_at: float
    ttl_ms: int
    outcome: Mapping[str, Any] | PeerError | None = None

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL

    def as_wire(self) -> dict[str, Any]:
        """The protocol's `Task`."""
        task: dict[str, Any] = {
            "taskId": self.task_id,
            "status": self.status,
            "createdAt": isoformat(self.created_at),
            "lastUpdatedAt": isoformat(self.last_updated_at),
            "ttl": self.ttl_ms,
            "pollInterval": POLL_INTERVAL_MS,
        }
        return task if self.status_message is None else {**task, "statusMessage": self.status_message}


class ReceiverTable:
    """The receiver tasks of one connection, each with its end in `deadlines`."""

    def __init__(self, clock: Clock, ids: IdFactory, deadlines: DeadlineQueue[str]) -> None:
        self._clock = clock
        self._ids = ids
        self._deadlines = deadlines
        self._tasks: dict[str, ReceiverTask] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def create(self, ttl_ms: int) -> ReceiverTask:
        """
        Raises:
            PeerError: the server has too many already.
        """
        if len(self._tasks) >= MAX_TASKS:
            raise PeerError(-32000, f"{MAX_TASKS} tasks are open already")
        now = self._clock.now()
        task = ReceiverTask(self._ids(), "working", None, now, now, ttl_ms)
        self._tasks[task.task_id] = task
        self._deadlines.set(task.task_id, self._clock.monotonic() + ttl_ms / 1000)
        return task

    def get(self, task_id: object) -> ReceiverTask:
        """
        Raises:
            PeerError: there is no such task, or not any more.
        """
        task = self._tasks.get(task_id) if isinstance(task_id, str) else None
        if task is None:
            raise PeerError(INVALID_PARAMS, "Failed to retrieve task: Task not found")
        return task

    def page(self, cursor: object = None) -> tuple[list[ReceiverTask], str | None]:
        """Tasks in the order of their creation, and the cursor of the next page.

        Raises:
            PeerError: the cursor is none of ours.
        """
        ids = list(self._tasks)
        if cursor is None:
            start = 0
        elif isinstance(cursor, str) and cursor in self._tasks:
            start = ids.index(cursor) + 1
        else:
            raise PeerError(INVALID_PARAMS, "Invalid cursor")
        found = ids[start : start + PAGE_SIZE]
        following = found[-1] if found and start + PAGE_SIZE < len(ids) else None
        return [self._tasks[task_id] for task_id in found], following

    def move(
        self,
        task_id: str,
        status: ReceiverStatus,
        *,
        message: str | None = None,
        outcome: Mapping[str, Any] | PeerError | None = None,
    ) -> ReceiverTask:
        """
        Raises:
            PeerError: there is no such task.
            ImpossibleTransition: there is no way to that status.
        """
        task = self.get(task_id)
        if status not in TRANSITIONS[task.status]:
            raise ImpossibleTransition(f"receiver task {task_id}", task.status, status)
        task = replace(task, status=status, status_message=message, last_updated_at=self._clock.now(), outcome=outcome)
        self._tasks[task_id] = task
        return task

    def cancel(self, task_id: object) -> ReceiverTask:
        """
        Raises:
            PeerError: there is no such task, or it has ended.
        """
        task = self.get(task_id)
        if task.is_terminal:
            raise PeerError(INVALID_PARAMS, f"Cannot cancel task: already in terminal status '{task.status}'")
        gone = PeerError(-32000, "The task was cancelled")
        return self.move(task.task_id, "cancelled", message="Cancelled by request", outcome=gone)

    def forget(self, task_id: str) -> None:
        self._tasks.pop(task_id, None)
        self._deadlines.discard(task_id)
