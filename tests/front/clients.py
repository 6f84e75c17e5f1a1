"""Clients of both eras, and a hub with a front for them to talk to."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, TypeAlias

import anyio
from mcp.shared.inbound import encode_header_value
from starlette.types import Scope

from emceepee.config import HttpSettings, HubSettings
from emceepee.errors import PeerError
from emceepee.front.http import HttpFront
from emceepee.front.refusals import Refused
from emceepee.hub import Hub, Session
from emceepee.store import Store
from emceepee.testing import Answer, FakeClock, ScriptedServer, running_hub, settle
from tests.front.asgi import HttpExchange, Web

__all__ = ["MODERN", "TASKS", "Handshake", "Modern", "World", "front", "tool_answer"]

JsonObject: TypeAlias = dict[str, Any]

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
TASKS: JsonObject = {"extensions": {"io.modelcontextprotocol/tasks": {}}}

_NAME_OF = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}

_BOTH = "application/json, text/event-stream"


class TokenGate:
    """Whoever says `Bearer ada` is ada."""

    documents: Mapping[str, Mapping[str, Any]] = {}

    async def principal_of(self, scope: Scope) -> str:
        found = dict(scope["headers"]).get(b"authorization", b"Bearer local").decode()
        principal: str = found.removeprefix("Bearer ")
        if principal == "nobody":
            raise Refused(401, PeerError(-32600, "Who are you?"))
        return principal


class World:
    """A hub, its HTTP front, and connections to it."""

    def __init__(self, hub: Hub, clock: FakeClock, app: HttpFront, web: Web) -> None:
        self.hub = hub
        self.clock = clock
        self.app = app
        self.web = web

    async def handshake(
        self,
        capabilities: JsonObject | None = None,
        *,
        url: str = "/mcp",
        version: str = HANDSHAKE,
        principal: str = "local",
    ) -> Handshake:
        client = Handshake(self, url, version, principal)
        await client.initialize(capabilities or {})
        return client

    def modern(self, capabilities: JsonObject | None = None, *, url: str = "/mcp", principal: str = "local") -> Modern:
        return Modern(self, url, capabilities or {}, principal)


@asynccontextmanager
async def front(
    servers: Mapping[str, ScriptedServer],
    *,
    clock: FakeClock,
    settings: HubSettings | None = None,
    http: HttpSettings | None = None,
    store: Store | None = None,
    others: Mapping[str, ScriptedServer] | None = None,
) -> AsyncIterator[World]:
    """A front in memory for the body; when it ends, every connection is cut, and none may be left."""
    async with running_hub(servers, servers=others, clock=clock, settings=settings, store=store) as running:
        app = HttpFront(running.hub, http or HttpSettings(), gate=TokenGate())
        async with anyio.create_task_group() as tasks:
            web = Web(app, tasks)
            yield World(running.hub, clock, app, web)
            web.hang_up()
            await clock.advance(60)
            assert web.unfinished == []
            for session in running.hub.sessions.values():
                _assert_nothing_is_left(session)


def _assert_nothing_is_left(session: Session) -> None:
    """With its client gone, a session has neither waiters nor questions that anybody is being asked."""
    assert session.state.events.waiters == 0
    assert session.questions.asked_natively == 0


class _Client:
    def __init__(self, world: World, url: str, principal: str) -> None:
        self.world = world
        self.url = url
        self.principal = principal
        self._ids = count(1)

    def _headers(self) -> dict[str, str]:
        return {
            "host": "127.0.0.1",
            "accept": _BOTH,
            "content-type": "application/json",
            "authorization": f"Bearer {self.principal}",
        }


class Handshake(_Client):
    def __init__(self, world: World, url: str, version: str, principal: str) -> None:
        super().__init__(world, url, principal)
        self.version = version
        self.session_id = ""
        self.introduction: JsonObject = {}

    @property
    def session(self) -> Session:
        return self.world.hub.sessions[self.session_id]

    async def initialize(self, capabilities: JsonObject) -> None:
        params = {
            "protocolVersion": self.version,
            "capabilities": capabilities,
            "clientInfo": {"name": "test", "version": "1"},
        }
        exchange = self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        self.introduction = await exchange.result()
        self.session_id = exchange.headers["mcp-session-id"]
        await (self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})).done.wait()
        await settle()

    def post(self, message: JsonObject, **headers: str) -> HttpExchange:
        return self.world.web.open("POST", self.url, {**self.headers(), **headers}, json.dumps(message).encode())

    def headers(self) -> dict[str, str]:
        headers = self._headers()
        if self.session_id:
            headers |= {"mcp-session-id": self.session_id, "mcp-protocol-version": self.version}
        return headers

    def get(self, last_event_id: str | None = None) -> HttpExchange:
        headers = self.headers()
        if last_event_id is not None:
            headers["last-event-id"] = last_event_id
        return self.world.web.open("GET", self.url, headers)

    def delete(self) -> HttpExchange:
        return self.world.web.open("DELETE", self.url, self.headers())

    def request(
        self, method: str, params: JsonObject | None = None, *, request_id: str | int | None = None
    ) -> HttpExchange:
        number = next(self._ids) if request_id is None else request_id
        return self.post({"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}})

    def tool(self, name: str, /, *, meta: JsonObject | None = None, **arguments: Any) -> HttpExchange:
        """A tool's call; its arguments as the client writes them."""
        params: JsonObject = {"name": name, "arguments": arguments}
        if meta is not None:
            params["_meta"] = meta
        return self.request("tools/call", params)

    def execute(self, server: str, tool: str, args: JsonObject | None = None, **options: Any) -> HttpExchange:
        return self.tool("execute_tool", server=server, tool=tool, args=args or {}, **options)

    async def call(self, name: str, /, **arguments: Any) -> Answer:
        """A tool's answer."""
        return Answer(await self.tool(name, **arguments).result())

    async def notify(self, method: str, params: JsonObject | None = None) -> None:
        exchange = self.post({"jsonrpc": "2.0", "method": method, "params": params or {}})
        await exchange.done.wait()
        assert exchange.status == 202

    async def answer(self, request: JsonObject, result: JsonObject) -> None:
        """Respond to what the front has asked."""
        await self._respond({"jsonrpc": "2.0", "id": request["id"], "result": result})

    async def refuse(self, request: JsonObject, code: int, message: str, **facts: Any) -> None:
        error = {"code": code, "message": message, **facts}
        await self._respond({"jsonrpc": "2.0", "id": request["id"], "error": error})

    async def _respond(self, message: JsonObject) -> None:
        exchange = self.post(message)
        await exchange.done.wait()
        assert exchange.status == 202


class Modern(_Client):
    def __init__(self, world: World, url: str, capabilities: JsonObject, principal: str) -> None:
        super().__init__(world, url, principal)
        self.capabilities = capabilities

    def envelope(self, **more: Any) -> JsonObject:
        return {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
            **more,
        }

    def request(
        self,
        method: str,
        params: JsonObject | None = None,
        *,
        meta: JsonObject | None = None,
        headers: JsonObject | None = None,
        request_id: str | int | None = None,
    ) -> HttpExchange:
        """A request as it should be; a None in `headers` leaves that one out."""
        dressed = {**(params or {}), "_meta": self.envelope(**(meta or {}))}
        sent: JsonObject = {**self._headers(), "mcp-protocol-version": MODERN, "mcp-method": method}
        name = dressed.get(_NAME_OF.get(method, ""))
        if isinstance(name, str):
            sent["mcp-name"] = encode_header_value(name)
        sent |= headers or {}
        number = next(self._ids) if request_id is None else request_id
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": dressed}
        lines = {key: value for key, value in sent.items() if value is not None}
        return self.world.web.open("POST", self.url, lines, json.dumps(message).encode())

    def tool(self, name: str, /, **arguments: Any) -> HttpExchange:
        return self.request("tools/call", {"name": name, "arguments": arguments})

    def execute(self, server: str, tool: str, args: JsonObject | None = None, **options: Any) -> HttpExchange:
        return self.tool("execute_tool", server=server, tool=tool, args=args or {}, **options)

    async def call(self, name: str, /, **arguments: Any) -> Answer:
        result = await self.tool(name, **arguments).result()
        assert result["resultType"] == "complete", result
        return Answer(result)

    async def task(self, task_id: str) -> JsonObject:
        """What `tasks/get` says."""
        return await self.request("tasks/get", {"taskId": task_id}).result()


def tool_answer(result: JsonObject) -> Answer:
    return Answer(result)
