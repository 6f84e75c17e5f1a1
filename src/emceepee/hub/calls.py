"""The calls that the hub makes for a client, and how they turn into tasks.

Every decision is one synchronous method, so that there is nothing to interleave: whatever comes first (the result, the
timeout, a question, the client giving up) turns the call, and the rest finds it turned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Literal, TypeAlias

import anyio
import anyio.abc
from structlog import get_logger

from emceepee.clock import Clock
from emceepee.core.state import SessionState
from emceepee.core.tasks import Task
from emceepee.core.timers import Timer
from emceepee.errors import EmceepeeError, ToolError, TooManyTasks, as_tool_error
from emceepee.hub.link import Link
from emceepee.hub.telemetry import CallOutcome, Telemetry
from emceepee.hub.work import Work

__all__ = ["Call", "CallRunner", "Promotion"]

JsonObject: TypeAlias = dict[str, Any]
OnProgress: TypeAlias = Callable[[float, float | None, str | None], None]
Promotion: TypeAlias = Literal["timeout", "question", "client_gone"]
log = get_logger(__name__)


class Call:
    """Work at a server. `turned` is set when its client need not wait any longer: see `result`, `error`, `task_id`."""

    def __init__(self, number: int, link: Link, work: Work, ttl_ms: int | None) -> None:
        self.number = number
        self.link = link
        self.work = work
        self.ttl_ms = ttl_ms
        self.task_id: str | None = None
        self.promoted_by: Promotion | None = None
        self.result: JsonObject | None = None
        self.error: ToolError | None = None
        self.turned = anyio.Event()
        self.progress: Mapping[str, Any] | None = None
        self.on_progress: OnProgress | None = None
        self.started = 0.0
        self.scope = anyio.CancelScope()

    @property
    def server(self) -> str:
        return self.link.name

    @property
    def tool(self) -> str:
        return self.work.tool

    @property
    def timer(self) -> Timer:
        return Timer("call", str(self.number))


class CallRunner:
    """Runs the calls of one session in its task group."""

    def __init__(
        self,
        state: SessionState,
        clock: Clock,
        tasks: anyio.abc.TaskGroup,
        *,
        max_live: int,
        telemetry: Telemetry,
        on_ended: Callable[[Call], None] = lambda _call: None,
    ) -> None:
        self._state = state
        self._clock = clock
        self._tasks = tasks
        self._max_live = max_live
        self._telemetry = telemetry
        self._on_ended = on_ended
        self._numbers = count(1)
        self._live: dict[int, Call] = {}
        self._by_task: dict[str, Call] = {}

    def __len__(self) -> int:
        return len(self._live)

    def get(self, number: int) -> Call | None:
        return self._live.get(number)

    def of_task(self, task_id: str) -> Call | None:
        """The call that is still running for a task."""
        return self._by_task.get(task_id)

    def on_server(self, server: str) -> list[Call]:
        return [call for call in self._live.values() if call.server == server]

    def start(
        self,
        link: Link,
        work: Work,
        *,
        timeout_ms: int,
        ttl_ms: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> Call:
        """Send a call on its way.

        Raises:
            TooManyTasks: the session has its fill of live calls and tasks.
        """
        if len(self._live) >= self._max_live:
            raise TooManyTasks(self._max_live)
        call = Call(next(self._numbers), link, work, ttl_ms)
        call.on_progress = on_progress
        call.started = self._clock.monotonic()
        self._live[call.number] = call
        self._state.deadlines.set(call.timer, call.started + timeout_ms / 1000)
        log.debug("tool_execution_start", server=call.server, tool=work.tool, has_args=bool(work.args))
        self._tasks.start_soon(self._run, call)
        return call

    def promote(self, call: Call, why: Promotion) -> Task:
        """Make a task of a call that still runs; its client need not wait for it."""
        task = self._state.tasks.create(
            call.server, call.tool, call.work.args, ttl_ms=call.ttl_ms, progress=call.progress
        )
        call.task_id = task.task_id
        call.promoted_by = why
        call.on_progress = None
        self._by_task[task.task_id] = call
        self._state.deadlines.discard(call.timer)
        self._telemetry.call_promoted(call.server, why)
        log.info("tool_execution_timeout", server=call.server, tool=call.tool, task_id=task.task_id, reason=why)
        call.turned.set()
        return task

    def abandon(self, call: Call) -> None:
        """The client stopped waiting, but not because it does not want the result any more: keep it as a task."""
        if call.task_id is not None:
            return
        if call.number in self._live:
            self.promote(call, "client_gone")
            return
        task = self._state.tasks.create(call.server, call.tool, call.work.args, ttl_ms=call.ttl_ms)
        call.task_id = task.task_id
        self._finish_task(call, task.task_id)

    def cancel(self, call: Call) -> None:
        """End a call at the client's wish: the server is told, and a task of it is cancelled."""
        if call.task_id is not None and not self._state.tasks.get(call.task_id).is_terminal:
            self._state.tasks.finish(call.task_id, "cancelled")
            self._telemetry.task_ended("cancelled")
        self._drop(call, "cancelled")

    def expire(self, task_id: str) -> None:
        """End the call of a task whose time is up: the server is told."""
        task = self._state.tasks.finish(task_id, "expired")
        log.info("task_expired", task_id=task_id, server=task.server, tool=task.tool, ttl_ms=task.ttl_ms)
        self._telemetry.task_ended("expired")
        if (call := self._by_task.get(task_id)) is not None:
            self._drop(call, "expired")

    def fail_all(self, server: str, error: ToolError) -> None:
        """End every call on a server that is going away on purpose."""
        for call in self.on_server(server):
            call.error = error
            self._finished(call)
            call.scope.cancel()

    def _drop(self, call: Call, outcome: CallOutcome) -> None:
        if call.number in self._live:
            self._telemetry.call_ended(call.server, outcome, self._clock.monotonic() - call.started)
        self._forget(call)
        call.turned.set()
        call.scope.cancel()

    async def _run(self, call: Call) -> None:
        try:
            await self._talk(call)
        finally:
            # The session is closing: whoever still waits for this call must not wait forever.
            if not call.turned.is_set():
                call.error = ToolError("The session was closed.", "Open a new session.")
                call.turned.set()

    async def _talk(self, call: Call) -> None:
        with call.scope:
            try:
                call.result = await call.work.run(call.link, call, lambda *news: self._on_progress(call, *news))
            except EmceepeeError as error:
                call.error = as_tool_error(error, call.server)
            except Exception as error:
                log.exception("tool_execution_crashed", server=call.server, tool=call.tool)
                call.error = ToolError(f"{type(error).__name__} in the hub", "Its log has the details.")
            self._finished(call)

    async def _on_progress(self, call: Call, progress: float, total: float | None, message: str | None) -> None:
        call.progress = {"progress": progress, "total": total, "message": message}
        if call.on_progress is not None:
            call.on_progress(progress, total, message)
        elif call.task_id is not None and call.number in self._live:
            self._state.tasks.update(call.task_id, progress=call.progress)

    def _finished(self, call: Call) -> None:
        if call.number not in self._live:
            log.info("late_result_dropped", server=call.server, tool=call.tool, task_id=call.task_id)
            return
        self._forget(call)
        seconds = self._clock.monotonic() - call.started
        self._telemetry.call_ended(call.server, "completed" if call.error is None else "failed", seconds)
        log.debug("tool_execution_complete", server=call.server, tool=call.tool, duration_ms=round(seconds * 1000))
        if call.task_id is not None:
            self._finish_task(call, call.task_id)
        call.turned.set()

    def _finish_task(self, call: Call, task_id: str) -> None:
        facts = {"task_id": task_id, "server": call.server, "tool": call.tool}
        if call.error is None:
            self._state.tasks.finish(task_id, "completed", result=call.result)
            self._telemetry.task_ended("completed")
            log.info("task_completed", **facts)
        else:
            self._state.tasks.finish(task_id, "failed", error=str(call.error))
            self._telemetry.task_ended("failed")
            log.warning("task_failed", **facts, error=str(call.error))

    def _forget(self, call: Call) -> None:
        self._live.pop(call.number, None)
        self._state.deadlines.discard(call.timer)
        if call.task_id is not None:
            self._by_task.pop(call.task_id, None)
        self._on_ended(call)
