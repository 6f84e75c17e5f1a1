"""A scripted server with one task, whose state is what the test says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from emceepee.errors import PeerError
from emceepee.testing import ScriptedCall, ScriptedServer, text_result

__all__ = ["RELATED_TASK", "TaskServer", "eras", "settle"]

RELATED_TASK = "io.modelcontextprotocol/related-task"
JsonObject = dict[str, Any]

TASKS_2025: JsonObject = {"tools": {}, "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}
TASKS_2026: JsonObject = {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}

eras = pytest.mark.parametrize("modern", [False, True], ids=["2025-11-25", "2026-07-28"])


SHORT_WAY = 20
"""Turns of the event loop in which most that can happen in memory has happened."""


async def settle() -> None:
    """Let all other tasks run until each of them waits for something; they mostly do before anyone looks."""
    for _ in range(3):
        for _ in range(SHORT_WAY):
            await checkpoint()
        await anyio.wait_all_tasks_blocked()


class TaskServer:
    """Its tool `job` becomes the task; `wait` is a call that never ends. Whatever a test gives as `methods` it answers
    in place of what a good server would.
    """

    def __init__(
        self,
        *,
        modern: bool = False,
        task_id: str = "task-1",
        poll_ms: object = 1000,
        meta: JsonObject | None = None,
        methods: Mapping[str, Any] | None = None,
        capabilities: JsonObject | None = None,
    ) -> None:
        self.modern = modern
        self.task_id = task_id
        self.polls = 0
        self.answers: list[JsonObject] = []
        self.outcome: JsonObject | PeerError | None = None
        self.call: ScriptedCall
        self._meta = meta
        self._ended = anyio.Event()
        self._interval, self._ttl = ("pollIntervalMs", "ttlMs") if modern else ("pollInterval", "ttl")
        self.current: JsonObject = {
            "taskId": task_id,
            "status": "working",
            "createdAt": "2030-01-01T00:00:00Z",
            "lastUpdatedAt": "2030-01-01T00:00:00Z",
            self._ttl: 600_000,
            self._interval: poll_ms,
        }
        ours = {
            "tasks/get": self._get,
            "tasks/result": self._result,
            "tasks/cancel": self._cancel,
            "tasks/update": self._update,
        }
        self.scripted = ScriptedServer(
            {"job": self._create, "wait": self._wait},
            modern=modern,
            capabilities=capabilities or (TASKS_2026 if modern else TASKS_2025),
            definitions={"job": {"execution": {"taskSupport": "required"}}},
            methods={**ours, **(methods or {})},
        )

    @property
    def result(self) -> JsonObject:
        """What the task gives in the end."""
        assert isinstance(self.outcome, dict)
        return self.outcome

    # What the test does to the task

    def status(self, *, poll_ms: int | None = None, **changes: Any) -> None:
        self.current = {**self.current, **changes}
        if poll_ms is not None:
            self.current[self._interval] = poll_ms

    def omit(self, *keys: str) -> None:
        self.current = {key: value for key, value in self.current.items() if key not in keys}

    def finish(self, text: str, *, is_error: bool = False) -> None:
        self.outcome = {**text_result(text), **({"isError": True} if is_error else {})}
        self.status(status="completed")
        if self.modern:
            self.status(result=self.outcome)
        self._ended.set()

    def fail(self, code: int, message: str) -> None:
        self.outcome = PeerError(code, message)
        self.status(status="failed", statusMessage=message)
        if self.modern:
            self.status(error={"code": code, "message": message})
        self._ended.set()

    def ask(self, **questions: JsonObject) -> None:
        """Wait for input: the elicitations by their keys (2026-07-28)."""
        requests = {key: {"method": "elicitation/create", "params": params} for key, params in questions.items()}
        self.status(status="input_required", inputRequests=requests)

    async def announce(self, **changes: Any) -> None:
        """Tell the client of the task as it is, or as `changes` say."""
        self.status(**changes)
        await self.scripted.notify("notifications/tasks" if self.modern else "notifications/tasks/status", self.current)

    # What it answers

    async def _create(self, call: ScriptedCall) -> JsonObject:
        self.call = call
        if self.modern:
            return {"resultType": "task", **self.current}
        return {"task": self.current, **({"_meta": self._meta} if self._meta else {})}

    async def _wait(self, _call: ScriptedCall) -> JsonObject:
        await anyio.sleep_forever()
        raise AssertionError("unreachable")

    async def _get(self, _params: Mapping[str, Any]) -> JsonObject:
        self.polls += 1
        return {"resultType": "complete", **self.current} if self.modern else self.current

    async def _result(self, _params: Mapping[str, Any]) -> JsonObject:
        await self._ended.wait()
        if isinstance(self.outcome, PeerError):
            raise self.outcome
        return self.result

    async def _cancel(self, _params: Mapping[str, Any]) -> JsonObject:
        if self.current["status"] in ("completed", "failed", "cancelled"):
            raise PeerError(-32602, "Cannot cancel task: it has ended")
        self.outcome = PeerError(-32000, "The task was cancelled")
        self.status(status="cancelled")
        self._ended.set()
        return {"resultType": "complete"} if self.modern else self.current

    async def _update(self, params: Mapping[str, Any]) -> JsonObject:
        self.answers.append(params["inputResponses"])
        return {"resultType": "complete"}
