"""A scripted HTTP server on a real socket, down to the TCP connections: they are counted, kept and cut at will."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import anyio
from anyio.abc import SocketAttribute, SocketListener, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.wire.messages import PATIENCE


class Cut(Exception):
    """Raised by a handler to drop the TCP connection where it is."""


@dataclass
class Exchange:
    """One HTTP request, and the ways to answer it."""

    verb: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    stream: SocketStream = field(repr=False)

    @property
    def message(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.body)
        return loaded

    async def reply(
        self, status: int, body: bytes = b"", content_type: str = "text/plain", headers: Mapping[str, str] | None = None
    ) -> None:
        fields = {"content-type": content_type, "content-length": str(len(body)), **(headers or {})}
        await self._head(status, fields)
        await self.stream.send(body)

    async def json(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        await self.reply(status, json.dumps(value).encode(), "application/json", headers)

    async def result(self, result: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None) -> None:
        await self.json({"jsonrpc": "2.0", "id": self.message["id"], "result": result or {}}, headers=headers)

    @asynccontextmanager
    async def events(self) -> AsyncGenerator[EventWriter]:
        """An event stream, which ends properly unless the handler raises `Cut`."""
        await self._head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        yield EventWriter(self)
        await self.stream.send(b"0\r\n\r\n")

    async def disconnected(self) -> None:
        """Wait until the client has closed this connection."""
        try:
            while True:
                await self.stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            pass

    async def _head(self, status: int, fields: Mapping[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in fields.items())]
        await self.stream.send("\r\n".join([*lines, "", ""]).encode())


@dataclass
class EventWriter:
    exchange: Exchange

    async def send(
        self,
        data: Mapping[str, Any] | str = "",
        *,
        event: str | None = None,
        event_id: str | None = None,
        retry: int | None = None,
    ) -> None:
        text = data if isinstance(data, str) else json.dumps({"jsonrpc": "2.0", **data})
        fields = {"event": event, "id": event_id, "retry": retry, "data": text}
        lines = [f"{name}: {value}" for name, value in fields.items() if value is not None]
        block = "\n".join([*lines, "", ""]).encode()
        await self.exchange.stream.send(f"{len(block):x}\r\n".encode() + block + b"\r\n")

    async def result(self, result: Mapping[str, Any] | None = None, *, event_id: str | None = None) -> None:
        await self.send({"id": self.exchange.message["id"], "result": result or {}}, event_id=event_id)


Handler = Callable[[Exchange], Awaitable[None]]


async def accept(exchange: Exchange) -> None:
    await exchange.reply(202)


async def refuse_get(exchange: Exchange) -> None:
    await exchange.reply(405)


async def start_session(exchange: Exchange) -> None:
    await exchange.result({"protocolVersion": "2025-11-25"}, headers={"mcp-session-id": "session-1"})


async def by_stream(exchange: Exchange) -> None:
    async with exchange.events() as events:
        await events.result({"ok": True})


def answers(status: int, body: bytes = b"", content_type: str = "text/plain") -> Handler:
    async def handler(exchange: Exchange) -> None:
        await exchange.reply(status, body, content_type)

    return handler


async def hold(exchange: Exchange) -> None:
    """An event stream on which nothing happens until the client leaves."""
    async with exchange.events():
        await exchange.disconnected()


async def cut(exchange: Exchange) -> None:
    raise Cut


DEFAULTS: Mapping[str, Handler] = {"initialize": start_session, "GET": refuse_get, "DELETE": accept, "POST": accept}
"""By JSON-RPC method for POSTs of requests and notifications, by HTTP method otherwise."""


class Script:
    """Handlers that take turns, the last one for ever; `count` says how many turns there were."""

    def __init__(self, *handlers: Handler) -> None:
        self._handlers = list(handlers)
        self.count = 0
        self._turned = anyio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        handler = self._handlers[min(self.count, len(self._handlers) - 1)]
        self.count += 1
        self._turned.set()
        await handler(exchange)

    async def turns(self, count: int) -> None:
        """Wait until the last of `count` turns has begun."""
        with anyio.fail_after(PATIENCE):
            while self.count < count:
                self._turned = anyio.Event()
                await self._turned.wait()


class Origin:
    """Serves `handlers` while it is entered; `vanish` is its sudden death."""

    def __init__(self, handlers: Mapping[str, Handler] | None = None) -> None:
        self._handlers = {**DEFAULTS, **(handlers or {})}
        self._streams: set[SocketStream] = set()
        self.connections = 0
        self.exchanges: list[Exchange] = []
        self._asked = anyio.Event()
        self._tasks = anyio.create_task_group()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        await self._appear(port=0)
        self._port = self._listener.extra_attributes[SocketAttribute.local_port]()
        self.root = f"http://127.0.0.1:{self._port}"
        self.url = f"{self.root}/mcp"
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        self._tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await self._listener.aclose()
        await self._tasks.__aexit__(exc_type, exc_val, exc_tb)

    async def vanish(self) -> None:
        """Refuse new connections and drop the open ones."""
        await self._listener.aclose()
        for stream in list(self._streams):
            await anyio.aclose_forcefully(stream)

    async def come_back(self) -> None:
        """Be there again, after `vanish`."""
        await self._appear(self._port)

    async def _appear(self, port: int) -> None:
        listeners = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
        listener = listeners.listeners[0]
        assert isinstance(listener, SocketListener)
        self._listener = listener
        self._tasks.start_soon(self._listen, listener)

    def seen(self, key: str) -> list[Exchange]:
        """The exchanges of one JSON-RPC or HTTP method so far."""
        return [exchange for exchange in self.exchanges if key in (_method(exchange), exchange.verb)]

    async def asked(self, is_enough: Callable[[], bool]) -> None:
        """Wait for exchanges until there are enough of them."""
        with anyio.fail_after(PATIENCE):
            while not is_enough():
                self._asked = anyio.Event()
                await self._asked.wait()

    async def _listen(self, listener: SocketListener) -> None:
        with suppress(anyio.ClosedResourceError):
            while True:
                self._tasks.start_soon(self._converse, await listener.accept())

    async def _converse(self, stream: SocketStream) -> None:
        self.connections += 1
        self._streams.add(stream)
        buffered = BufferedByteReceiveStream(stream)
        try:
            async with stream:
                while True:
                    exchange = await self._receive(buffered, stream)
                    self.exchanges.append(exchange)
                    self._asked.set()
                    await self._handler(exchange)(exchange)
        except (Cut, anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        finally:
            self._streams.discard(stream)

    async def _receive(self, buffered: BufferedByteReceiveStream, stream: SocketStream) -> Exchange:
        head = (await buffered.receive_until(b"\r\n\r\n", 65536)).decode()
        start, *lines = head.split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = await buffered.receive_exactly(int(headers.get("content-length", 0)))
        verb, path, _ = start.split(" ")
        return Exchange(verb, path, headers, body, stream)

    def _handler(self, exchange: Exchange) -> Handler:
        return self._handlers.get(_method(exchange), self._handlers[exchange.verb])


def _method(exchange: Exchange) -> str:
    method: str = exchange.message.get("method", "response") if exchange.verb == "POST" else exchange.verb
    return method
