"""Serving a server's tasks: its questions with `params.task`, and the `tasks/*` requests about them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import anyio

from emceepee.client.options import ClientOptions
from emceepee.client.questions import Question
from emceepee.clock import Clock
from emceepee.core.receiver import ReceiverTable, ReceiverTask
from emceepee.errors import PeerError
from emceepee.ids import secure_ids
from emceepee.protocol import RELATED_TASK_META_KEY, with_meta
from emceepee.timekeeper import Timekeeper

__all__ = ["METHODS", "ReceiverTasks"]

JsonObject: TypeAlias = dict[str, Any]

METHODS = ("tasks/get", "tasks/result", "tasks/list", "tasks/cancel")


class ReceiverTasks:
    """The receiver tasks of one connection; `run` forgets them when their time is over."""

    def __init__(
        self, options: ClientOptions, clock: Clock, notify: Callable[[str, JsonObject], Awaitable[None]]
    ) -> None:
        self._options = options
        self._notify = notify
        self._time: Timekeeper[str] = Timekeeper(clock, self._expire)
        self._table = ReceiverTable(clock, secure_ids(clock), self._time.deadlines)
        self._questions: dict[str, Question] = {}
        self._ended: dict[str, anyio.Event] = {}

    def __len__(self) -> int:
        return len(self._table)

    async def run(self) -> None:
        await self._time.run()

    def create(self, request: Mapping[str, Any]) -> ReceiverTask:
        """A task for a question whose `params.task` is `request`."""
        task = self._table.create(self._options.receiver_ttl_ms(request.get("ttl")))
        self._ended[task.task_id] = anyio.Event()
        return task

    async def serve(self, task: ReceiverTask, question: Question) -> None:
        """See a task through, from its question to its answer."""
        self._questions[task.task_id] = question
        await self._tell(self._table.move(task.task_id, "input_required", message="Waiting for an answer"))
        try:
            outcome: JsonObject | PeerError = await question.answer()
        except PeerError as error:
            outcome = error
        if not self._is_live(task.task_id):
            return
        if isinstance(outcome, PeerError):
            ended = self._table.move(task.task_id, "failed", message=outcome.message, outcome=outcome)
        else:
            ended = self._table.move(task.task_id, "completed", outcome=_related(outcome, task.task_id))
        self._ended[task.task_id].set()
        await self._tell(ended)

    async def answer(self, method: str, params: Mapping[str, Any]) -> JsonObject:
        """Answer one of `METHODS`.

        Raises:
            PeerError: there is no such task, it cannot be cancelled any more, or the result is this error.
        """
        match method:
            case "tasks/get":
                return self._table.get(params.get("taskId")).as_wire()
            case "tasks/list":
                tasks, following = self._table.page(params.get("cursor"))
                page: JsonObject = {"tasks": [task.as_wire() for task in tasks]}
                return page if following is None else {**page, "nextCursor": following}
            case "tasks/cancel":
                return await self._cancel(params.get("taskId"))
            case _:
                return await self._result(params.get("taskId"))

    def close(self) -> None:
        """The connection is gone: so are its tasks."""
        for task_id in list(self._ended):
            self._forget(task_id)

    async def _cancel(self, task_id: object) -> JsonObject:
        task = self._table.cancel(task_id)
        if (question := self._questions.get(task.task_id)) is not None:
            question.withdraw("withdrawn", "the server cancelled its task")
        self._ended[task.task_id].set()
        await self._tell(task)
        return task.as_wire()

    async def _result(self, task_id: object) -> JsonObject:
        task = self._table.get(task_id)
        await self._ended[task.task_id].wait()
        outcome = self._table.get(task.task_id).outcome
        if isinstance(outcome, PeerError):
            raise outcome
        return dict(outcome or {})

    async def _expire(self, task_id: str) -> None:
        if (question := self._questions.get(task_id)) is not None:
            question.withdraw("withdrawn", "the server's task expired")
        self._forget(task_id)

    def _forget(self, task_id: str) -> None:
        self._table.forget(task_id)
        self._questions.pop(task_id, None)
        # Whoever still waits for the result is told that there is no such task.
        self._ended.pop(task_id).set()

    def _is_live(self, task_id: str) -> bool:
        return task_id in self._ended and not self._table.get(task_id).is_terminal

    async def _tell(self, task: ReceiverTask) -> None:
        """Announce a change; a server that does not hear it can still ask."""
        await self._notify("notifications/tasks/status", task.as_wire())


def _related(result: Mapping[str, Any], task_id: str) -> JsonObject:
    return with_meta(result, {RELATED_TASK_META_KEY: {"taskId": task_id}})
