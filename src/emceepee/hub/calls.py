"""The calls that the hub makes for a client, and how they turn into tasks.

Every decision is one synchronous method, so that there is nothing to interleave: whatever comes first (the result, the
timeout, a question, the client giving up) turns the call, and the rest finds it turned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Literal, TypeAlias

import anyio.abc
from structlog import get_logger

from emceepee.client import RemoteTask, Resumption
from emceepee.clock import Clock
from emceepee.core.state import SessionState
from emceepee.core.tasks import FinalStatus, Task, TaskStatus
from emceepee.core.timers import Timer
from emceepee.errors import (
    EmceepeeError,
    PeerError,
    ServerDisconnected,
    SessionClosed,
    ToolError,
    TooManyTasks,
    WireError,
    as_tool_error,
)
from emceepee.hub.attendant import Attendant
from emceepee.hub.call import Call, Promotion
from emceepee.hub.link import Link
from emceepee.hub.telemetry import CallOutcome, Telemetry
from emceepee.hub.work import Work
from emceepee.protocol import INVALID_PARAMS

__all__ = ["CallRunner", "CancelOutcome"]

log = get_logger(__name__)

CancelOutcome: TypeAlias = Literal["told", "told_later", "not_told", "has_ended"]
"""Whether the server knows that its work is not wanted any more, or has no way to be told, or is done with it."""

CANCEL_SECONDS = 600.0
"""How long a server that is away is waited for, to be told that a task of its own is cancelled."""


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
        on_promoted: Callable[[Call], None] = lambda _call: None,
        on_native: Callable[[Call], None] = lambda _call: None,
        on_ended: Callable[[Call], None] = lambda _call: None,
    ) -> None:
        self._state = state
        self._clock = clock
        self._tasks = tasks
        self._max_live = max_live
        self._telemetry = telemetry
        self._on_promoted = on_promoted
        self._on_native = on_native
        self._on_ended = on_ended
        self._numbers = count(1)
        self._live: dict[int, Call] = {}
        self._by_task: dict[str, Call] = {}

    def __len__(self) -> int:
        return len(self._live)

    def of_timer(self, timer: Timer) -> Call | None:
        """The live call whose patience a timer is."""
        return self._live.get(int(timer.key))

    def of_task(self, task_id: str) -> Call | None:
        """The call that is still running for a task."""
        return self._by_task.get(task_id)

    def on_server(self, server: str) -> list[Call]:
        return [call for call in self._live.values() if call.server == server]

    def is_live(self, call: Call) -> bool:
        return call.number in self._live

    # A call's way

    def start(
        self,
        link: Link,
        work: Work,
        *,
        timeout_ms: int | None,
        ttl_ms: int | None = None,
        attendant: Attendant | None = None,
    ) -> Call:
        """Send a call on its way; without a timeout its client waits for as long as it takes.

        Raises:
            TooManyTasks: the session has its fill of live calls and tasks.
        """
        if len(self._live) >= self._max_live:
            raise TooManyTasks(self._max_live)
        call = Call(
            next(self._numbers),
            link,
            work,
            ttl_ms=self._state.tasks.limits.ttl_ms(ttl_ms),
            started=self._clock.monotonic(),
            news=self,
        )
        if attendant is not None:
            call.attendant = call.caller = attendant
        self._live[call.number] = call
        if timeout_ms is not None:
            self._state.deadlines.set(call.timer, call.started + timeout_ms / 1000)
        log.debug("tool_execution_start", server=call.server, tool=work.tool, has_args=bool(work.args))
        self._tasks.start_soon(self._run, call)
        return call

    def take_up(self, link: Link, task: Task, work: Work, resumption: Resumption) -> Call:
        """Go on with a task from before a restart."""
        call = Call(next(self._numbers), link, work, ttl_ms=task.ttl_ms, started=self._clock.monotonic(), news=self)
        call.task_id = task.task_id
        call.resumption = resumption
        call.server_task = resumption.server_task
        call.turned.set()
        link.start()
        self._live[call.number] = call
        self._by_task[task.task_id] = call
        self._tasks.start_soon(self._run, call)
        return call

    def promote(self, call: Call, why: Promotion) -> Task:
        """Make a task of a call that still runs; its client need not wait for it."""
        task = self._make_task(call)
        call.promoted_by = why
        self._by_task[task.task_id] = call
        self._state.deadlines.discard(call.timer)
        self._telemetry.call_promoted(call.server, why)
        # A question or a client that went away is no timeout, and whoever counts those must not count it.
        event = "tool_execution_timeout" if why == "timeout" else "tool_execution_promoted"
        log.info(event, server=call.server, tool=call.tool, task_id=task.task_id, reason=why)
        self._on_promoted(call)
        call.attendant = Attendant()
        call.turned.set()
        return task

    def abandon(self, call: Call) -> None:
        """The client stopped waiting, but not because it does not want the result any more: keep it as a task."""
        if call.task_id is not None:
            return
        if self.is_live(call):
            self.promote(call, "client_gone")
        else:
            self._finish_task(call, self._make_task(call).task_id)

    def cancel(self, call: Call) -> None:
        """The client does not want it any more: end it here, and tell the server."""
        self._stop(call, "cancelled")

    async def cancel_task(self, call: Call) -> CancelOutcome:
        """End the call of a task, unless its server says that it has ended already: then its result is coming."""
        server, server_task = call.link.server, call.server_task
        outcome: CancelOutcome = "told"
        if server_task is not None and server is None:
            outcome = "told_later"
        elif server_task is not None and server is not None and not server.can_cancel_tasks:
            outcome = "not_told"
        elif server_task is not None and server is not None:
            call.is_cancelling = True
            try:
                await server.cancel_task(server_task.task_id)
                call.server_task = None
            except PeerError as error:
                if error.code == INVALID_PARAMS:
                    # What a server answers to the cancellation of a task that is over.
                    call.is_cancelling = False
                    return "has_ended"
                call.server_task = None
            except WireError:
                outcome = "told_later"
        self._stop(call, "cancelled")
        return outcome

    def hurry(self, task_id: str) -> None:
        """Have the server asked about its task now."""
        call = self._by_task.get(task_id)
        if call is not None and call.server_task is not None and call.link.server is not None:
            call.link.server.hurry_task(call.server_task.task_id)

    def expire(self, task_id: str) -> None:
        """The task's time is up: end its call, and tell the server."""
        task = self._state.tasks.get(task_id)
        log.info("task_expired", task_id=task_id, server=task.server, tool=task.tool, ttl_ms=task.ttl_ms)
        if (call := self._by_task.get(task_id)) is not None:
            self._stop(call, "expired")
        else:
            self._end_task(task_id, "expired")

    def fail_all(self, error: ToolError, server: str | None = None) -> None:
        """End every call, or every call on a server, because of something that we did."""
        for call in self.on_server(server) if server is not None else tuple(self._live.values()):
            call.error = error
            self._finished(call)
            call.scope.cancel()

    # What a call hears from its server

    def on_progress(self, call: Call, progress: Mapping[str, Any]) -> None:
        call.progress = progress
        call.attendant.progress(progress["progress"], progress["total"], progress["message"])
        if call.task_id is not None and self.is_live(call):
            self._state.tasks.update(call.task_id, progress=progress)

    def on_server_task(self, call: Call, task: RemoteTask) -> None:
        call.server_task = task
        if not self.is_live(call):
            return
        if call.task_id is not None:
            self._tell_table(call.task_id, task)
            self._on_native(call)
        elif call.attendant.takes_tasks:
            self.promote(call, "server_task")

    # Inside

    async def _run(self, call: Call) -> None:
        try:
            await self._talk(call)
        finally:
            # Whatever ended the task: whoever still waits for this call must not wait forever.
            if not call.turned.is_set():
                call.error = SessionClosed()
                call.turned.set()

    async def _talk(self, call: Call) -> None:
        with call.scope:
            try:
                call.result = await call.work.run(call.link, call)
            except EmceepeeError as error:
                call.cause = error
                call.error = as_tool_error(error, call.server)
            except Exception as error:
                log.exception("tool_execution_crashed", server=call.server, tool=call.tool)
                call.error = ToolError(f"{type(error).__name__} in the hub", "Its log has the details.")
            self._finished(call)

    def _finished(self, call: Call) -> None:
        if not self.is_live(call):
            log.info("late_result_dropped", server=call.server, tool=call.tool, task_id=call.task_id)
            return
        self._forget(call, "completed" if call.error is None else "failed")
        if call.task_id is not None:
            self._finish_task(call, call.task_id)
        call.turned.set()

    def _finish_task(self, call: Call, task_id: str) -> None:
        if call.error is None:
            self._end_task(task_id, "completed", result=call.result)
        elif call.is_cancelling or (call.server_task is not None and call.server_task.status == "cancelled"):
            self._end_task(task_id, "cancelled")
        else:
            text, code = str(call.error), None
            if isinstance(call.cause, PeerError):
                text = _without_server_id(text, call)
                code = {"code": call.cause.code, "message": _without_server_id(call.cause.message, call)}
                code |= {} if call.cause.data is None else {"data": call.cause.data}
            self._end_task(task_id, "failed", error=text, peer_error=code)

    def _stop(self, call: Call, outcome: FinalStatus) -> None:
        """End a call before its server is done with it."""
        if not self.is_live(call):
            return
        self._forget(call, "cancelled" if outcome == "cancelled" else "expired")
        if call.task_id is not None:
            self._end_task(call.task_id, outcome)
        if call.server_task is not None:
            self._tasks.start_soon(self._cancel_at_server, call)
        call.turned.set()
        call.scope.cancel()

    async def _cancel_at_server(self, call: Call) -> None:
        """A task of the server's is ended by name, once the server is there; ending our side would not do."""
        if (server_task := call.server_task) is None:
            return
        with self._clock.move_on_after(CANCEL_SECONDS) as waiting:
            try:
                server = await call.link.back()
                if server.can_cancel_tasks:
                    await server.cancel_task(server_task.task_id)
            except (ServerDisconnected, WireError) as error:
                log.info("cancel_not_delivered", server=call.server, task_id=call.task_id, error=str(error))
        if waiting.cancelled_caught:
            log.info("cancel_not_delivered", server=call.server, task_id=call.task_id, error="the server is away")

    def _make_task(self, call: Call) -> Task:
        task = self._state.tasks.create(
            call.server, call.tool, call.work.args, ttl_ms=call.ttl_ms, progress=call.progress
        )
        call.task_id = task.task_id
        if call.server_task is not None:
            self._tell_table(task.task_id, call.server_task)
            self._on_native(call)
        return task

    def _tell_table(self, task_id: str, server_task: RemoteTask) -> None:
        self._state.tasks.make_native(task_id, server_task.task_id, server_task.poll_interval_ms)
        # How it ended is told by its result, which is not here yet.
        if not server_task.is_terminal:
            status: TaskStatus = "input_required" if server_task.status == "input_required" else "working"
            self._state.tasks.update(task_id, status=status, status_message=server_task.status_message)

    def _end_task(
        self,
        task_id: str,
        status: FinalStatus,
        *,
        result: Mapping[str, Any] | None = None,
        error: str | None = None,
        peer_error: Mapping[str, Any] | None = None,
    ) -> None:
        task = self._state.tasks.finish(task_id, status, result=result, error=error, peer_error=peer_error)
        self._telemetry.task_ended(status)
        facts = {"task_id": task_id, "server": task.server, "tool": task.tool}
        if status == "failed":
            log.warning("task_failed", **facts, error=error)
        elif status == "completed":
            log.info("task_completed", **facts)

    def _forget(self, call: Call, outcome: CallOutcome) -> None:
        seconds = self._clock.monotonic() - call.started
        self._telemetry.call_ended(call.server, outcome, seconds)
        log.debug("tool_execution_complete", server=call.server, tool=call.tool, duration_ms=round(seconds * 1000))
        del self._live[call.number]
        self._state.deadlines.discard(call.timer)
        if call.task_id is not None:
            self._by_task.pop(call.task_id, None)
        self._on_ended(call)


def _without_server_id(text: str, call: Call) -> str:
    """An error for clients, who know a server's task by our id only."""
    if call.server_task is None:
        return text
    # Only as a whole word: a server may have called its task "1".
    return re.sub(rf"(?<!\w){re.escape(call.server_task.task_id)}(?!\w)", call.task_id or "(its task)", text)
