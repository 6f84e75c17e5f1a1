"""Whose a message of the server's is: the call that it came with, as far as that can be known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from emceepee.core.questions import Belonging, belonging
from emceepee.protocol import RELATED_TASK_META_KEY, meta_of
from emceepee.wire.peer import OnProgress
from emceepee.wire.transport import RequestId

__all__ = ["Origins"]


class Origins:
    """The calls that are under way on one connection, each known by what its caller gave as its origin."""

    def __init__(self) -> None:
        self._in_flight: dict[RequestId, object] = {}
        self._tasks: dict[str, object] = {}
        self._late_progress: dict[int, OnProgress] = {}

    @contextmanager
    def in_flight(self, request_id: int, origin: object) -> Iterator[None]:
        """While the body runs, questions on the response stream of `request_id` belong to `origin`."""
        self._in_flight[request_id] = origin
        try:
            yield
        finally:
            del self._in_flight[request_id]

    @contextmanager
    def task_of(self, task_id: str, origin: object) -> Iterator[None]:
        """While the body runs, questions that name the server's task `task_id` belong to `origin`."""
        self._tasks[task_id] = origin
        try:
            yield
        finally:
            self._tasks.pop(task_id, None)

    @contextmanager
    def late_progress(self, request_id: int, on_progress: OnProgress | None) -> Iterator[None]:
        """While the body runs, pass on progress of a request that was answered already, with a task."""
        if on_progress is not None:
            self._late_progress[request_id] = on_progress
        try:
            yield
        finally:
            self._late_progress.pop(request_id, None)

    def of_request(self, request_id: RequestId) -> object | None:
        """The origin of a request that is still open."""
        return self._in_flight.get(request_id)

    def belonging(self, related: int | None, params: Mapping[str, Any]) -> Belonging[Any]:
        """Whose a message with `params` is, which came on the response stream of the request `related`, if on any."""
        exact = self._tasks.get(_related_task(params))
        if exact is None and related is not None:
            exact = self._in_flight.get(related)
        return belonging(exact, list(self._in_flight.values()))

    def awaiting_progress(self, token: object) -> OnProgress | None:
        """Who wants to hear of the progress of a request that was answered with a task; its id is the token."""
        return self._late_progress.get(token) if isinstance(token, int) else None


def _related_task(params: Mapping[str, Any]) -> str:
    related = meta_of(params).get(RELATED_TASK_META_KEY)
    task_id = related.get("taskId") if isinstance(related, Mapping) else None
    return task_id if isinstance(task_id, str) else ""
