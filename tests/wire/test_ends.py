"""A channel's end: a server that says more than it is asked is read no faster than its pace."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import anyio
import anyio.abc
import pytest
from mcp.shared.message import SessionMessage

from emceepee.testing import FakeClock, settle
from emceepee.wire import ends
from emceepee.wire.ends import ChannelEnd
from emceepee.wire.stdio import StdioTransport
from tests.wire.messages import PATIENCE, notification, request, response

pytestmark = pytest.mark.anyio


@pytest.fixture
async def end(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ChannelEnd]:
    monkeypatch.setattr(ends, "UNASKED_BURST", 10)
    monkeypatch.setattr(ends, "UNASKED_PER_SECOND", 10)
    end = ChannelEnd(clock)
    yield end
    end.close()


async def read_all(end: ChannelEnd, found: list[SessionMessage | Exception]) -> None:
    with suppress(anyio.ClosedResourceError):
        async for item in end.channel.read:
            found.append(item)


async def say(end: ChannelEnd, items: Sequence[SessionMessage | Exception], size: int = 0) -> None:
    for item in items:
        await end.deliver(item, size)


@pytest.mark.parametrize(
    "item",
    [notification("notifications/tick"), request(1, "ping"), ValueError("no JSON")],
    ids=["notification", "request", "garbage"],
)
async def test_what_nobody_asked_for_comes_at_its_pace(
    end: ChannelEnd, clock: FakeClock, item: SessionMessage | Exception
) -> None:
    found: list[SessionMessage | Exception] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read_all, end, found)
        tasks.start_soon(say, end, [item] * 30)
        await settle()
        assert len(found) == 11, "the burst, and the one that was too many"
        await clock.advance(1)
        assert len(found) == 21
        await clock.advance(1)
        assert len(found) == 30
        tasks.cancel_scope.cancel()


async def test_a_long_message_counts_as_several(end: ChannelEnd, clock: FakeClock) -> None:
    found: list[SessionMessage | Exception] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read_all, end, found)
        tasks.start_soon(say, end, [notification("notifications/tick")] * 30, 9 * ends.PIECE_BYTES)
        await settle()
        assert len(found) == 2
        await clock.advance(2)
        assert len(found) == 4
        tasks.cancel_scope.cancel()


async def test_answers_never_wait(end: ChannelEnd) -> None:
    found: list[SessionMessage | Exception] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read_all, end, found)
        with anyio.fail_after(PATIENCE):
            await say(end, [response(n, {}) for n in range(100)], 1_000_000)
        await settle()
        assert len(found) == 100
        tasks.cancel_scope.cancel()


async def test_one_stream_that_floods_leaves_the_other_streams_of_a_server_alone(end: ChannelEnd) -> None:
    found: list[SessionMessage | Exception] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read_all, end, found)
        tasks.start_soon(say, end, [notification("notifications/tick")] * 30)
        await settle()
        with anyio.fail_after(PATIENCE):
            await end.deliver(response(1, {}))
        tasks.cancel_scope.cancel()


async def test_a_peer_that_leaves_lets_the_rest_through(end: ChannelEnd) -> None:
    found: list[SessionMessage | Exception] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read_all, end, found)
        tasks.start_soon(say, end, [notification("notifications/tick")] * 1000)
        await settle()
        end.leave()
        tasks.cancel_scope.deadline = anyio.current_time() + PATIENCE
    assert not tasks.cancel_scope.cancelled_caught


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_a_program_that_writes_without_a_pause_can_be_left(clock: FakeClock, stream: str) -> None:
    script = f"""
import sys
line = '{{"jsonrpc": "2.0", "method": "notifications/tick"}}\\n' * 100
while True:
    sys.{stream}.write(line)
"""
    with anyio.fail_after(PATIENCE):
        async with StdioTransport(sys.executable, ["-c", script], clock=clock).open() as channel:
            await channel.write.send(notification("notifications/initialized"))
            if stream == "stdout":
                for _ in range(ends.UNASKED_BURST // 2):
                    await channel.read.receive()
