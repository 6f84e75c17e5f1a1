"""Which servers' sessions have native tasks living in them.

Some servers show a task only to the session that made it. As long as a task of ours may be among those, its session is
kept: what a later connection needs to take it up is written down, and the session is not ended with the connection.
"""

from __future__ import annotations

from typing import Literal

from emceepee.core.tasks import Task

__all__ = ["Anchors"]


class Anchors:
    """The native tasks of one session that have not ended, by server."""

    def __init__(self) -> None:
        self._tasks: dict[str, set[str]] = {}

    def hold(self, server: str) -> bool:
        """Whether the session at `server` has to be kept."""
        return server in self._tasks

    def note(self, task: Task) -> Literal["first", "last"] | None:
        """Take in a task as it is now; says whether it is the first to need its session, or was the last."""
        if task.server_task_id is None:
            return None
        return self._release(task) if task.is_terminal else self._add(task)

    def clear(self) -> None:
        """Nobody wants to hear of any of them again."""
        self._tasks.clear()

    def _add(self, task: Task) -> Literal["first"] | None:
        is_first = task.server not in self._tasks
        self._tasks.setdefault(task.server, set()).add(task.task_id)
        return "first" if is_first else None

    def _release(self, task: Task) -> Literal["last"] | None:
        tasks = self._tasks.get(task.server, set())
        tasks.discard(task.task_id)
        if tasks or task.server not in self._tasks:
            return None
        del self._tasks[task.server]
        return "last"
