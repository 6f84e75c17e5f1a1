"""Messages on their way to one client as server-sent events, over as many connections as it takes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import anyio
from anyio.lowlevel import checkpoint
from starlette.types import Receive, Send

from emceepee.clock import Clock
from emceepee.front.event_ids import STANDALONE
from emceepee.front.replay import Kind, Replay, ReplayBuffer
from emceepee.jsontext import dumps

__all__ = ["END_OF_BODY", "SSE_HEADERS", "EventStream", "encoded", "flushed", "watch_for_disconnect"]

MAX_UNSENT = 100
"""Messages that wait for a slow reader; beyond that the oldest notification goes: the newest says it all."""

MOST_UNSENT = 1000
"""Beyond that the oldest goes, whatever it is: what was asked of a client that never reads is asked in vain."""

RETRY_MS = 1000
"""How long a client should wait before it comes back for a stream that broke."""

SSE_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
PING = b": ping\r\n\r\n"
END_OF_BODY = {"type": "http.response.body", "body": b"", "more_body": False}


def encoded(message: Mapping[str, Any]) -> bytes:
    return dumps(message).encode()


class _Unsent(NamedTuple):
    frame: bytes
    may_drop: bool = False


class EventStream:
    """Written by anyone, read by at most one connection at a time; with a `buffer` it can be resumed by another."""

    def __init__(
        self,
        buffer: ReplayBuffer | None = None,
        *,
        primes: bool = False,
        label: str = STANDALONE,
        number: int | None = None,
    ) -> None:
        """`label` says in the ids of its events what it answers.

        `number` is that of a stream of the buffer's that was given up, and that this one goes on with.
        """
        self._buffer = buffer
        self._primes = primes and buffer is not None
        self.number = number or (0 if buffer is None else buffer.open(label))
        self._unsent: deque[_Unsent] = deque()
        self._wake = anyio.Event()
        self._connection: anyio.CancelScope | None = None
        self._attached = anyio.Event()
        self._detached = anyio.Event()
        self._was_attached = False
        self._is_primed = False
        self._is_final = False
        self._is_closing = False
        self._is_lost = False
        self.ended = anyio.Event()
        """Set when the last message has been written, or there is none to be written any more."""
        self.can_resume = number is not None
        """Whether the client has been told an id that it could come back with."""

    @property
    def is_attached(self) -> bool:
        """Whether there is a connection that reads it."""
        return self._connection is not None

    @property
    def was_delivered(self) -> bool:
        return self.ended.is_set() and not self._is_lost

    def post(self, message: Mapping[str, Any]) -> None:
        is_news = "id" not in message and message.get("method") != "notifications/cancelled"
        self._say(message, "news" if is_news else "message")

    def finish(self, message: Mapping[str, Any] | None = None) -> None:
        """Send the last message; the stream ends with it."""
        if message is not None:
            self._say(message, "response")
        self._is_final = True
        self._wake.set()

    def ping(self) -> None:
        if self._connection is not None and not self._is_final:
            self._put(PING, may_drop=True)

    def close_connection(self) -> None:
        """End the connection, but not the stream: the client comes back for the rest."""
        if self.can_resume and self._connection is not None:
            self._is_closing = True
            self._wake.set()

    async def abandoned(self, clock: Clock, grace: float) -> None:
        """Wait until the client has been away for `grace` seconds."""
        while True:
            if self._connection is not None:
                await self._detached.wait()
            with clock.move_on_after(grace):
                await self._attached.wait()
                continue
            if self._connection is None:
                return

    async def pump(self, send: Send, missed: Replay | None = None) -> None:
        """Write to one connection until the stream, or this connection, ends; a newer connection ends an older one.

        A connection that resumes the stream begins with what it has `missed`.
        """
        if self._connection is not None:
            self._connection.cancel()
            self._detached.set()
        has_started = has_ended = False
        with anyio.CancelScope() as connection:
            self._connection = connection
            self._was_attached = True
            self._attached.set()
            self._detached = anyio.Event()
            if missed is not None:
                self._unsent = deque(_Unsent(frame) for frame in missed.frames)
                self._is_primed = False
                self._is_lost = self._is_final and missed.lacks_response
            self._prime()
            try:
                await send({"type": "http.response.start", "status": 200, "headers": list(SSE_HEADERS)})
                has_started = True
                await self._write(send)
                await send(END_OF_BODY)
                has_ended = True
                if self._is_final:
                    self.ended.set()
            finally:
                if self._connection is connection:
                    self._connection = None
                    self._is_closing = False
                    self._attached = anyio.Event()
                    self._detached.set()
        if has_started and not has_ended:
            await send(END_OF_BODY)

    async def _write(self, send: Send) -> None:
        while True:
            while self._unsent:
                frame = self._unsent.popleft().frame
                await send({"type": "http.response.body", "body": frame, "more_body": True})
                self.can_resume = self.can_resume or frame.startswith(b"id:")
            if self._is_final or self._is_closing:
                break
            self._wake = anyio.Event()
            await self._wake.wait()
        await flushed(send)

    def _say(self, message: Mapping[str, Any], kind: Kind) -> None:
        if not self._is_final:
            self._prime()
            self._add(b"event: message\r\n", encoded(message), kind)

    def _prime(self) -> None:
        """An event without data, so that the client knows an id to come back with before there is anything to say."""
        if self._primes and not self._is_primed:
            self._is_primed = True
            self._add(b"retry: %d\r\n" % RETRY_MS, b"", "news")

    def _add(self, head: bytes, data: bytes, kind: Kind) -> None:
        frame = self._framed(head, data, kind)
        # Between two connections it is only kept: the next one is given all that it has missed.
        if self._connection is not None or not self._was_attached:
            self._put(frame, may_drop=kind == "news")

    def _put(self, frame: bytes, *, may_drop: bool) -> None:
        if len(self._unsent) >= MAX_UNSENT:
            droppable = next((one for one in self._unsent if one.may_drop), None)
            if droppable is not None:
                self._unsent.remove(droppable)
            elif len(self._unsent) >= MOST_UNSENT:
                self._unsent.popleft()
        self._unsent.append(_Unsent(frame, may_drop))
        self._wake.set()

    def _framed(self, head: bytes, data: bytes, kind: Kind) -> bytes:
        if self._buffer is None:
            return head + b"data: " + data + b"\r\n\r\n"
        frame = b"id: " + self._buffer.next_id(self.number).encode() + b"\r\n" + head + b"data: " + data + b"\r\n\r\n"
        self._buffer.add(self.number, frame, kind)
        return frame


async def flushed(send: Send) -> None:
    """Wait until what was written has left our buffers; whoever watches over the connection cancels us if it broke."""
    await send({"type": "http.response.body", "body": b"", "more_body": True})
    await checkpoint()


async def watch_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
