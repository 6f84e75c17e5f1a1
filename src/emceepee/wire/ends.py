"""The transport's own end of a channel.

A `ChannelEnd` owns the two streams of a channel and the one rule about its loss: it is lost once, with a reason, and
never after we closed it. `carry` runs a transport's work for as long as the channel is in use.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCNotification, JSONRPCRequest

from emceepee.clock import Clock
from emceepee.concurrency import companions
from emceepee.pace import Pace
from emceepee.wire.envelope import failure
from emceepee.wire.transport import Channel, ChannelState

__all__ = ["CHANNEL_BUFFER", "PIECE_BYTES", "ChannelEnd", "carry"]

logger = logging.getLogger(__name__)

UNASKED_BURST = 1_000
UNASKED_PER_SECOND = 500
"""Messages that answer no request of ours. What is within takes a few hundredths of the hub's time; a server that says
more is read no faster, so that it waits and the others do not."""

PIECE_BYTES = 1024
"""A longer message counts as several: that many bytes take about as long to parse as the rest of its way takes."""

CHANNEL_BUFFER = 64
"""Enough that a burst of progress does not wake the peer once per message; a full buffer makes the sender wait."""


class ChannelEnd:
    """What the transport holds of a channel: it delivers to the peer, takes from it, and may lose the connection."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pace = Pace(clock, burst=UNASKED_BURST, per_second=UNASKED_PER_SECOND)
        self._inbound, read = anyio.create_memory_object_stream[SessionMessage | Exception](CHANNEL_BUFFER)
        write, self._outbound = anyio.create_memory_object_stream[SessionMessage](CHANNEL_BUFFER)
        self._read, self._write = read, write
        self._closed = False
        self._left = anyio.Event()
        self.work = anyio.CancelScope()
        """Around everything the transport does for this channel; cancelled when the connection is lost."""
        self.state = ChannelState()
        self.channel = Channel(read, write, self.state)

    def __aiter__(self) -> Self:
        """What the peer writes, until it writes no more or the connection is lost."""
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self._outbound.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            raise StopAsyncIteration from None

    async def deliver(self, item: SessionMessage | Exception, size: int = 0) -> None:
        """Hand `item`, which took `size` bytes, to the peer; dropped if the peer does not read any more.

        Returns when the next one may be read from the same source: later, if the server says more than it is asked.
        """
        try:
            try:
                # The peer makes a pause with every message that it takes; one from us as well would be one too many.
                self._inbound.send_nowait(item)
            except anyio.WouldBlock:
                await self._inbound.send(item)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            logger.debug("a message arrived after the channel was closed")
            return
        if _is_unasked(item):
            await self.rest(self._pace.take(1 + size / PIECE_BYTES))

    async def rest(self, seconds: float) -> None:
        """Read nothing for so long, unless the peer leaves."""
        if seconds > 0:
            with self._clock.move_on_after(seconds):
                await self._left.wait()

    async def fail(self, item: SessionMessage, error: ErrorData) -> None:
        """Tell the peer that `item` did not get through: a request is answered with an error, the rest is logged."""
        if isinstance(item.message, JSONRPCRequest):
            await self.deliver(failure(item.message.id, error))
        else:
            method = item.message.method if isinstance(item.message, JSONRPCNotification) else "a response"
            logger.warning("%s was not delivered: %s", method, error.message)

    def lose(self, reason: str) -> None:
        """End the channel because the connection is gone; later reasons, and those after closing, do not count."""
        if self._closed or self.state.lost_reason is not None:
            return
        self.state.lost_reason = reason
        self._inbound.close()
        self._outbound.close()
        self.work.cancel()

    def leave(self) -> None:
        """The peer is done: nothing is a loss any more, arrivals are dropped, what it wrote can still be taken."""
        self._closed = True
        # A server that is to end must not be kept from it by output that nobody takes.
        self._left.set()
        self._read.close()
        self._write.close()

    def close(self) -> None:
        for stream in (self._write, self._read, self._inbound, self._outbound):
            stream.close()


def _is_unasked(item: SessionMessage | Exception) -> bool:
    return isinstance(item, Exception) or isinstance(item.message, JSONRPCRequest | JSONRPCNotification)


@asynccontextmanager
async def carry(
    end: ChannelEnd, work: Callable[[], Awaitable[None]], farewell: Callable[[], Awaitable[None]]
) -> AsyncGenerator[Channel]:
    """Run `work` beside the body, then `farewell`, shielded; an error of `work` loses the channel."""
    async with companions() as tasks:
        tasks.start_soon(_work, end, work)
        try:
            yield end.channel
        finally:
            end.leave()
            with anyio.CancelScope(shield=True):
                await farewell()
            end.close()


async def _work(end: ChannelEnd, work: Callable[[], Awaitable[None]]) -> None:
    with end.work:
        try:
            await work()
        except Exception as error:
            logger.exception("a transport failed")
            end.lose(f"the transport failed: {error}")
