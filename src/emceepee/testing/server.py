"""A server that does what a test scripts, over a transport in memory.

Each tool is an async function of a `ScriptedCall`, which can ask, report progress, wait at a gate, or fail. The server
speaks either era. As on stdio, only the modern one says whose call a question belongs to.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import anyio

from emceepee.clock import SystemClock
from emceepee.concurrency import task_group
from emceepee.errors import PeerError
from emceepee.protocol import METHOD_NOT_FOUND, meta_of
from emceepee.wire.era import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION
from emceepee.wire.memory import MemoryTransport
from emceepee.wire.peer import Peer
from emceepee.wire.transport import Channel, RequestId, Transport

__all__ = ["ScriptedCall", "ScriptedServer", "form", "text_result"]

JsonObject: TypeAlias = dict[str, Any]
Script: TypeAlias = Callable[["ScriptedCall"], Awaitable[Any]]
Method: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[JsonObject]]


def text_result(text: str) -> JsonObject:
    return {"content": [{"type": "text", "text": text}]}


def form(message: str, **fields: str) -> JsonObject:
    """The parameters of a form elicitation whose fields, given by name and JSON type, are all required."""
    properties = {name: {"type": kind} for name, kind in fields.items()}
    schema = {"type": "object", "properties": properties, "required": list(fields)}
    return {"mode": "form", "message": message, "requestedSchema": schema}


class _InputRequired(Exception):
    """Ends a round of a modern call: the client comes back with the answers."""

    def __init__(self, requests: JsonObject) -> None:
        self.requests = requests
        super().__init__("input required")


@dataclass(slots=True)
class ScriptedCall:
    """One `tools/call` as the server sees it."""

    peer: Peer
    params: Mapping[str, Any]
    modern: bool

    @property
    def name(self) -> str:
        return str(self.params["name"])

    @property
    def arguments(self) -> Mapping[str, Any]:
        arguments: Mapping[str, Any] = self.params.get("arguments") or {}
        return arguments

    async def elicit(self, params: JsonObject, key: str = "question") -> JsonObject:
        return await self._ask("elicitation/create", params, key)

    async def sample(self, params: JsonObject, key: str = "sample") -> JsonObject:
        return await self._ask("sampling/createMessage", params, key)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        token = meta_of(self.params).get("progressToken")
        if token is not None:
            facts = {"progressToken": token, "progress": progress, "total": total, "message": message}
            told = {key: value for key, value in facts.items() if value is not None}
            await self.peer.notify("notifications/progress", told)

    async def _ask(self, method: str, params: JsonObject, key: str) -> JsonObject:
        if not self.modern:
            return await self.peer.request(method, params)
        answers = self.answers()
        if key not in answers:
            raise _InputRequired({key: {"method": method, "params": params}})
        answer: JsonObject = answers[key]
        return answer

    def answers(self) -> JsonObject:
        """What was answered so far: a modern server remembers nothing, so it is all in the request."""
        before = json.loads(self.params.get("requestState") or "{}")
        return {**before, **(self.params.get("inputResponses") or {})}


@dataclass
class ScriptedServer:
    """How a server behaves, and a record of what was done to it."""

    tools: Mapping[str, Script] = field(default_factory=dict)
    modern: bool = False
    capabilities: JsonObject = field(default_factory=lambda: {"tools": {"listChanged": True}})
    definitions: Mapping[str, JsonObject] = field(default_factory=dict)
    """What a tool's definition has beside its name and schema."""
    methods: Mapping[str, Method] = field(default_factory=dict)
    """Answers to other requests, or in place of ours."""
    received: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    """Every request and notification, in the order of their arrival."""
    cancelled: list[str] = field(default_factory=list)
    """The tools whose calls were cancelled before they were done."""
    _channels: list[tuple[Channel, Peer]] = field(default_factory=list)

    def transport(self) -> Transport:
        return MemoryTransport(self._serve)

    def received_methods(self) -> list[str]:
        return [method for method, _ in self.received]

    async def die(self) -> None:
        """Drop every open connection without another word."""
        for channel, peer in tuple(self._channels):
            await channel.write.aclose()
            peer.hang_up("the server died")
            await peer.closed.wait()

    async def notify(self, method: str, params: JsonObject | None = None) -> None:
        for _, peer in tuple(self._channels):
            await peer.notify(method, params)

    async def _serve(self, channel: Channel) -> None:
        handler = _Connection(self)
        peer = handler.peer = Peer(self.transport(), channel, SystemClock(), handler)
        self._channels.append((channel, peer))
        try:
            async with task_group() as tasks:
                await tasks.start(peer.run)
                await peer.closed.wait()
        finally:
            self._channels.remove((channel, peer))


class _Connection:
    """Implements `PeerHandler` for one client."""

    peer: Peer

    def __init__(self, server: ScriptedServer) -> None:
        self._server = server

    async def on_request(
        self, method: str, params: Mapping[str, Any], related: int | None, request_id: RequestId | None
    ) -> JsonObject:
        server = self._server
        server.received.append((method, params))
        if method in server.methods:
            return await server.methods[method](params)
        match method:
            case "initialize" if not server.modern:
                return self._introduction(protocolVersion=LATEST_HANDSHAKE_VERSION)
            case "server/discover" if server.modern:
                return self._introduction(supportedVersions=[LATEST_MODERN_VERSION])
            case "tools/list":
                return {"tools": [self._definition(name) for name in server.tools]}
            case "tools/call":
                return await self._call(ScriptedCall(self.peer, params, server.modern))
            case "ping":
                return {}
            case _:
                raise PeerError(METHOD_NOT_FOUND, f"Method not found: {method}")

    def on_notification(self, method: str, params: Mapping[str, Any], related: int | None) -> None:
        self._server.received.append((method, params))

    def on_garbage(self, error: Exception) -> None:
        raise AssertionError(f"the client sent garbage: {error!r}")

    def _introduction(self, **version: object) -> JsonObject:
        info = {"name": "scripted", "version": "1"}
        return {**version, "capabilities": self._server.capabilities, "serverInfo": info}

    def _definition(self, name: str) -> JsonObject:
        return {"name": name, "inputSchema": {"type": "object"}, **self._server.definitions.get(name, {})}

    async def _call(self, call: ScriptedCall) -> JsonObject:
        script = self._server.tools.get(call.name)
        if script is None:
            raise PeerError(-32602, f"Unknown tool: {call.name}")
        try:
            result = await script(call)
        except _InputRequired as asked:
            state = json.dumps(call.answers())
            return {"resultType": "input_required", "inputRequests": asked.requests, "requestState": state}
        except anyio.get_cancelled_exc_class():
            self._server.cancelled.append(call.name)
            raise
        return result if isinstance(result, dict) else text_result(str(result))
