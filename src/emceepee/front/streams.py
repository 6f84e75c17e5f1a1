"""Messages on their way to one client as server-sent events, over as many connections as it takes."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
from starlette.types import Receive, Send

from emceepee.clock import Clock
from emceepee.front.replay import ReplayBuffer

__all__ = ["PING", "EventStream", "encoded", "watch_for_disconnect"]

MAX_UNSENT = 100
"""Messages that wait for a slow reader; beyond that the oldest goes, which is progress: the newest says it all."""

RETRY_MS = 1000
"""How long a client should wait before it comes back for a stream that broke."""

SSE_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
PING = b": ping\r\n\r\n"


def encoded(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


class EventStream:
    """Written by anyone, read by at most one connection at a time; with a `buffer` it can be resumed by another."""

    def __init__(self, buffer: ReplayBuffer | None = None, *, primes: bool = False) -> None:
        self._buffer = buffer
        self._primes = primes and buffer is not None
        self.number = 0 if buffer is None else buffer.open()
        self._unsent: deque[bytes] = deque(maxlen=MAX_UNSENT)
        self._wake = anyio.Event()
        self._connection: anyio.CancelScope | None = None
        self._attached = anyio.Event()
        self._detached = anyio.Event()
        self._was_attached = False
        self._is_primed = False
        self._is_final = False
        self._is_closing = False
        self.delivered = anyio.Event()
        """Set when the last message has been written."""
        self.can_resume = False
        """Whether the client has been told an id that it could come back with."""

    @property
    def is_attached(self) -> bool:
        return self._connection is not None

    def post(self, message: Mapping[str, Any]) -> None:
        if not self._is_final:
            self._prime()
            self._add(b"event: message\r\n", encoded(message))

    def finish(self, message: Mapping[str, Any] | None = None) -> None:
        """Send the last message; the stream ends with it."""
        if message is not None:
            self.post(message)
        self._is_final = True
        self._wake.set()

    def ping(self) -> None:
        if self._connection is not None and not self._is_final:
            self._unsent.append(PING)
            self._wake.set()

    def close_connection(self) -> None:
        """End the connection, but not the stream: the client comes back for the rest."""
        if self.can_resume and self._connection is not None:
            self._is_closing = True
            self._wake.set()

    def detach(self) -> None:
        """The connection is gone."""
        if self._connection is not None:
            self._connection.cancel()

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

    async def pump(self, send: Send, missed: Sequence[bytes] | None = None) -> None:
        """Write to one connection until the stream, or this connection, ends; a newer connection ends an older one.

        A connection that resumes the stream begins with what it has `missed`.
        """
        self.detach()
        with anyio.CancelScope() as connection:
            self._connection = connection
            self._was_attached = True
            self._attached.set()
            self._detached = anyio.Event()
            if missed is not None:
                self._unsent.clear()
                self._unsent.extend(missed)
                self._is_primed = False
            self._prime()
            try:
                await self._write(send)
            finally:
                if self._connection is connection:
                    self._connection = None
                    self._is_closing = False
                    self._attached = anyio.Event()
                    self._detached.set()

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(SSE_HEADERS)})
        while True:
            while self._unsent:
                frame = self._unsent.popleft()
                await send({"type": "http.response.body", "body": frame, "more_body": True})
                self.can_resume = self.can_resume or frame.startswith(b"id:")
            if self._is_final or self._is_closing:
                break
            self._wake = anyio.Event()
            await self._wake.wait()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        if self._is_final:
            self.delivered.set()

    def _prime(self) -> None:
        """An event without data, so that the client knows an id to come back with before there is anything to say."""
        if self._primes and not self._is_primed:
            self._is_primed = True
            self._add(b"retry: %d\r\n" % RETRY_MS, b"")

    def _add(self, head: bytes, data: bytes) -> None:
        frame = self._framed(head, data)
        # Between two connections it is only kept: the next one is given all that it has missed.
        if self._connection is not None or not self._was_attached:
            self._unsent.append(frame)
            self._wake.set()

    def _framed(self, head: bytes, data: bytes) -> bytes:
        if self._buffer is None:
            return head + b"data: " + data + b"\r\n\r\n"
        frame = b"id: " + self._buffer.next_id(self.number).encode() + b"\r\n" + head + b"data: " + data + b"\r\n\r\n"
        self._buffer.add(self.number, frame)
        return frame


async def watch_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
