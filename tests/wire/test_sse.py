"""The legacy HTTP+SSE transport: against the SDK's own server, and against a scripted one."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from emceepee.errors import ConnectFailed
from emceepee.wire import outbox, sse
from emceepee.wire.sse import SseTransport
from tests.wire.asgi import served
from tests.wire.messages import (
    PATIENCE,
    ManualClock,
    arrival,
    error,
    handshake,
    loss,
    notification,
    related_to,
    request,
    result,
)
from tests.wire.origin import Cut, EventWriter, Exchange, Origin

pytestmark = pytest.mark.anyio


class LegacyServer:
    """An origin whose event stream stays open, and answers every request that has the method `ping`."""

    def __init__(self, endpoint: str = "/messages?session_id=s1") -> None:
        self.endpoint = endpoint
        self.ended = anyio.Event()
        self.events: EventWriter | None = None

    async def stream(self, exchange: Exchange) -> None:
        async with exchange.events() as self.events:
            await self.events.send(self.endpoint, event="endpoint")
            await self.ended.wait()
            raise Cut

    async def ping(self, exchange: Exchange) -> None:
        await exchange.reply(202)
        assert self.events is not None
        await self.events.send({"id": exchange.message["id"], "result": {"path": exchange.path}})

    def origin(self, **handlers: Any) -> Origin:
        return Origin({"GET": self.stream, "ping": self.ping, **handlers})


async def test_it_speaks_with_the_servers_of_the_sdk() -> None:
    server = Server("legacy")
    messages = SseServerTransport("/messages/")

    async def stream(incoming: Request) -> Response:
        async with messages.connect_sse(incoming.scope, incoming.receive, incoming._send) as (read, write):
            await server.run(read, write, server.create_initialization_options())
        return Response()

    app = Starlette(routes=[Route("/sse", stream), Mount("/messages/", app=messages.handle_post_message)])
    async with served(app) as root, SseTransport(f"{root}/sse").open() as channel:
        client = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        await channel.write.send(request(0, "initialize", client))
        assert (await result(channel))[1]["serverInfo"]["name"] == "legacy"
        await channel.write.send(notification("notifications/initialized"))
        await channel.write.send(request(1, "ping"))
        assert await result(channel) == (1, {})
        assert channel.state.session_id is not None
    assert channel.state.lost_reason is None


async def test_messages_go_to_the_endpoint_and_answers_come_on_the_stream() -> None:
    legacy = LegacyServer()
    async with legacy.origin() as origin, SseTransport(origin.url, headers={"X-Key": "k"}).open() as channel:
        await channel.write.send(request(1, "ping"))
        answer = await arrival(channel)
        assert answer.message.result == {"path": "/messages?session_id=s1"}  # type: ignore[union-attr]
        assert related_to(answer) is None
        assert channel.state.session_id == "s1"
        assert {exchange.headers["x-key"] for exchange in origin.exchanges} == {"k"}


async def test_a_slow_post_delays_nothing_and_a_failed_one_fails_alone() -> None:
    gate = anyio.Event()

    async def slow(exchange: Exchange) -> None:
        await gate.wait()
        await exchange.reply(202)

    async def cut(exchange: Exchange) -> None:
        raise Cut

    async def refuse(exchange: Exchange) -> None:
        await exchange.reply(500, b"broken")

    legacy = LegacyServer()
    async with (
        legacy.origin(slow=slow, cut=cut, refuse=refuse) as origin,
        SseTransport(origin.url).open() as channel,
    ):
        await channel.write.send(notification("slow"))
        await channel.write.send(request(1, "cut"))
        assert (await error(channel))[:2] == (1, -32000)
        await channel.write.send(request(2, "refuse"))
        assert await error(channel) == (2, -32000, "the server answered HTTP 500 Scripted: broken")
        await channel.write.send(request(3, "ping"))
        assert (await result(channel))[0] == 3
        gate.set()


async def test_the_handshake_is_taken_in_order() -> None:
    legacy = LegacyServer()
    async with legacy.origin(initialize=legacy.ping) as origin, SseTransport(origin.url).open() as channel:
        await handshake(channel, "2024-11-05")
        await channel.write.send(request(1, "ping"))
        await result(channel)
        sent = [exchange.message["method"] for exchange in origin.seen("POST")]
        assert sent == ["initialize", "notifications/initialized", "ping"]


async def test_a_greeting_that_is_not_taken_holds_up_the_rest_for_its_time_on_the_clock() -> None:
    async def hang(exchange: Exchange) -> None:
        await exchange.disconnected()

    clock = ManualClock()
    async with (
        LegacyServer().origin(initialize=hang) as origin,
        SseTransport(origin.url, clock=clock).open() as channel,
    ):
        await channel.write.send(request(1, "initialize"))
        await channel.write.send(request(2, "ping"))
        await clock.let_pass(outbox.ORDER_SECONDS)
        assert (await result(channel))[0] == 2


async def test_the_end_of_the_stream_loses_the_channel() -> None:
    legacy = LegacyServer()
    async with legacy.origin() as origin, SseTransport(origin.url).open() as channel:
        legacy.ended.set()
        assert str(await loss(channel)).startswith("the connection to the server failed")
        with pytest.raises(anyio.BrokenResourceError):
            await channel.write.send(request(1, "ping"))


async def test_a_server_that_ends_the_stream_properly_loses_the_channel_too() -> None:
    async def brief(exchange: Exchange) -> None:
        async with exchange.events() as events:
            await events.send("/messages", event="endpoint")
            await events.send("not json")

    async with Origin({"GET": brief}) as origin, SseTransport(origin.url).open() as channel:
        with anyio.fail_after(PATIENCE):
            assert isinstance(await channel.read.receive(), ValueError)
        assert await loss(channel) == "the server ended the event stream"


async def test_a_large_event_passes_unless_it_is_capped() -> None:
    legacy = LegacyServer()

    async def big(exchange: Exchange) -> None:
        await exchange.reply(202)
        assert legacy.events is not None
        await legacy.events.send({"id": exchange.message["id"], "result": {"text": "x" * (5 * 1024 * 1024)}})

    async with legacy.origin(big=big) as origin:
        async with SseTransport(origin.url).open() as channel:
            await channel.write.send(request(1, "big"))
            assert len((await result(channel))[1]["text"]) == 5 * 1024 * 1024
        async with SseTransport(origin.url, max_event_bytes=1024 * 1024).open() as channel:
            await channel.write.send(request(1, "big"))
            assert "byte limit" in str(await loss(channel))


@pytest.mark.parametrize("endpoint", ["http://example.invalid/messages", "https://127.0.0.1/messages", "//evil/x"])
async def test_an_endpoint_outside_the_origin_is_refused(endpoint: str) -> None:
    async with LegacyServer(endpoint).origin() as origin:
        with pytest.raises(ConnectFailed) as caught:
            async with SseTransport(origin.url).open():
                pass
    assert caught.value.reason == "the server names an endpoint outside its own origin"


async def test_a_stream_without_endpoint_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "ENDPOINT_SECONDS", 0.05)

    async def silent(exchange: Exchange) -> None:
        async with exchange.events():
            await exchange.disconnected()

    async with Origin({"GET": silent}) as origin:
        with pytest.raises(ConnectFailed) as caught:
            async with SseTransport(origin.url).open():
                pass
    assert caught.value.reason == "no endpoint within 0.05 s"


async def test_no_stream_at_all_says_why() -> None:
    async def page(exchange: Exchange) -> None:
        await exchange.reply(200, b"<html>", "text/html")

    async with Origin({"GET": page}) as origin:
        with pytest.raises(ConnectFailed) as caught:
            async with SseTransport(origin.url).open():
                pass
        assert caught.value.reason == "there is no event stream, but text/html"
        await origin.vanish()
        with pytest.raises(ConnectFailed) as caught:
            async with SseTransport(origin.url).open():
                pass
        assert caught.value.reason.startswith("the server cannot be reached")


async def test_an_error_of_the_body_comes_out_as_it_is() -> None:
    async with LegacyServer().origin() as origin:
        with pytest.raises(KeyError):
            async with SseTransport(origin.url).open():
                raise KeyError
