"""Channels inside one process: for tests, and for servers that are part of the program.

Nothing is serialised, and what a transport would not carry (headers, callbacks) does not arrive either.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from emceepee.concurrency import companions
from emceepee.wire.ends import CHANNEL_BUFFER
from emceepee.wire.transport import Channel, ChannelState, TransportKind

__all__ = ["MemoryTransport", "memory_pair"]

logger = logging.getLogger(__name__)

CLOSED_REASON = "the other side closed the connection"
"""What the reader of a pair is told when its writer went away without saying why."""


class MemoryTransport:
    """Reaches the server that `serve` is: each connection runs it anew, and is lost when it returns."""

    kind: TransportKind = "memory"

    def __init__(self, serve: Callable[[Channel], Awaitable[None]], *, name: str = "memory") -> None:
        self._serve = serve
        self._name = name

    @property
    def target(self) -> str:
        return self._name

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Channel]:
        near, far = memory_pair()
        async with near.read, near.write, far.read, far.write, companions() as tasks:
            tasks.start_soon(self._run, near, far)
            yield near

    async def _run(self, near: Channel, far: Channel) -> None:
        try:
            await self._serve(far)
            near.state.lost_reason = "the server ended"
        except Exception as error:
            logger.exception("an in-process server failed")
            near.state.lost_reason = f"the server failed: {error!r}"
        await far.write.aclose()
        await far.read.aclose()


def memory_pair() -> tuple[Channel, Channel]:
    """Two channels: what is written to one is read from the other, and closing one end loses the other."""
    to_far, far_inbox = anyio.create_memory_object_stream[SessionMessage | Exception](CHANNEL_BUFFER)
    to_near, near_inbox = anyio.create_memory_object_stream[SessionMessage | Exception](CHANNEL_BUFFER)
    near_state, far_state = ChannelState(), ChannelState()
    near = Channel(_Inbox(near_inbox, near_state), _Outlet(to_far), near_state)
    far = Channel(_Inbox(far_inbox, far_state), _Outlet(to_near), far_state)
    return near, far


class _End:
    """What both ends of a stream have in common: they can be closed, by name or by leaving them."""

    def __init__(self, close: Callable[[], None]) -> None:
        self._close = close

    async def aclose(self) -> None:
        self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        self._close()


class _Inbox(_End):
    """The reading end, which knows by the time it ends that the channel was lost."""

    def __init__(self, stream: MemoryObjectReceiveStream[SessionMessage | Exception], state: ChannelState) -> None:
        super().__init__(stream.close)
        self._stream = stream
        self._state = state

    async def receive(self) -> SessionMessage | Exception:
        try:
            return await self._stream.receive()
        except anyio.EndOfStream:
            self._state.lost_reason = self._state.lost_reason or CLOSED_REASON
            raise

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class _Outlet(_End):
    """The writing end, which passes on the message alone: metadata is between a peer and its own transport."""

    def __init__(self, stream: MemoryObjectSendStream[SessionMessage]) -> None:
        super().__init__(stream.close)
        self._stream = stream

    async def send(self, item: SessionMessage, /) -> None:
        await self._stream.send(SessionMessage(item.message))
