"""One POSTed request and its response over HTTP.

If nothing has to be sent before the result, the response is plain JSON: half the work for both sides, and the client's
connection stays usable. The first message before the result (progress, or what fills a silence) makes it an SSE stream.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import anyio
import anyio.abc
from starlette.types import Receive, Send

from emceepee.clock import Clock
from emceepee.front.served import ServedRequest

__all__ = ["SSE_HEADERS", "Exchange", "send_body", "send_json", "sse_event"]

JsonObject: TypeAlias = dict[str, Any]

MAX_UNSENT = 100
"""Messages that wait for a slow reader; beyond that the oldest progress is dropped, for the newest says it all."""

SSE_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
PING = b": ping\r\n\r\n"


def sse_event(message: Mapping[str, Any]) -> bytes:
    return b"event: message\r\ndata: " + _encoded(message) + b"\r\n\r\n"


async def send_json(
    send: Send, message: Mapping[str, Any] | None, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """A whole response; None has no body."""
    if message is None:
        await send_body(send, b"", None, status, headers)
    else:
        await send_body(send, _encoded(message), "application/json", status, headers)


async def send_body(
    send: Send,
    body: bytes,
    content_type: str | None,
    status: int = 200,
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> None:
    length = (b"content-length", str(len(body)).encode())
    kind = () if content_type is None else ((b"content-type", content_type.encode()),)
    await send({"type": "http.response.start", "status": status, "headers": [*kind, length, *headers]})
    # In two steps: the second waits until a large body has left our buffers, or the client has gone.
    await send({"type": "http.response.body", "body": body, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _encoded(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


class Exchange:
    """Serves one request; `run` returns when the response is out or the client is gone."""

    def __init__(
        self,
        request_id: str | int,
        params: Mapping[str, Any] | None,
        *,
        receive: Receive,
        send: Send,
        clock: Clock,
        keepalive: float,
    ) -> None:
        self.request = ServedRequest(request_id, params, self._post)
        self._receive = receive
        self._send = send
        self._clock = clock
        self._keepalive = keepalive
        self._unsent: deque[bytes] = deque(maxlen=MAX_UNSENT)
        self._pump_wake = anyio.Event()
        self._tasks: anyio.abc.TaskGroup
        self._pump_started = False
        self._pump_done = anyio.Event()
        self._is_final = False

    async def run(self, answer: Callable[[ServedRequest], Awaitable[JsonObject]]) -> None:
        """Have `answer` give the response message, while watching that the client is still there."""
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._answer, answer)
            await self._watch_client()

    async def _answer(self, answer: Callable[[ServedRequest], Awaitable[JsonObject]]) -> None:
        message: JsonObject | None = None
        with self.request.scope:
            message = await answer(self.request)
        if self.request.hang_up != "gone":
            await self._finish(message or _cancelled(self.request.request_id))
            if message is not None:
                self.request.on_sent()
        self._tasks.cancel_scope.cancel()

    async def _watch_client(self) -> None:
        """Until cancelled: notice that the client is gone, and break every silence."""
        while True:
            with self._clock.move_on_after(self._keepalive):
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    self.request.end("gone")
                    await anyio.sleep_forever()
            if self.request.wants_progress:
                self.request.heartbeat()
            else:
                self._put(PING)

    def _post(self, message: JsonObject) -> None:
        self._put(sse_event(message))

    def _put(self, chunk: bytes) -> None:
        if self._is_final:
            return
        self._unsent.append(chunk)
        self._pump_wake.set()
        if not self._pump_started:
            self._pump_started = True
            self._tasks.start_soon(self._pump)

    async def _finish(self, message: JsonObject) -> None:
        if self._pump_started:
            self._put(sse_event(message))
            self._is_final = True
            await self._pump_done.wait()
        else:
            self._is_final = True
            await send_json(self._send, message)

    async def _pump(self) -> None:
        """The only writer of an SSE response."""
        await self._send({"type": "http.response.start", "status": 200, "headers": list(SSE_HEADERS)})
        while self._unsent or not self._is_final:
            if not self._unsent:
                self._pump_wake = anyio.Event()
                await self._pump_wake.wait()
                continue
            await self._send({"type": "http.response.body", "body": self._unsent.popleft(), "more_body": True})
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        self._pump_done.set()


def _cancelled(request_id: str | int) -> JsonObject:
    """Ends the HTTP response of a request that its client cancelled; the client does not look at it any more."""
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": -32800, "message": "Request cancelled"}}
