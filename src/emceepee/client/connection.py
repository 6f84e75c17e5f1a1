"""One connection to one server, with all of MCP that a client may ask for.

Results are the server's own JSON, untouched: what we do not know survives. Who opens and closes a connection is in
`connect.py`; how a request that asks back is carried on is in `interactive.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import anyio

from emceepee.client.events import EventFeed, TaskCancelledEvent, TaskCreated, TasksListedEvent, TaskStatus, Update
from emceepee.client.forwarding import Forwarder
from emceepee.client.inbound import Inbound
from emceepee.client.interactive import InteractiveRequest
from emceepee.client.listening import Listener
from emceepee.client.paging import all_pages
from emceepee.client.questions import CallRef, Question
from emceepee.client.resumption import Resumption
from emceepee.client.streaming import updates_of
from emceepee.client.tasked import TaskRunner
from emceepee.client.tasks import RemoteTask, parse_task
from emceepee.client.terms import TaskSupport, Terms
from emceepee.errors import PeerError, TaskRequired
from emceepee.wire.era import EraName, with_tasks
from emceepee.wire.negotiation import Negotiated, ServerSession
from emceepee.wire.peer import OnProgress, Peer
from emceepee.wire.transport import TransportKind

__all__ = ["ServerConnection"]

JsonObject: TypeAlias = dict[str, Any]

CANCEL_TIMEOUT = 10.0
"""Seconds for a server to acknowledge that a task is cancelled."""


class ServerConnection:
    """An open connection; get one with `connect`. Every request raises `WireError`s, and `PeerError` for a refusal."""

    def __init__(
        self,
        peer: Peer,
        negotiated: Negotiated,
        inbound: Inbound,
        listener: Listener,
        spawn: Callable[..., object],
    ) -> None:
        self._peer = peer
        self._spawn = spawn
        self._runner = TaskRunner(peer, inbound, with_tasks(negotiated.era), listener, inbound.events)
        self._terms = Terms(negotiated)
        self.forward = Forwarder(peer, inbound, self._runner, self._terms).forward
        """Send a request of somebody else's, as it came."""
        self._negotiated = negotiated
        self._inbound = inbound
        self._listener = listener

    # What was agreed on

    @property
    def era(self) -> EraName:
        return self._negotiated.era.name

    @property
    def protocol_version(self) -> str:
        return self._negotiated.era.version

    @property
    def server_info(self) -> Mapping[str, Any]:
        return self._negotiated.server_info

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self._negotiated.capabilities

    @property
    def instructions(self) -> str | None:
        instructions = self._negotiated.answer.get("instructions")
        return instructions if isinstance(instructions, str) else None

    @property
    def transport(self) -> TransportKind:
        return self._peer.transport.kind

    @property
    def session_id(self) -> str | None:
        return self._peer.state.session_id

    @property
    def session(self) -> ServerSession | None:
        """What a later connection needs to take up this one's session, where there is one."""
        if self.era != "handshake" or self.transport != "http" or self.session_id is None:
            return None
        return ServerSession(self.session_id, self._negotiated.answer)

    @property
    def process_id(self) -> int | None:
        return self._peer.state.process_id

    @property
    def closed(self) -> anyio.Event:
        """Set when the connection has ended; `lost_reason` says why."""
        return self._peer.closed

    @property
    def is_over(self) -> bool:
        """Whether nothing can be sent any more; `closed` follows."""
        return self._peer.is_over

    @property
    def lost_reason(self) -> str:
        return self._peer.lost_reason

    def hang_up(self, reason: str) -> None:
        """Give the connection up: everybody who waits on it is told `reason`."""
        self._peer.hang_up(reason)

    # Tools

    async def list_tools(self) -> list[JsonObject]:
        """Every tool, over all pages."""
        tools = await all_pages(self.request, "tools/list", "tools")
        self._terms.learn(tools)
        return tools

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        origin: object | None = None,
    ) -> JsonObject:
        """Call a tool and wait for its result; questions that it asks come through `questions()` meanwhile.

        Cancelling the caller cancels the call at the server. `origin` is handed back as `question.belongs_to.call`.

        Raises:
            TaskRequired: the tool can be called as a task only.
        """
        if self.task_support(name) == "required":
            raise TaskRequired(name)
        params = _call_params(name, arguments, meta)
        request = self._interactive("tools/call", params, origin or CallRef("tools/call", name))
        return await request.run(
            timeout=timeout, on_progress=on_progress, headers=self._terms.headers(name, params["arguments"])
        )

    def task_support(self, name: str) -> TaskSupport:
        """Whether a tool of `list_tools` may or must be called as a task; no server that does not declare it may."""
        return self._terms.task_support(name)

    # Tools that may become tasks

    async def call_tool_task(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        ttl_ms: int | None = None,
        on_progress: OnProgress | None = None,
        on_task: Callable[[TaskCreated | TaskStatus], None] = lambda _update: None,
        meta: Mapping[str, Any] | None = None,
        origin: object | None = None,
        resumption: Resumption | None = None,
    ) -> JsonObject:
        """Call any tool and wait for its result; a task that comes in between is followed, and told to `on_task`.

        Cancelling the caller leaves a task at the server alone: end it with `cancel_task`. After `ConnectionLost`, a
        `resumption` that `is_possible` goes on with the same call on another connection.
        """
        params = _call_params(name, arguments, meta)
        if self.task_support(name) != "forbidden":
            params["task"] = {} if ttl_ms is None else {"ttl": ttl_ms}
        return await self._runner.call(
            self._terms.with_log_level(params),
            origin or CallRef("tools/call", name),
            on_progress=on_progress,
            on_task=on_task,
            headers=self._terms.headers(name, params["arguments"]),
            resumption=resumption,
        )

    def call_tool_stream(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        ttl_ms: int | None = None,
        meta: Mapping[str, Any] | None = None,
        origin: object | None = None,
    ) -> AsyncIterator[Update]:
        """Call any tool and hear of everything on the way: ends with a `Result` or an `Error`."""
        call = partial(self.call_tool_task, name, arguments, ttl_ms=ttl_ms, meta=meta, origin=origin)
        return updates_of(call, self._spawn)

    async def get_task(self, task_id: str) -> RemoteTask:
        """The server's word on one of its tasks."""
        return await self._runner.get(task_id)

    async def list_tasks(self, cursor: str | None = None) -> tuple[list[RemoteTask], str | None]:
        """One page of the server's tasks, and the cursor of the next (2025-11-25 only)."""
        page = await self.request("tasks/list", {} if cursor is None else {"cursor": cursor})
        tasks = [parse_task(raw) for raw in page.get("tasks", [])]
        for task in tasks:
            self._runner.note(task)
        self.events.emit(TasksListedEvent(tuple(tasks)))
        following = page.get("nextCursor")
        return tasks, following if isinstance(following, str) else None

    async def get_task_result(self, task_id: str, *, origin: object | None = None) -> JsonObject:
        """Wait for a task of the server's, however it was made, and return its result."""
        resumption = Resumption(server_task=await self.get_task(task_id))
        return await self._runner.take_up(resumption, origin or CallRef("tasks/result", task_id))

    async def cancel_task(self, task_id: str) -> None:
        """Have the server end a task.

        Raises:
            PeerError: it does not know the task, or the task has ended (-32602).
        """
        await self._peer.request("tasks/cancel", {"taskId": task_id}, era=self._runner.era, timeout=CANCEL_TIMEOUT)
        if not self._inbound.watch.is_followed(task_id):
            self.events.emit(TaskCancelledEvent(task_id))

    @property
    def can_cancel_tasks(self) -> bool:
        return self._terms.can_cancel_tasks

    @property
    def tasks(self) -> Mapping[str, RemoteTask]:
        """What was last heard of each task on this connection; the server is the authority."""
        return self._runner.tasks

    @property
    def events(self) -> EventFeed:
        """Everything that happens to tasks and questions on this connection."""
        return self._inbound.events

    # Resources and prompts

    async def list_resources(self) -> list[JsonObject]:
        return await all_pages(self.request, "resources/list", "resources")

    async def list_resource_templates(self) -> list[JsonObject]:
        return await all_pages(self.request, "resources/templates/list", "resourceTemplates")

    async def read_resource(
        self,
        uri: str,
        *,
        timeout: float | None = None,
        origin: object | None = None,
        resumption: Resumption | None = None,
    ) -> JsonObject:
        """Read a resource; `resumption` is as for `call_tool_task`."""
        origin = origin or CallRef("resources/read", uri)
        request = self._interactive("resources/read", {"uri": uri}, origin, resumption)
        return await request.run(timeout=timeout)

    async def subscribe(self, uri: str) -> None:
        """Have `notifications/resources/updated` sent for `uri`."""
        if self.era == "handshake":
            await self.request("resources/subscribe", {"uri": uri})
        else:
            self._listener.add_resource(uri)

    async def unsubscribe(self, uri: str) -> None:
        if self.era == "handshake":
            await self.request("resources/unsubscribe", {"uri": uri})
        else:
            self._listener.remove_resource(uri)

    async def list_prompts(self) -> list[JsonObject]:
        return await all_pages(self.request, "prompts/list", "prompts")

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
        origin: object | None = None,
        resumption: Resumption | None = None,
    ) -> JsonObject:
        params: JsonObject = {"name": name}
        if arguments is not None:
            params["arguments"] = dict(arguments)
        request = self._interactive("prompts/get", params, origin or CallRef("prompts/get", name), resumption)
        return await request.run(timeout=timeout)

    async def complete(
        self, ref: Mapping[str, Any], argument: Mapping[str, str], context: Mapping[str, Any] | None = None
    ) -> JsonObject:
        """Completions for an argument of a prompt or a resource template, as the server gives them."""
        params: JsonObject = {"ref": dict(ref), "argument": dict(argument)}
        if context is not None:
            params["context"] = dict(context)
        return await self.request("completion/complete", params)

    # The rest

    async def set_log_level(self, level: str) -> None:
        """Have the server log at `level` and above: once for all, or with every request, as the era has it."""
        if self.era == "handshake":
            await self.request("logging/setLevel", {"level": level})
        else:
            self._terms.log_level = level

    async def ping(self, *, timeout: float | None = 10.0) -> None:
        """Make sure that the server answers; any answer will do."""
        method = "ping" if self.era == "handshake" else "server/discover"
        try:
            await self.request(method, timeout=timeout)
        except PeerError:
            return

    async def set_roots(self, roots: Sequence[str]) -> None:
        """Answer `roots/list` with `roots` from now on, and tell the server."""
        self._inbound.roots = tuple(roots)
        if self.era == "handshake":
            await self.notify("notifications/roots/list_changed")

    def questions(self) -> AsyncIterator[Question]:
        """The server's questions as they come, beginning with those that nobody has taken yet."""
        return self._inbound.questions()

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> JsonObject:
        """Any request at all, for what has no method of its own here."""
        if self._terms.log_level is not None:
            params = self._terms.with_log_level(params or {})
        return await self._peer.request(method, params, timeout=timeout, on_progress=on_progress)

    async def wait_until_listening(self) -> None:
        """Wait until the server has said that it tells of changes (modern; the handshake era just does)."""
        if self.era == "modern":
            await self._listener.acknowledged()

    def hurry_task(self, task_id: str) -> None:
        """Have the server asked about a task now."""
        self._inbound.watch.hurry(task_id)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        await self._peer.notify(method, params)

    def _interactive(
        self, method: str, params: Mapping[str, Any], origin: object, resumption: Resumption | None = None
    ) -> InteractiveRequest:
        params = self._terms.with_log_level(params)
        return InteractiveRequest(self._peer, self._inbound, method, params, origin, resumption=resumption)


def _call_params(name: str, arguments: Mapping[str, Any] | None, meta: Mapping[str, Any] | None) -> JsonObject:
    params: JsonObject = {"name": name, "arguments": dict(arguments or {})}
    return {**params, "_meta": dict(meta)} if meta else params
