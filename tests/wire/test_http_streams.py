"""Event streams of the Streamable HTTP transport: resumed, reopened, or known to be lost."""

from __future__ import annotations

import anyio
import pytest

from emceepee.testing import FakeClock
from emceepee.wire.http import HttpTransport
from emceepee.wire.reopening import MAX_TRIES
from emceepee.wire.transport import Channel
from tests.wire.messages import (
    PATIENCE,
    ManualClock,
    arrival,
    error,
    handshake,
    loss,
    related_to,
    request,
    result,
)
from tests.wire.origin import (
    Cut,
    Exchange,
    Handler,
    Origin,
    Script,
    answers,
    by_stream,
    cut,
    hold,
)

pytestmark = pytest.mark.anyio

MODERN = "2026-07-28"


async def test_messages_on_a_response_stream_name_their_request() -> None:
    async def ask(exchange: Exchange) -> None:
        async with exchange.events() as events:
            await events.send({"id": "q", "method": "elicitation/create", "params": {}})
            await events.send({"method": "notifications/progress", "params": {}})
            await events.result()

    async with Origin({"tools/call": ask}) as origin, HttpTransport(origin.url).open() as channel:
        await channel.write.send(request("call", "tools/call"))
        assert [related_to(await arrival(channel)) for _ in range(3)] == ["call", "call", "call"]


async def test_a_dropped_response_stream_is_resumed_after_the_last_event() -> None:
    async def begin(exchange: Exchange) -> None:
        async with exchange.events() as events:
            await events.send(event_id="e1", retry=2500)
            raise Cut

    async def resume(exchange: Exchange) -> None:
        assert exchange.headers["last-event-id"] == "e1"
        async with exchange.events() as events:
            await events.send({"id": "q", "method": "elicitation/create", "params": {}}, event_id="e2")
            await events.send({"id": 1, "result": {"resumed": True}}, event_id="e3")

    clock = ManualClock()
    gets = Script(answers(405), resume)
    async with (
        Origin({"tools/call": begin, "GET": gets}) as origin,
        HttpTransport(origin.url, clock=clock).open() as channel,
    ):
        await handshake(channel)
        await gets.turns(1)
        await channel.write.send(request(1, "tools/call"))
        await clock.let_pass(2.5)
        assert related_to(await arrival(channel)) == 1
        assert await result(channel) == (1, {"resumed": True})


async def test_resuming_without_progress_ends_after_three_tries() -> None:
    async def begin(exchange: Exchange) -> None:
        async with exchange.events() as events:
            await events.send(event_id="e1")

    async def nothing(exchange: Exchange) -> None:
        async with exchange.events():
            pass

    clock = ManualClock()
    gets = Script(answers(405), nothing)
    async with Origin({"tools/call": begin, "GET": gets}) as origin:
        async with HttpTransport(origin.url, clock=clock).open() as channel:
            await handshake(channel)
            await gets.turns(1)
            await channel.write.send(request(1, "tools/call"))
            await clock.let_pass(1.0)
            await clock.let_pass(1.0)
            assert (await error(channel))[:2] == (1, -32000)
        assert gets.count == 4
        assert channel.state.lost_reason is None


@pytest.mark.parametrize(("version", "event_id"), [("2025-11-25", None), (MODERN, "e1")])
async def test_a_stream_that_cannot_be_resumed_fails_the_request(version: str, event_id: str | None) -> None:
    async def begin(exchange: Exchange) -> None:
        async with exchange.events() as events:
            await events.send({"method": "notifications/progress", "params": {}}, event_id=event_id)

    async with Origin({"tools/call": begin}) as origin, HttpTransport(origin.url).open() as channel:
        channel.state.protocol_version = version
        await channel.write.send(request(1, "tools/call"))
        await arrival(channel)
        assert (await error(channel))[:2] == (1, -32000)
        assert origin.seen("GET") == []


async def test_messages_of_the_servers_own_stream_arrive_without_a_request() -> None:
    async def speak(exchange: Exchange) -> None:
        async with exchange.events() as events:
            await events.send("not json")
            await events.send({"method": "notifications/tools/list_changed"})
            await exchange.disconnected()

    async with Origin({"GET": speak}) as origin, HttpTransport(origin.url).open() as channel:
        await handshake(channel)
        with anyio.fail_after(PATIENCE):
            assert isinstance(await channel.read.receive(), ValueError)
        assert related_to(await arrival(channel)) is None


async def test_an_event_beyond_the_cap_on_the_servers_own_stream_loses_the_channel() -> None:
    async def speak(exchange: Exchange) -> None:
        async with exchange.events() as events:
            await events.send({"method": "notifications/message", "params": {"data": "x" * 2000}})

    async with Origin({"GET": speak}) as origin, HttpTransport(origin.url, max_event_bytes=1000).open() as channel:
        await handshake(channel)
        assert "byte limit" in str(await loss(channel))


async def test_the_death_of_an_idle_server_is_noticed() -> None:
    gets = Script(hold)
    async with Origin({"GET": gets}) as origin, HttpTransport(origin.url).open() as channel:
        await handshake(channel)
        await gets.turns(1)
        await origin.vanish()
        assert str(await loss(channel)).startswith("the server cannot be reached")


class Resumable(Origin):
    """A server with a stream of its own, and calls whose response comes when they are asked for again."""

    def __init__(self, retry: int | None = None) -> None:
        super().__init__({"tools/call": self._begin, "GET": self._get})
        self._retry = retry
        self.is_heard = anyio.Event()
        """Its own stream is open."""

    async def _begin(self, exchange: Exchange) -> None:
        async with exchange.events() as events:
            await events.send({"method": "notifications/progress", "params": {}}, event_id="e1", retry=self._retry)
            await exchange.disconnected()

    async def _get(self, exchange: Exchange) -> None:
        if "last-event-id" not in exchange.headers:
            self.is_heard.set()
            await hold(exchange)
            return
        async with exchange.events() as events:
            await events.send({"id": 1, "result": {"after": exchange.headers["last-event-id"]}})

    async def begun(self, channel: Channel) -> None:
        """A call is on its way."""
        await handshake(channel)
        with anyio.fail_after(PATIENCE):
            await self.is_heard.wait()
        await channel.write.send(request(1, "tools/call"))
        await arrival(channel)


async def test_a_call_is_resumed_though_the_server_refuses_connections_for_a_moment() -> None:
    clock = ManualClock()
    async with Resumable() as origin, HttpTransport(origin.url, clock=clock).open() as channel:
        await origin.begun(channel)
        await origin.vanish()
        # The response's stream and the server's own have each been refused once.
        await clock.asked(1.0, times=2)
        await origin.come_back()
        await clock.let_pass(1.0)
        assert await result(channel) == (1, {"after": "e1"})
        assert channel.state.lost_reason is None


async def test_the_servers_own_stream_is_tried_for_as_long_as_a_call_is_to_be_resumed() -> None:
    clock = ManualClock()
    async with Resumable(retry=10_000) as origin, HttpTransport(origin.url, clock=clock).open() as channel:
        await origin.begun(channel)
        await origin.vanish()
        await clock.asked(10.0)
        for _ in range(MAX_TRIES):
            await clock.let_pass(1.0)
        await clock.asked(1.0)
        await origin.come_back()
        await clock.let_pass(10.0)
        assert await result(channel) == (1, {"after": "e1"})
        assert channel.state.lost_reason is None


async def test_a_call_that_cannot_be_resumed_in_time_is_lost_with_its_server(clock: FakeClock) -> None:
    async with Resumable() as origin, HttpTransport(origin.url, clock=clock).open() as channel:
        await origin.begun(channel)
        await origin.vanish()
        with anyio.fail_after(PATIENCE):
            while channel.state.lost_reason is None:
                await clock.advance(1)
        assert channel.state.lost_reason.startswith("the server cannot be reached")


@pytest.mark.parametrize("status", [400, 404, 405, 500])
async def test_a_server_without_a_stream_of_its_own_is_not_dead(status: int) -> None:
    gets = Script(answers(status))
    async with Origin({"GET": gets, "tools/call": by_stream}) as origin, HttpTransport(origin.url).open() as channel:
        await handshake(channel)
        await gets.turns(1)
        await channel.write.send(request(1, "tools/call"))
        assert await result(channel) == (1, {"ok": True})
        assert gets.count == 1
    assert channel.state.lost_reason is None


async def test_the_servers_own_stream_is_reopened_at_once_and_after_the_last_event() -> None:
    async def begin(exchange: Exchange) -> None:
        async with exchange.events() as events:
            await events.send({"method": "notifications/one"}, event_id="e1")
            raise Cut

    async def go_on(exchange: Exchange) -> None:
        async with exchange.events() as events:
            await events.send({"method": "notifications/two", "params": {"after": exchange.headers["last-event-id"]}})

    clock = ManualClock()
    gets = Script(begin, go_on, answers(405))
    async with Origin({"GET": gets, "tools/call": by_stream}) as origin:
        async with HttpTransport(origin.url, clock=clock).open() as channel:
            await handshake(channel)
            await arrival(channel)
            assert (await arrival(channel)).message.params == {"after": "e1"}  # type: ignore[union-attr]
            await clock.let_pass(1.0)
            await gets.turns(3)
            await anyio.wait_all_tasks_blocked()
            assert 1.0 not in clock.waits
            await channel.write.send(request(1, "tools/call"))
            assert await result(channel) == (1, {"ok": True})
        assert channel.state.lost_reason is None


@pytest.mark.parametrize(
    ("answer", "tries", "reason"),
    [
        (answers(404), 1, "the server does not know our session any more"),
        (answers(503), 3, "the server answered HTTP 503 Scripted"),
        (cut, 3, "the connection to the server failed: Server disconnected without sending a response."),
    ],
)
async def test_a_stream_that_was_open_and_cannot_be_opened_again_loses_the_channel(
    answer: Handler, tries: int, reason: str
) -> None:
    async def begin(exchange: Exchange) -> None:
        async with exchange.events() as events:
            await events.send(retry=700)

    clock = ManualClock()
    gets = Script(begin, answer)
    async with Origin({"GET": gets}) as origin, HttpTransport(origin.url, clock=clock).open() as channel:
        await handshake(channel)
        for _ in range(tries):
            await clock.let_pass(0.7)
        assert await loss(channel) == reason
        assert gets.count == 1 + tries
        with pytest.raises(anyio.BrokenResourceError):
            await channel.write.send(request(1, "tools/call"))


async def test_a_stream_that_the_server_believes_to_be_read_is_asked_for_until_it_finds_out(clock: FakeClock) -> None:
    opened = anyio.Event()

    async def open_stream(exchange: Exchange) -> None:
        opened.set()
        await hold(exchange)

    get = Script(*[answers(409)] * 6, open_stream)
    async with Origin({"GET": get}) as origin, HttpTransport(origin.url, clock=clock).open() as channel:
        await handshake(channel)
        with anyio.fail_after(PATIENCE):
            while not opened.is_set():
                await clock.advance(30)
        assert channel.state.lost_reason is None
