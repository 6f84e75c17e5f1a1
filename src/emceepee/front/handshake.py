"""The handshake era towards clients: one session, its requests, and the tasks of 2025-11-25."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, TypeAlias

import anyio
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

from emceepee.core.tasks import Task
from emceepee.errors import PeerError, TaskNotFound
from emceepee.front.asking import Asking, Post
from emceepee.front.client import ClientFacts
from emceepee.front.jsonrpc import Notification, Request, Response, answered
from emceepee.front.outcomes import AskedBack, BecameTask, Outcome
from emceepee.front.served import ServedRequest, cancelled
from emceepee.front.service import Service
from emceepee.front.task_forms import error_of, handshake_task, with_related_task
from emceepee.front.visit import Visit
from emceepee.hub import Hub, Origin, Session
from emceepee.tools import for_clients

__all__ = ["HandshakeClient", "open_client"]

JsonObject: TypeAlias = dict[str, Any]

TASKS_PER_PAGE = 50

ROOTS_SECONDS = 5.0
"""How long a client is waited for that was asked for its roots; after that those of the settings count."""


def _agreed_version(params: Mapping[str, Any]) -> str:
    """The client's version if we speak it, else our newest of that era."""
    wished = params.get("protocolVersion")
    if not isinstance(wished, str):
        raise PeerError(INVALID_PARAMS, "initialize needs a protocolVersion")
    return wished if wished in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION


async def open_client(
    hub: Hub, service: Service, params: Mapping[str, Any], *, principal: str, may_spawn: bool
) -> tuple[HandshakeClient, JsonObject]:
    """A new client, and the answer to its `initialize`.

    Raises:
        PeerError: it is not welcome, or what it wants to talk to cannot be had.
    """
    facts = ClientFacts.of_handshake(params, _agreed_version(params))
    origin = Origin(principal, endpoint=service.endpoint, client=facts.as_json())
    session = await hub.open_session(origin, connect=False)
    client = HandshakeClient(hub, session, facts, service, may_spawn=may_spawn)
    try:
        introduction = await service.introduce(session, facts)
    except BaseException:
        session.close()
        raise
    return client, {"protocolVersion": facts.version, **introduction}


class HandshakeClient:
    """A session as its client sees it, whatever wire it is on."""

    def __init__(self, hub: Hub, session: Session, facts: ClientFacts, service: Service, *, may_spawn: bool) -> None:
        self.session = session
        self.facts = facts
        self.service = service
        self.asking = Asking(session, facts)
        self.served: dict[str | int, ServedRequest] = {}
        """What waits for an answer, by its id."""
        self.standalone: Post | None = None
        """Where messages go that belong to no request; None while there is no such place."""
        self.is_listening: Callable[[], bool] = lambda: True
        """Whether somebody reads there just now."""
        self._hub = hub
        self._may_spawn = may_spawn
        self._tasks: dict[str, JsonObject] = {}
        """Tasks that were made at its own wish, as it was last told of them."""
        self._is_ready = anyio.Event()
        if service.endpoint and isinstance(facts.capabilities.get("roots"), Mapping):
            session.news.roots_of_client = self._roots
        stop_listening = session.news.listen(self._on_notification)
        stop_watching = session.state.watchers.add(self._on_task_change)
        session.on_closed(stop_listening)
        session.on_closed(stop_watching)

    async def take(self, message: Notification | Response) -> None:
        """What needs no answer."""
        if isinstance(message, Response):
            await self.asking.answered(message)
        elif message.method == "notifications/initialized":
            self._is_ready.set()
        elif message.method == "notifications/cancelled":
            cancelled(self.served, message.params)
        else:
            self.service.on_client_notification(self.session, message.method, message.params)

    async def respond(self, request: Request, served: ServedRequest) -> JsonObject:
        """The response message to a request; a client that has read it may use the id again at once."""
        try:
            with self.session.in_use(), self.session.in_logs():
                return await answered(request, lambda: self._answer(request, served))
        finally:
            self.release(served)

    async def take_up(self, request: Request, served: ServedRequest, task_id: str | None) -> JsonObject:
        """As `respond`, when its client comes back for a request that was given up, and went on as a task at best."""
        try:
            with self.session.in_use(), self.session.in_logs():
                return await answered(request, lambda: self._go_on(request, served, task_id))
        finally:
            self.release(served)

    def release(self, served: ServedRequest) -> None:
        """It has its answer, or needs none any more: its id is free."""
        if self.served.get(served.request_id) is served:
            del self.served[served.request_id]

    async def _answer(self, request: Request, served: ServedRequest) -> JsonObject:
        if not isinstance(request.params.get("_meta", {}), Mapping):
            raise PeerError(INVALID_PARAMS, "_meta has to be an object")
        if request.method == "ping":
            return {}
        if request.method.startswith("tasks/") and self.facts.understands_resuming:
            return await self._answer_about_task(request, served)
        visit = Visit(self._hub, self.session, self.facts, request, served, may_spawn=self._may_spawn)
        return self._in_this_era(await self.service.answer(visit))

    async def _go_on(self, request: Request, served: ServedRequest, task_id: str | None) -> JsonObject:
        if task_id is None:
            if request.method == "tasks/result":
                return await self._answer(request, served)
            raise PeerError(INTERNAL_ERROR, "It was given up while nobody waited for it: send it again")
        visit = Visit(self._hub, self.session, self.facts, request, served, may_spawn=self._may_spawn)
        # With our tools it is told what the task waits for, and need not be asked.
        with self._attending(task_id, served) if self.service.endpoint else nullcontext():
            return self._in_this_era(await self.service.go_on(visit, task_id))

    def _in_this_era(self, outcome: Outcome) -> JsonObject:
        if isinstance(outcome, BecameTask):
            return {"task": self._told_task(self.session.state.tasks.get(outcome.task_id))}
        if isinstance(outcome, AskedBack):
            raise RuntimeError("a handshake client is asked on its own stream")
        return for_clients(outcome)

    # Tasks of 2025-11-25

    async def _answer_about_task(self, request: Request, served: ServedRequest) -> JsonObject:
        match request.method:
            case "tasks/get":
                shown = handshake_task(self.session, self._task(request.params))
                await self.session.durable()
                return shown
            case "tasks/result":
                return await self._task_result(self._task(request.params), served)
            case "tasks/list":
                page = self._task_page(request.params.get("cursor"))
                await self.session.durable()
                return page
            case "tasks/cancel":
                return await self._cancel_task(self._task(request.params))
            case _:
                raise PeerError(METHOD_NOT_FOUND, f"Method not found: {request.method}")

    def _task(self, params: Mapping[str, Any]) -> Task:
        task_id = params.get("taskId")
        try:
            return self.session.state.tasks.get(task_id if isinstance(task_id, str) else "")
        except TaskNotFound:
            raise PeerError(INVALID_PARAMS, f"Task not found: {task_id}") from None

    async def _task_result(self, task: Task, served: ServedRequest) -> JsonObject:
        with self._attending(task.task_id, served):
            task = await self.session.wait_for_end(task.task_id)
        await self.session.durable()
        if task.status != "completed":
            raise error_of(task)
        return with_related_task(for_clients(task.result or {}), task.task_id)

    @contextmanager
    def _attending(self, task_id: str, served: ServedRequest) -> Iterator[None]:
        """Meanwhile the client waits for the task, and can be asked."""
        call = self.session.calls.of_task(task_id)
        if call is not None:
            self.session.questions.attend(call, served)
        try:
            yield
        finally:
            if call is not None:
                self.session.questions.unattend(call, served)

    def _task_page(self, cursor: object) -> JsonObject:
        tasks = self.session.state.tasks.find(terminal=True)
        start = 0
        if cursor is not None:
            ids = [task.task_id for task in tasks]
            if cursor not in ids:
                raise PeerError(INVALID_PARAMS, f"Unknown cursor: {cursor}")
            start = ids.index(str(cursor)) + 1
        page = tasks[start : start + TASKS_PER_PAGE]
        shown: JsonObject = {"tasks": [handshake_task(self.session, task) for task in page]}
        if start + TASKS_PER_PAGE < len(tasks):
            shown["nextCursor"] = page[-1].task_id
        return shown

    async def _cancel_task(self, task: Task) -> JsonObject:
        call = self.session.calls.of_task(task.task_id)
        if task.is_terminal or call is None or await self.session.calls.cancel_task(call) == "has_ended":
            raise PeerError(INVALID_PARAMS, f"Task {task.task_id} has ended already")
        await self.session.durable()
        return handshake_task(self.session, self.session.state.tasks.get(task.task_id))

    def _told_task(self, task: Task) -> JsonObject:
        shown = self._tasks[task.task_id] = handshake_task(self.session, task)
        return shown

    def _on_task_change(self, task_id: str) -> None:
        if task_id in self._tasks:
            self.session.spawn(self._tell_task, task_id)

    async def _tell_task(self, task_id: str) -> None:
        await self.session.durable()
        told = self._tasks.get(task_id)
        try:
            task = self.session.state.tasks.get(task_id)
        except TaskNotFound:
            self._tasks.pop(task_id, None)
            return
        if told is None:
            return
        shown = handshake_task(self.session, task)
        if shown["status"] == told["status"] and shown.get("statusMessage") == told.get("statusMessage"):
            return
        self._tasks[task_id] = shown
        self._send("notifications/tasks/status", shown)
        if task.is_terminal:
            del self._tasks[task_id]

    # What servers ask, and say

    async def _roots(self) -> Mapping[str, Any] | None:
        """The client's roots; None if there is no way to ask it in time."""
        with self._hub.clock.move_on_after(ROOTS_SECONDS):
            await self._is_ready.wait()
            try:
                return await self.asking.request("roots/list", {}, self._any_stream())
            except PeerError:
                return None
        return None

    def _any_stream(self) -> Post:
        """A stream that the client reads: its own, or that of a request that is open."""
        standalone = self.standalone or (lambda _message: None)
        if self.standalone is not None and self.is_listening():
            return standalone
        return next((served.post for served in self.served.values()), standalone)

    def _on_notification(self, server: str, method: str, params: Mapping[str, Any]) -> None:
        if (passed := self.service.passed_on(server, method, params)) is not None:
            self._send(method, passed)

    def _send(self, method: str, params: JsonObject) -> None:
        if self.standalone is not None:
            self.standalone({"jsonrpc": "2.0", "method": method, "params": params})
