"""Channels inside one process."""

from __future__ import annotations

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest

from emceepee.wire.http import HttpTransport
from emceepee.wire.memory import MemoryTransport, memory_pair
from emceepee.wire.sse import SseTransport
from emceepee.wire.stdio import StdioTransport
from emceepee.wire.transport import Channel, Transport
from tests.wire.messages import loss, notification, request, response, result

pytestmark = pytest.mark.anyio


async def echo(channel: Channel) -> None:
    async for item in channel.read:
        assert isinstance(item, SessionMessage)
        assert isinstance(item.message, JSONRPCRequest)
        await channel.write.send(response(item.message.id, {"ok": True}))


async def test_what_one_end_writes_the_other_end_reads() -> None:
    near, far = memory_pair()
    async with near.read, near.write, far.read, far.write:
        await near.write.send(request(1, "ping", headers={"x": "y"}))
        assert await far.read.receive() == request(1, "ping")
        await far.write.send(notification("hello"))
        assert await near.read.receive() == notification("hello")


async def test_closing_one_end_loses_the_other() -> None:
    near, far = memory_pair()
    async with near.read, near.write, far.read:
        await far.write.aclose()
        assert await loss(near) == "the other side closed the connection"
        assert far.state.lost_reason is None


async def test_a_transport_serves_every_connection_anew() -> None:
    transport = MemoryTransport(echo)
    for request_id in (1, 2):
        async with transport.open() as channel:
            await channel.write.send(request(request_id, "ping"))
            assert await result(channel) == (request_id, {"ok": True})
        assert channel.state.lost_reason is None


async def test_a_server_that_returns_loses_the_channel() -> None:
    async def leave(channel: Channel) -> None:
        await channel.read.receive()

    async with MemoryTransport(leave).open() as channel:
        await channel.write.send(request(1, "ping"))
        assert await loss(channel) == "the server ended"
        with pytest.raises(anyio.BrokenResourceError):
            await channel.write.send(request(2, "ping"))


async def test_a_server_that_fails_loses_the_channel_and_nothing_else() -> None:
    async def fail(channel: Channel) -> None:
        raise RuntimeError("no")

    async with MemoryTransport(fail).open() as channel:
        assert await loss(channel) == "the server failed: RuntimeError('no')"


async def test_an_error_of_the_body_comes_out_as_it_is() -> None:
    with pytest.raises(KeyError):
        async with MemoryTransport(echo).open():
            raise KeyError


def test_every_transport_has_the_shape_of_the_contract() -> None:
    transports: list[Transport] = [
        HttpTransport("http://host/mcp"),
        SseTransport("http://host/sse"),
        StdioTransport("cat"),
        MemoryTransport(echo),
    ]
    assert [transport.kind for transport in transports] == ["http", "sse", "stdio", "memory"]
