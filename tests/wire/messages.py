"""Short words for what the tests of this folder say over a channel."""

from __future__ import annotations

import math
from typing import Any

import anyio
from mcp.shared.message import ClientMessageMetadata, ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, RequestId

from emceepee.wire.transport import Channel

PATIENCE = 30.0
"""Far above what anything here takes on a busy machine: only a hang meets this."""


def request(
    request_id: RequestId, method: str, params: dict[str, Any] | None = None, headers: dict[str, str] | None = None
) -> SessionMessage:
    metadata = None if headers is None else ClientMessageMetadata(headers=headers)
    return SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=request_id, method=method, params=params), metadata)


def notification(method: str, params: dict[str, Any] | None = None) -> SessionMessage:
    return SessionMessage(JSONRPCNotification(jsonrpc="2.0", method=method, params=params))


def response(request_id: RequestId, result: dict[str, Any]) -> SessionMessage:
    return SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=request_id, result=result))


async def arrival(channel: Channel) -> SessionMessage:
    """The next message, which has to be one."""
    with anyio.fail_after(PATIENCE):
        item = await channel.read.receive()
    assert isinstance(item, SessionMessage)
    return item


async def result(channel: Channel) -> tuple[RequestId, dict[str, Any]]:
    message = (await arrival(channel)).message
    assert isinstance(message, JSONRPCResponse), message
    return message.id, message.result


async def error(channel: Channel) -> tuple[RequestId | None, int, str]:
    message = (await arrival(channel)).message
    assert isinstance(message, JSONRPCError), message
    return message.id, message.error.code, message.error.message


async def loss(channel: Channel) -> str | None:
    """Why the channel ended; everything that comes before is skipped."""
    with anyio.fail_after(PATIENCE):
        async for _ in channel.read:
            pass
    return channel.state.lost_reason


def related_to(item: SessionMessage) -> RequestId | None:
    return item.metadata.related_request_id if isinstance(item.metadata, ServerMessageMetadata) else None


async def handshake(channel: Channel, version: str = "2025-11-25") -> None:
    """What a peer says first."""
    await channel.write.send(request(0, "initialize", {"protocolVersion": version}))
    await result(channel)
    channel.state.protocol_version = version
    await channel.write.send(notification("notifications/initialized"))


class ManualClock:
    """A clock that a test moves, and that says for how long it was asked to wait."""

    def __init__(self) -> None:
        self._now = 0.0
        self._waits: list[tuple[float, float, anyio.CancelScope]] = []
        self._asked = anyio.Event()

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now

    def move_on_after(self, seconds: float | None) -> anyio.CancelScope:
        scope = anyio.CancelScope()
        wait = math.inf if seconds is None else seconds
        self._waits.append((wait, self._now + wait, scope))
        self._asked.set()
        return scope

    @property
    def waits(self) -> list[float]:
        """For how long the clock was asked to wait, as far as that time has not passed."""
        return [wait for wait, _, _ in self._waits]

    async def asked(self, seconds: float, times: int = 1) -> None:
        """Wait until so many wait for `seconds`."""
        with anyio.fail_after(PATIENCE):
            while self.waits.count(seconds) < times:
                self._asked = anyio.Event()
                await self._asked.wait()

    async def let_pass(self, seconds: float) -> None:
        """Wait until someone waits for `seconds`, then let them pass."""
        await self.asked(seconds)
        self._now += seconds
        for _, due, scope in self._waits:
            if due <= self._now:
                scope.cancel()
        self._waits = [waiting for waiting in self._waits if waiting[1] > self._now]
