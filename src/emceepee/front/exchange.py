"""One POSTed request and its response over HTTP.

If nothing has to be sent before the result, the response is plain JSON: half the work for both sides, and the client's
connection stays usable. The first message before the result (progress, a question, or what fills a silence) makes it an
SSE stream, which a handshake client may resume on another connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import anyio
import anyio.abc
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS
from starlette.datastructures import Headers
from starlette.types import Receive, Send

from emceepee.clock import Clock
from emceepee.config import Patience
from emceepee.errors import HubStopping, PeerError
from emceepee.front.asking import Asking
from emceepee.front.client import ClientFacts
from emceepee.front.event_ids import label_of
from emceepee.front.jsonrpc import Message, as_peer_error, error_message
from emceepee.front.replay import ReplayBuffer
from emceepee.front.served import ServedRequest
from emceepee.front.streams import END_OF_BODY, EventStream, encoded, flushed, watch_for_disconnect
from emceepee.protocol import REQUEST_CANCELLED

__all__ = ["Answer", "Exchange", "Posted", "send_body", "send_json"]

JsonObject: TypeAlias = dict[str, Any]
Answer: TypeAlias = Callable[[ServedRequest], Awaitable[JsonObject]]


class Posted(NamedTuple):
    """A message that came with a POST, and the way back."""

    message: Message
    headers: Headers
    receive: Receive
    send: Send


async def send_json(
    send: Send, message: Mapping[str, Any] | None, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """A whole response; None has no body."""
    if message is None:
        await send_body(send, b"", None, status, headers)
    else:
        await send_body(send, encoded(message), "application/json", status, headers)


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
    await send({"type": "http.response.body", "body": body, "more_body": True})
    await flushed(send)
    await send(END_OF_BODY)


class Exchange:
    """Serves one request; `run` returns when the response is out or the client is gone for good."""

    def __init__(
        self,
        request_id: str | int,
        params: Mapping[str, Any] | None,
        *,
        client: ClientFacts,
        receive: Receive,
        send: Send,
        clock: Clock,
        patience: Patience,
        buffer: ReplayBuffer | None = None,
        asking: Asking | None = None,
        stopping: anyio.Event,
        streams_at_once: bool = False,
        stream: int | None = None,
    ) -> None:
        """`buffer` is for clients that may resume, `asking` for those that can be asked while they wait.

        `stopping` is set when the hub ends.
        `stream` is the one that a client has come back for after it had been given up.
        """
        self.stream = EventStream(buffer, primes=client.understands_resuming, label=label_of(request_id), number=stream)
        self.request = ServedRequest(
            request_id, params, self._post, client=client, asking=asking, on_interrupted=self._interrupted
        )
        self._client = client
        self._receive = receive
        self._send = send
        self._clock = clock
        self._patience = patience
        self._stopping = stopping
        self._streams_at_once = streams_at_once
        self._tasks: anyio.abc.TaskGroup
        self._is_streaming = False
        self._connection = anyio.CancelScope()
        """Where we write to the connection that the request came on."""
        self.was_sent = False
        """Whether the response was written to the client."""

    @property
    def was_given_up(self) -> bool:
        """Whether the client was away for too long, but has an id to come back with all the same."""
        return not self.was_sent and self.stream.can_resume and self.request.hang_up in (None, "gone")

    async def run(self, answer: Answer) -> None:
        """Have `answer` give the response message, while watching that the client is still there."""
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._answer, answer)
            self._tasks.start_soon(self._break_silence)
            if self._streams_at_once:
                self._start_stream()
            await watch_for_disconnect(self._receive)
            await self._connection_lost()

    async def _answer(self, answer: Answer) -> None:
        message: JsonObject | None = None
        with self.request.scope:
            message = await answer(self.request)
        if self.request.hang_up != "gone":
            is_out = await self._finish(message or self._unanswered())
            self.was_sent = is_out and message is not None
        (self.request.on_sent if self.was_sent else self.request.on_unsent)()
        self._tasks.cancel_scope.cancel()

    async def _finish(self, message: JsonObject) -> bool:
        """Whether the response was written to the client."""
        if not self._is_streaming:
            self._is_streaming = True
            with self._connection:
                await send_json(self._send, message, self._status_of(message))
                return True
            return False
        self.stream.finish(message)
        async with anyio.create_task_group() as waiting:

            async def give_up() -> None:
                await self.stream.abandoned(self._clock, self._grace)
                waiting.cancel_scope.cancel()

            waiting.start_soon(give_up)
            await self.stream.ended.wait()
            waiting.cancel_scope.cancel()
        return self.stream.was_delivered

    def _unanswered(self) -> JsonObject:
        """Ends the HTTP response; a client that has cancelled its request does not look at it any more."""
        error = PeerError(REQUEST_CANCELLED, "Request cancelled")
        if self._stopping.is_set():
            error = as_peer_error(HubStopping())
        return error_message(self.request.request_id, error)

    def _status_of(self, message: JsonObject) -> int:
        """The modern era tells in the status, too, that a request could not be served at all."""
        if not self._client.is_modern or "error" not in message:
            return 200
        return ERROR_CODE_HTTP_STATUS.get(message["error"]["code"], 200)

    async def _connection_lost(self) -> None:
        # Only what came on this connection: the client may be on another one already.
        self._connection.cancel()
        if self._client.is_modern:
            # Its protocol says so: there is nothing that it could come back for.
            self.request.end("cancelled")
        else:
            if self._is_streaming:
                await self.stream.abandoned(self._clock, self._grace)
            self.request.end("gone")
        await anyio.sleep_forever()

    @property
    def _grace(self) -> float:
        """How long the client has to come back, if it can."""
        return self._patience.resume if self.stream.can_resume else 0

    async def _break_silence(self) -> None:
        if self._client.understands_resuming:
            await self._pause(self._patience.prime)
            self._start_stream()
        while True:
            await self._pause(self._patience.keepalive)
            if self.request.wants_progress:
                self.request.heartbeat()
            else:
                self._start_stream()
                self.stream.ping()

    async def _pause(self, seconds: float) -> None:
        with self._clock.move_on_after(seconds):
            await anyio.sleep_forever()

    def _post(self, message: JsonObject) -> None:
        self.stream.post(message)
        self._start_stream()

    def _start_stream(self) -> None:
        if not self._is_streaming:
            self._is_streaming = True
            self._tasks.start_soon(self._pump)

    async def _pump(self) -> None:
        with self._connection:
            await self.stream.pump(self._send)

    def _interrupted(self) -> None:
        """The server has let go of the stream that it answers this request on: so do we, and the client comes back."""
        self._start_stream()
        self.stream.close_connection()
