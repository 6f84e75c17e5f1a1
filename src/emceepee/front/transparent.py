"""One server as it is: its own tools, prompts, resources and capabilities, under a URL of ours.

Requests go to the server as they came, and so do its answers. What we add is what the server, or the client, lacks: a
link that comes back, a task where the client knows tasks, and a place for questions that the client cannot be asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import anyio
from mcp.shared.inbound import validate_mcp_param_headers
from mcp_types import INVALID_PARAMS
from mcp_types.methods import INPUT_REQUIRED_METHODS, SPEC_CLIENT_METHODS
from structlog import get_logger

from emceepee.client import OnBehalfOf, ServerConnection
from emceepee.core.buffers import known_level
from emceepee.core.tasks import Task
from emceepee.errors import EmceepeeError, PeerError, WireError
from emceepee.front.capabilities import capabilities_for
from emceepee.front.client import ClientFacts
from emceepee.front.jsonrpc import Request, as_peer_error
from emceepee.front.outcomes import AskedBack, BecameTask, Outcome, can_be_asked_back
from emceepee.front.task_forms import error_of
from emceepee.front.visit import Visit
from emceepee.hub import Call, Forwarded, Link, Session
from emceepee.protocol import SUBSCRIPTION_ID_META_KEY, without_meta
from emceepee.tools import turned_call

__all__ = ["ServerService"]

JsonObject: TypeAlias = dict[str, Any]
log = get_logger(__name__)


class ServerService:
    streams_at_once = True
    tells_changes = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.endpoint = f"server/{name}"
        self._subscribers: WeakKeyDictionary[Session, Counter[str]] = WeakKeyDictionary()

    async def introduce(self, session: Session, client: ClientFacts) -> JsonObject:
        server = await self.server(session)
        introduction: JsonObject = {
            "capabilities": capabilities_for(client, server.capabilities, server.era),
            "serverInfo": dict(server.server_info),
        }
        if server.instructions is not None:
            introduction["instructions"] = server.instructions
        return introduction

    def workspace_of(self, request: Request) -> str | None:
        """Its arguments are the server's: the workspace is in the URL."""
        return None

    async def answer(self, visit: Visit) -> Outcome:
        _let_hear_server(visit)
        if visit.method in INPUT_REQUIRED_METHODS or visit.method not in SPEC_CLIENT_METHODS:
            # What the protocol does not know may take its time, and ask, as well.
            return await self._call(visit)
        server = await self.server(visit.session)
        try:
            match visit.method:
                case "logging/setLevel":
                    await server.set_log_level(level := _string(visit, "level"))
                    self.link(visit.session).wishes.set_log_level(level)
                    return {}
                case "resources/subscribe":
                    await self._subscribe(visit.session, server, _string(visit, "uri"))
                    return {}
                case "resources/unsubscribe":
                    await self._unsubscribe(visit.session, _string(visit, "uri"))
                    return {}
                case _:
                    return await server.forward(
                        visit.method,
                        _outgoing(visit),
                        client=_behalf(visit.client),
                        passes_urls=_opens_urls(visit.client),
                    )
        except WireError as error:
            raise as_peer_error(error) from None

    async def may_issue_states(self, visit: Visit) -> bool:
        return (await self.server(visit.session)).era == "modern"

    async def go_on(self, visit: Visit, task_id: str) -> Outcome:
        visit.served.takes_tasks = _takes_tasks(visit)
        return await self._hold(visit, task_id)

    def on_client_notification(self, session: Session, method: str, params: Mapping[str, Any]) -> None:
        """Passed on, but for what only concerns the client's connection to us."""
        if method not in ("notifications/initialized", "notifications/progress"):
            session.spawn(self._contained, self._notify, session, method, params)

    def passed_on(self, server: str, method: str, params: Mapping[str, Any]) -> JsonObject | None:
        return without_meta(params, {SUBSCRIPTION_ID_META_KEY}) if server == self.name else None

    async def listen(self, session: Session, uris: Sequence[str]) -> None:
        server = await self.server(session)
        listened: list[str] = []
        try:
            for uri in uris:
                await self._subscribe(session, server, uri)
                listened.append(uri)
            await server.wait_until_listening()
        except BaseException as error:
            self.stop_listening(session, listened)
            if isinstance(error, WireError):
                raise as_peer_error(error) from None
            raise

    def stop_listening(self, session: Session, uris: Sequence[str]) -> None:
        for uri in uris:
            if not session.is_closing:
                session.spawn(self._contained, self._unsubscribe, session, uri)

    def is_subscribed(self, session: Session, uri: str) -> bool:
        return uri in self._subscribers.get(session, ())

    # Servers

    def link(self, session: Session) -> Link:
        try:
            return session.link(self.name)
        except EmceepeeError as error:
            raise as_peer_error(error) from None

    async def server(self, session: Session) -> ServerConnection:
        """
        Raises:
            PeerError: it cannot be had.
        """
        try:
            return await self.link(session).connected()
        except EmceepeeError as error:
            raise as_peer_error(error) from None

    async def _subscribe(self, session: Session, server: ServerConnection, uri: str) -> None:
        """Several listeners of one workspace share a subscription; a client that repeats itself still has only one."""
        await server.subscribe(uri)
        count = self._subscribers.setdefault(session, Counter())
        count[uri] = 1 if session.origin.workspace is None else count[uri] + 1
        # In a workspace it is a stream that listens, and ends with its client.
        self.link(session).wishes.subscribe(uri, is_kept=session.origin.workspace is None)

    async def _unsubscribe(self, session: Session, uri: str) -> None:
        count = self._subscribers.setdefault(session, Counter())
        count[uri] -= 1
        if count[uri] > 0:
            return
        del count[uri]
        link = self.link(session)
        link.wishes.unsubscribe(uri)
        if link.server is not None:
            await link.server.unsubscribe(uri)

    async def _notify(self, session: Session, method: str, params: Mapping[str, Any]) -> None:
        link = self.link(session)
        if link.server is not None and link.server.era == "handshake":
            await link.server.notify(method, params)

    async def _contained(self, run: Callable[..., Awaitable[None]], *args: object) -> None:
        """Something that nobody waits for: its failure is no reason to end the session."""
        try:
            await run(*args)
        except EmceepeeError as error:
            log.info("not_passed_on", server=self.name, error=str(error))

    # Calls

    async def _call(self, visit: Visit) -> Outcome:
        session = visit.session
        await self._check_headers(visit)
        visit.served.takes_tasks = takes_tasks = _takes_tasks(visit)
        work = Forwarded(
            visit.method,
            _outgoing(visit),
            client=_behalf(visit.client),
            # In a task it would be the end of it: there, its client is asked.
            passes_urls=_opens_urls(visit.client) and visit.asked_for_task is None,
            takes_tasks=takes_tasks,
            wants_progress=visit.served.wants_progress,
        )
        # A client that knows no tasks could not be told of one: it waits for as long as it takes.
        timeout_ms = session.settings.default_timeout_ms if takes_tasks else None
        if visit.asked_for_task is not None:
            timeout_ms = 0
        try:
            call = await turned_call(
                visit.caller(), self.name, work, timeout_ms=timeout_ms, ttl_ms=_ttl(visit, takes_tasks=takes_tasks)
            )
        except EmceepeeError as error:
            raise as_peer_error(error) from None
        if call.task_id is not None:
            return await self._hold(visit, call.task_id)
        return _result_of_call(call)

    async def _check_headers(self, visit: Visit) -> None:
        """`Mcp-Param-*` has to say what the arguments say; towards the server it is written anew from these."""
        if visit.headers is None or visit.method != "tools/call" or not visit.client.is_modern:
            return
        link, name = self.link(visit.session), str(visit.params.get("name"))
        server = await self.server(visit.session)
        if name not in link.tools:
            try:
                await link.refresh_tools(server)
            except WireError as error:
                raise as_peer_error(error) from None
        arguments = visit.params.get("arguments")
        refused = validate_mcp_param_headers(
            link.tools.get(name, {}).get("inputSchema"),
            arguments if isinstance(arguments, Mapping) else {},
            visit.headers,
        )
        if refused is not None:
            raise PeerError(refused.code, refused.message, refused.data)

    async def _hold(self, visit: Visit, task_id: str) -> Outcome:
        """The call goes on as a task: tell the client so if it knows tasks, or else wait for it."""
        if visit.served.takes_tasks:
            return BecameTask(task_id)
        session = visit.session
        try:
            while True:
                task = await session.wait_for_task(task_id, None)
                if task.is_terminal:
                    await session.durable()
                    return _result_of_task(task)
                if can_be_asked_back(visit.client, session.state.questions.pending(task_id=task_id)):
                    await session.durable()
                    return AskedBack(task_id)
                # Its questions stand in the list, and somebody else may answer them.
                await session.wait_for_event()
        except anyio.get_cancelled_exc_class():
            if visit.served.hang_up == "cancelled" and (call := session.calls.of_task(task_id)) is not None:
                session.calls.cancel(call)
            raise


def _outgoing(visit: Visit) -> Mapping[str, Any]:
    """The parameters for the server.

    We declare tasks for `tools/call` alone, so that `task` means nothing with other requests of the protocol. A server
    that makes tasks of those must not see it: its client could not ask for such a task here. With a request that the
    protocol does not know, it is a word like any other.
    """
    if visit.method == "tools/call" or visit.method not in SPEC_CLIENT_METHODS:
        return visit.params
    return {key: value for key, value in visit.params.items() if key != "task"}


def _behalf(client: ClientFacts) -> OnBehalfOf | None:
    return OnBehalfOf(client.capabilities, client.info) if client.is_modern else None


def _let_hear_server(visit: Visit) -> None:
    """What the server says during the request is for its client; of logs, as much as it asked for."""
    visit.served.hears_server = True
    if not visit.client.is_modern:
        # It has told the server, once and for all.
        visit.served.log_level = "debug"
    elif visit.client.log_level is not None:
        visit.served.log_level = known_level(visit.client.log_level)


def _takes_tasks(visit: Visit) -> bool:
    """Whether its client can be told of a task instead of a result."""
    return visit.method == "tools/call" and (visit.client.knows_tasks or visit.asked_for_task is not None)


def _opens_urls(client: ClientFacts) -> bool:
    """Whether it sees to the error that names URLs to be opened first; 2026-07-28 has none."""
    return client.understands_resuming and client.can_be_asked("elicitation", {"mode": "url"})


def _result_of_call(call: Call) -> JsonObject:
    if call.error is not None:
        raise as_peer_error(call.cause or call.error)
    return call.result or {}


def _result_of_task(task: Task) -> JsonObject:
    if task.status == "completed":
        return dict(task.result or {})
    raise error_of(task)


def _ttl(visit: Visit, *, takes_tasks: bool) -> int | None:
    """What the client wishes; one that knows no tasks has no say in it, and must not lose its call to our default."""
    if visit.wished_ttl_ms is not None:
        return visit.wished_ttl_ms
    return None if takes_tasks else visit.session.settings.limits.tasks.max_ttl_ms


def _string(visit: Visit, key: str) -> str:
    value = visit.params.get(key)
    if not isinstance(value, str):
        raise PeerError(INVALID_PARAMS, f"{visit.method} needs a {key}")
    return value
