"""Following a server's task to its end, in the way of its era.

2025-11-25: the status is polled, and `tasks/result` is opened at once, because servers deliver the questions of a task
on its stream. 2026-07-28: everything is in what `tasks/get` answers, questions and result included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import anyio

from emceepee.client.inbound import Inbound
from emceepee.client.inputs import answer_to
from emceepee.client.questions import REJECTED, Question
from emceepee.client.resumption import OpenInput, ResultRequest, Resumption
from emceepee.client.tasks import (
    MAX_REFUSALS,
    PATIENCE,
    RemoteTask,
    ask_about_task,
    fetch_task,
    is_of_unknown_task,
)
from emceepee.client.watch import TaskNews
from emceepee.concurrency import companions
from emceepee.errors import ConnectionLost, PeerError, WireError
from emceepee.protocol import INTERNAL_ERROR, INVALID_PARAMS, REQUEST_CANCELLED
from emceepee.wire.era import Era
from emceepee.wire.peer import Peer

__all__ = ["RESULT_GRACE", "Follower"]

JsonObject: TypeAlias = dict[str, Any]

DEFAULT_POLL_MS = 1000
MIN_POLL_MS = 50
MAX_POLL_MS = 60_000
"""A server may ask for any interval; these keep it from being flooded, and us from not hearing for hours."""

RESULT_GRACE = 30.0
"""Seconds that `tasks/result` may take once the task has ended."""

NOBODY_ANSWERED = PeerError(REJECTED, "nobody answered the question: the connection that it came on is gone")

EVENLY = 0.5
"""In place of chance in a backoff: the tasks of a server are not asked about at the same moments anyway."""

NO_RESULT_CODES = frozenset({INVALID_PARAMS, INTERNAL_ERROR})
"""With these, servers answer `tasks/result` that have nothing stored for a task which failed."""


class Follower:
    """Sees one task through; `on_task` is told of every change."""

    def __init__(
        self,
        peer: Peer,
        inbound: Inbound,
        era: Era,
        origin: object,
        *,
        on_task: Callable[[RemoteTask], None],
        resumption: Resumption,
    ) -> None:
        self._peer = peer
        self._inbound = inbound
        self._era = era
        self._origin = origin
        self._on_task = on_task
        self._ended = anyio.Event()
        self._outcome: JsonObject | WireError | None = None
        self._inputs = resumption.inputs
        self._resumption = resumption
        self._serving: set[str] = set()
        self._held = anyio.CancelScope()
        """Around the request for the result; cancelled, it is made anew."""
        self._is_cut_off = False
        """Whether the last request for the result that came to an end did not get through to the server."""

    async def follow(self, task: RemoteTask) -> JsonObject:
        """The task's result.

        Raises:
            PeerError: the task failed or was cancelled, or the server does not know it any more.
            ConnectionLost: the connection is gone; the task may live on.
        """
        task_id, inbound = task.task_id, self._inbound
        await self._refuse_unanswered()
        with (
            inbound.origins.task_of(task_id, self._origin),
            inbound.remember(self._origin, self._resumption),
            inbound.watch.follow(task_id) as news,
        ):
            async with companions() as tasks:
                tasks.start_soon(self._keep_asking, task, news, tasks)
                if self._era.name == "handshake":
                    tasks.start_soon(self._fetch_result, task_id)
                await self._ended.wait()
        if not isinstance(self._outcome, ConnectionLost):
            self._withdraw_questions()
        if isinstance(self._outcome, WireError):
            raise self._outcome
        return self._outcome or {}

    def _withdraw_questions(self) -> None:
        for entry in self._inputs.values():
            if entry.question is not None:
                entry.question.withdraw("withdrawn", "the task has ended")

    def _end(self, outcome: JsonObject | WireError) -> None:
        if not self._ended.is_set():
            self._outcome = outcome
            self._ended.set()

    async def _ended_within(self, seconds: float) -> None:
        with self._peer.clock.move_on_after(seconds):
            await self._ended.wait()

    async def _refuse_unanswered(self) -> None:
        """Tell the server that nobody will answer what it asked on a connection before this one.

        Such a question ended with its connection. But where the session is taken up, the server still waits: only a
        response with the same id, in the same session, lets it go on.
        """
        left, self._resumption.unanswered = self._resumption.unanswered, []
        for request in left:
            if request.session_id == self._peer.state.session_id:
                await self._peer.refuse(request.request_id, NOBODY_ANSWERED)
        if left:
            self._resumption.changed()

    # The status

    async def _keep_asking(self, task: RemoteTask, news: TaskNews, tasks: anyio.abc.TaskGroup) -> None:
        refusals = silences = 0
        while not task.is_terminal:
            self._take_questions(task, tasks)
            heard = await news.wait(self._peer.clock.move_on_after(_interval(task, silences + refusals)))
            try:
                latest = heard if heard is not None else await self._get(task.task_id)
            except ConnectionLost as lost:
                if self._peer.is_over:
                    self._end(lost)
                    return
                silences += 1
                continue
            except PeerError as error:
                refusals += 1
                silences = 0
                if is_of_unknown_task(error) or refusals >= MAX_REFUSALS:
                    self._end(PeerError(error.code, f"the server lost the task: {error.message}", error.data))
                    return
                continue
            if silences:
                # The connection that the result is awaited on may have gone silent, too.
                self._held.cancel()
            refusals = silences = 0
            if _differs(task, latest):
                self._on_task(latest)
            task = latest
        await self._conclude(task)

    async def _get(self, task_id: str) -> RemoteTask:
        return await fetch_task(self._peer, self._era, task_id)

    async def _conclude(self, task: RemoteTask) -> None:
        if self._era.name == "modern":
            self._end(_inline_outcome(task))
            return
        while True:
            await self._ended_within(RESULT_GRACE / 2)
            self._held.cancel()
            await self._ended_within(RESULT_GRACE / 2)
            if self._ended.is_set() or not self._is_cut_off:
                break
        self._end(PeerError(-32603, f"the task is {task.status}, but the server does not give its result"))

    # 2025-11-25

    async def _fetch_result(self, task_id: str) -> None:
        """Hold `tasks/result` open; a server that does not block is asked again once the task has ended."""
        repeated = self._earlier_request()
        cuts = 0
        while not self._ended.is_set():
            with anyio.CancelScope() as self._held:
                await self._ask_for_result(task_id, repeated)
                if repeated is not None and not self._is_cut_off:
                    # Refused, or of no use: then the server must not go on with that one.
                    await self._cancel_earlier_request()
                    repeated = None
                    continue
                cuts = cuts + 1 if self._is_cut_off else 0
                await self._ended_within(PATIENCE.delay(max(cuts, 1), EVENLY))
            if self._held.cancelled_caught:
                await self._leave_earlier_request()
                repeated = None

    def _earlier_request(self) -> int | None:
        """The id of a request for the result that was cut off, if it can be sent once more.

        Servers tell a task's questions to whoever asked for its result first, be it on a connection that is gone. It is
        the same request, so the server answers both of them where the newest came from. To cancel the first would be
        the other way, but crossing its answer it ends the whole session of a server on 1.x of the Python SDK.
        """
        left = self._resumption.result_request
        is_known = left is not None and left.session_id is not None and left.session_id == self._peer.state.session_id
        return left.request_id if left is not None and is_known else None

    async def _ask_for_result(self, task_id: str, repeated: int | None) -> None:
        request_id = self._peer.new_request_id() if repeated is None else repeated
        self._resumption.result_request = ResultRequest(self._peer.state.session_id, request_id)
        self._resumption.changed()
        params = {"taskId": task_id}
        try:
            with self._inbound.origins.in_flight(request_id, self._origin):
                result = await ask_about_task(self._peer, "tasks/result", params, timeout=None, request_id=request_id)
            self._end(result if "content" in result else await self._reason_of_no_result(task_id) or result)
        except ConnectionLost as lost:
            self._is_cut_off = True
            if self._peer.is_over:
                self._end(lost)
        except PeerError as error:
            self._is_cut_off = False
            if self._peer.is_over or await self._is_over(task_id):
                self._end(await self._better_than(error, task_id))

    async def _leave_earlier_request(self) -> None:
        """Let go of what was held open, perhaps on a connection that nothing comes over any more."""
        await self._cancel_earlier_request()
        if (left := self._resumption.result_request) is not None:
            self._peer.abandon(left.request_id)
        self._is_cut_off = False

    async def _cancel_earlier_request(self) -> None:
        if (request_id := self._earlier_request()) is not None:
            reason = "the connection that it was sent on is gone"
            await self._peer.notify("notifications/cancelled", {"requestId": request_id, "reason": reason})

    async def _better_than(self, error: PeerError, task_id: str) -> PeerError:
        """The error itself, unless the task was cancelled or the error is only about the result that is missing."""
        reason = await self._reason_of_no_result(task_id)
        if reason is None or (reason.code != REQUEST_CANCELLED and error.code not in NO_RESULT_CODES):
            return error
        return reason

    async def _reason_of_no_result(self, task_id: str) -> PeerError | None:
        """Why a task has none, in the server's own words: some say it in the status only."""
        try:
            task = await self._get(task_id)
        except WireError:
            return None
        if task.status == "cancelled":
            return PeerError(REQUEST_CANCELLED, task.status_message or "the server cancelled the task")
        if task.status == "failed" and task.status_message:
            return PeerError(-32603, task.status_message)
        return None

    async def _is_over(self, task_id: str) -> bool:
        try:
            return (await self._get(task_id)).is_terminal
        except PeerError as error:
            return is_of_unknown_task(error)
        except ConnectionLost:
            return self._peer.is_over

    # 2026-07-28

    def _take_questions(self, task: RemoteTask, tasks: anyio.abc.TaskGroup) -> None:
        """Ask what has not been asked yet; each key stands for one question over the task's whole life."""
        requests = task.raw.get("inputRequests") if task.status == "input_required" else None
        for key, request in requests.items() if isinstance(requests, Mapping) else ():
            asked = OpenInput.of(request)
            entry = self._inputs.setdefault(key, asked)
            if entry.content != asked.content and entry.is_delivered:
                self._end(PeerError(-32603, f"the server used the input key {key!r} for two questions"))
            elif key not in self._serving and not entry.is_delivered:
                self._serving.add(key)
                tasks.start_soon(self._answer, task.task_id, key)

    async def _answer(self, task_id: str, key: str) -> None:
        entry = self._inputs[key]
        try:
            # The questions of a task do not end with us, as those of a result do: another connection may go on with it.
            answer = await answer_to(
                entry, key, self._inbound, arrival="task_input", origin=self._origin, wait=Question.answer
            )
        except PeerError as error:
            if entry.kind != "elicitation":
                self._end(error)
                return
            # The only way to say in an inputResponse that nobody will answer.
            answer = {"action": "cancel"}
        await self._deliver(task_id, key, answer)

    async def _deliver(self, task_id: str, key: str, answer: JsonObject) -> None:
        try:
            params = {"taskId": task_id, "inputResponses": {key: answer}}
            await ask_about_task(self._peer, "tasks/update", params, era=self._era)
            self._inputs[key].is_delivered = True
            self._resumption.changed()
        except PeerError as error:
            self._end(error)
        except ConnectionLost as error:
            if self._peer.is_over:
                self._end(error)
            # Not delivered: it is sent again as long as the server asks for it.
            self._serving.discard(key)


def _interval(task: RemoteTask, failures: int) -> float:
    """Seconds until the server is asked again, after so many questions in a row that it did not answer as it should."""
    wished = DEFAULT_POLL_MS if task.poll_interval_ms is None else task.poll_interval_ms
    interval = min(max(wished, MIN_POLL_MS), MAX_POLL_MS) / 1000
    return max(interval, PATIENCE.delay(failures, EVENLY)) if failures else interval


def _differs(before: RemoteTask, after: RemoteTask) -> bool:
    return (before.status, before.status_message) != (after.status, after.status_message)


def _inline_outcome(task: RemoteTask) -> JsonObject | PeerError:
    if task.status == "cancelled":
        return PeerError(REQUEST_CANCELLED, task.status_message or "the server cancelled the task")
    if task.status == "failed":
        error = task.raw.get("error")
        if not isinstance(error, Mapping):
            return PeerError(-32603, task.status_message or "the task failed")
        code = error.get("code")
        return PeerError(code if isinstance(code, int) else -32603, str(error.get("message", "")), error.get("data"))
    result = task.raw.get("result")
    if not isinstance(result, Mapping):
        return PeerError(-32603, "the task is completed, but has no result")
    return dict(result)
