"""Where news of a server's tasks meets whoever follows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import anyio

from emceepee.client.tasks import RemoteTask, parse_task
from emceepee.errors import PeerError

__all__ = ["TaskNews", "TaskWatch"]


class TaskNews:
    """The next news of one task; `wait` returns it, or None if there is none in time."""

    def __init__(self) -> None:
        self._arrived = anyio.Event()
        self._latest: RemoteTask | None = None

    def tell(self, task: RemoteTask) -> None:
        self._latest = task
        self._arrived.set()

    def hurry(self) -> None:
        """End the wait without news, so that the server is asked."""
        self._arrived.set()

    async def wait(self, scope: anyio.CancelScope) -> RemoteTask | None:
        with scope:
            await self._arrived.wait()
        latest, self._latest = self._latest, None
        self._arrived = anyio.Event()
        return latest


class TaskWatch:
    """Routes `notifications/tasks/status` and `notifications/tasks`; news of tasks that nobody follows is dropped."""

    def __init__(self) -> None:
        self._followed: dict[str, TaskNews] = {}

    @contextmanager
    def follow(self, task_id: str) -> Iterator[TaskNews]:
        news = self._followed[task_id] = TaskNews()
        try:
            yield news
        finally:
            self._followed.pop(task_id, None)

    def is_followed(self, task_id: str) -> bool:
        return task_id in self._followed

    def hurry(self, task_id: str) -> None:
        if (news := self._followed.get(task_id)) is not None:
            news.hurry()

    def tell(self, params: Mapping[str, Any]) -> bool:
        """Pass on a notification; whether anyone wanted it."""
        try:
            task = parse_task(params)
        except PeerError:
            return False
        if (news := self._followed.get(task.task_id)) is None:
            return False
        news.tell(task)
        return True
