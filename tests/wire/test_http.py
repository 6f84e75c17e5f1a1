"""The Streamable HTTP transport against a scripted server on real sockets."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp_types import JSONRPCError
from starlette.applications import Starlette
from starlette.routing import Route

from emceepee.errors import ConnectFailed
from emceepee.wire import outbox
from emceepee.wire.http import HttpTransport
from emceepee.wire.transport import is_transport_failure, was_never_taken
from tests.wire.asgi import served
from tests.wire.messages import (
    PATIENCE,
    arrival,
    error,
    handshake,
    loss,
    notification,
    related_to,
    request,
    response,
    result,
)
from tests.wire.origin import (
    Exchange,
    Handler,
    Origin,
    Script,
    accept,
    answers,
    by_stream,
    cut,
    hold,
    start_session,
)

pytestmark = pytest.mark.anyio

MODERN = "2026-07-28"
NEEDS_CREDENTIALS = ": it needs credentials, such as an Authorization header"
BIG = "x" * (5 * 1024 * 1024)


async def test_it_speaks_with_the_servers_of_the_sdk() -> None:
    server = Server("real")
    manager = StreamableHTTPSessionManager(server)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with manager.run():
            yield

    app = Starlette(routes=[Route("/mcp", StreamableHTTPASGIApp(manager))], lifespan=lifespan)
    async with served(app) as root, HttpTransport(f"{root}/mcp").open() as channel:
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        await channel.write.send(request(0, "initialize", client))
        assert (await result(channel))[1]["serverInfo"]["name"] == "real"
        channel.state.protocol_version = "2025-11-25"
        await channel.write.send(notification("notifications/initialized"))
        await channel.write.send(request(1, "ping"))
        assert await result(channel) == (1, {})
        assert channel.state.session_id is not None
    assert channel.state.lost_reason is None


async def test_one_tcp_connection_carries_all_sequential_calls() -> None:
    async with Origin({"tools/call": by_stream}) as origin, HttpTransport(origin.url).open() as channel:
        await handshake(channel)
        for number in range(1, 21):
            await channel.write.send(request(number, "tools/call"))
            assert await result(channel) == (number, {"ok": True})
        # The GET, which is refused here, may need a connection of its own.
        assert origin.connections <= 2


async def test_a_refused_connection_fails_that_request_alone() -> None:
    async with Origin() as origin:
        await origin.vanish()
        async with HttpTransport(origin.url).open() as channel:
            for number in (1, 2):
                await channel.write.send(notification("notifications/progress"))
                await channel.write.send(request(number, "tools/call"))
                request_id, code, text = await error(channel)
                assert (request_id, code) == (number, -32000)
                assert text.startswith("the server cannot be reached")
        assert channel.state.lost_reason is None


async def test_a_connection_cut_in_a_call_fails_that_request_alone() -> None:
    async with Origin({"tools/call": Script(cut, by_stream)}) as origin, HttpTransport(origin.url).open() as channel:
        await channel.write.send(request(1, "tools/call"))
        assert (await error(channel))[:2] == (1, -32000)
        await channel.write.send(request(2, "tools/call"))
        assert await result(channel) == (2, {"ok": True})


async def test_only_a_request_that_was_not_carried_counts_as_a_transport_failure() -> None:
    handlers = {"cut": cut, "refused": answers(400, b"what?"), "garbled": answers(200, b"<html>")}
    async with Origin(handlers) as origin, HttpTransport(origin.url).open() as channel:
        failures = {}
        for method in handlers:
            await channel.write.send(request(method, method))
            failed = (await arrival(channel)).message
            assert isinstance(failed, JSONRPCError)
            failures[method] = is_transport_failure(failed.error.data)
        assert failures == {"cut": True, "refused": False, "garbled": False}


async def test_a_failed_notification_disturbs_nobody() -> None:
    handlers = {"notifications/progress": cut, "tools/call": by_stream}
    async with Origin(handlers) as origin, HttpTransport(origin.url).open() as channel:
        await channel.write.send(notification("notifications/progress"))
        await channel.write.send(request(1, "tools/call"))
        assert await result(channel) == (1, {"ok": True})


async def test_a_slow_notification_and_a_slow_response_delay_nothing() -> None:
    gate = anyio.Event()

    async def slow(exchange: Exchange) -> None:
        await gate.wait()
        await exchange.reply(202)

    handlers = {"notifications/progress": slow, "response": slow, "tools/call": by_stream}
    async with Origin(handlers) as origin, HttpTransport(origin.url).open() as channel:
        await handshake(channel)
        await channel.write.send(notification("notifications/progress"))
        await channel.write.send(response(7, {}))
        await channel.write.send(request(1, "tools/call"))
        assert await result(channel) == (1, {"ok": True})
        gate.set()


async def test_initialize_and_initialized_are_taken_before_what_follows() -> None:
    gate = anyio.Event()
    begun = anyio.Event()

    async def slow(exchange: Exchange) -> None:
        begun.set()
        await gate.wait()
        await exchange.reply(202)

    async with (
        Origin({"notifications/initialized": slow, "tools/call": by_stream}) as origin,
        HttpTransport(origin.url).open() as channel,
    ):
        await handshake(channel)
        await channel.write.send(request(1, "tools/call"))
        with anyio.fail_after(PATIENCE):
            await begun.wait()
        await anyio.wait_all_tasks_blocked()
        assert origin.seen("tools/call") == []
        gate.set()
        assert await result(channel) == (1, {"ok": True})


async def test_a_server_may_ask_before_it_answers_initialize() -> None:
    answered = anyio.Event()

    async def ask_first(exchange: Exchange) -> None:
        async with exchange.events() as events:
            await events.send({"id": "q", "method": "ping"})
            await answered.wait()
            await events.result()

    async def note(exchange: Exchange) -> None:
        answered.set()
        await exchange.reply(202)

    async with (
        Origin({"initialize": ask_first, "response": note}) as origin,
        HttpTransport(origin.url).open() as channel,
    ):
        await channel.write.send(request(0, "initialize"))
        await arrival(channel)
        await channel.write.send(response("q", {}))
        assert await result(channel) == (0, {})


@pytest.mark.parametrize("as_stream", [True, False])
async def test_a_result_of_five_mebibytes_passes(as_stream: bool) -> None:
    async def big(exchange: Exchange) -> None:
        if as_stream:
            async with exchange.events() as events:
                await events.result({"text": BIG})
        else:
            await exchange.result({"text": BIG})

    async with Origin({"tools/call": big}) as origin, HttpTransport(origin.url).open() as channel:
        await channel.write.send(request(1, "tools/call"))
        assert await result(channel) == (1, {"text": BIG})


async def test_a_cap_on_events_fails_the_request_that_exceeds_it() -> None:
    async def big(exchange: Exchange) -> None:
        async with exchange.events() as events:
            await events.result({"text": "x" * 2000})

    async with Origin({"tools/call": big}) as origin, HttpTransport(origin.url, max_event_bytes=1000).open() as channel:
        await channel.write.send(request(1, "tools/call"))
        assert (await error(channel))[:2] == (1, -32700)


async def test_an_unknown_session_fails_the_request_and_loses_the_channel() -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": "gone"}}).encode()
    async with Origin({"tools/call": answers(404, body, "application/json")}) as origin:
        async with HttpTransport(origin.url).open() as channel:
            await handshake(channel)
            await channel.write.send(request(1, "tools/call"))
            assert await error(channel) == (1, -32000, "the server does not know our session any more")
            assert await loss(channel) == "the server does not know our session any more"
        assert origin.seen("DELETE") == []


NO_SESSION = {"code": -32000, "message": "Bad Request: No valid session ID provided"}


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"jsonrpc": "2.0", "id": None, "error": NO_SESSION}).encode(),
        json.dumps({"jsonrpc": "2.0", "id": 1, "error": NO_SESSION}).encode(),
        b"Invalid or missing session ID",
    ],
)
@pytest.mark.parametrize("to_ping", [400, 404])
async def test_an_unknown_session_is_also_one_in_which_even_a_ping_is_a_bad_request(body: bytes, to_ping: int) -> None:
    handlers = {"tools/call": answers(400, body, "application/json"), "ping": answers(to_ping, body)}
    async with Origin(handlers) as origin:
        async with HttpTransport(origin.url).open() as channel:
            await handshake(channel)
            await channel.write.send(request(1, "tools/call"))
            failed = (await arrival(channel)).message
            assert isinstance(failed, JSONRPCError)
            assert was_never_taken(failed.error.data)
            assert await loss(channel) == "the server does not know our session any more"
        assert origin.seen("ping")[0].headers["mcp-session-id"] == "session-1"
        assert origin.seen("DELETE") == []


METHOD_NOT_FOUND = json.dumps(
    {"jsonrpc": "2.0", "id": None, "error": {"code": -32601, "message": "what is a ping?"}}
).encode()


@pytest.mark.parametrize(
    "to_ping",
    [by_stream, Exchange.result, answers(400, METHOD_NOT_FOUND), answers(503), cut],
    ids=["stream", "json", "unknown method", "not now", "cut"],
)
async def test_a_bad_request_costs_the_session_nothing_unless_a_ping_is_one_too(to_ping: Handler) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32602, "message": "wrong"}}).encode()
    handlers: dict[str, Handler] = {"tools/call": Script(answers(400, body), by_stream), "ping": to_ping}
    async with Origin(handlers) as origin:
        async with HttpTransport(origin.url).open() as channel:
            await handshake(channel)
            await channel.write.send(request(1, "tools/call"))
            assert await error(channel) == (1, -32602, "wrong")
            await channel.write.send(request(2, "tools/call"))
            assert await result(channel) == (2, {"ok": True})
        assert len(origin.seen("ping")) == 1
        assert channel.state.lost_reason is None


async def test_a_modern_cancellation_closes_the_response_stream_and_is_not_sent() -> None:
    gone = anyio.Event()

    async def wait(exchange: Exchange) -> None:
        async with exchange.events() as events:
            await events.send({"method": "notifications/progress", "params": {}})
            await exchange.disconnected()
            gone.set()

    async with Origin({"tools/call": wait}) as origin, HttpTransport(origin.url).open() as channel:
        # The probe of the era names it in its headers alone.
        await channel.write.send(request(1, "tools/call", headers={"MCP-Protocol-Version": MODERN}))
        await arrival(channel)
        await channel.write.send(notification("notifications/cancelled", {"requestId": 1}))
        with anyio.fail_after(PATIENCE):
            await gone.wait()
        channel.state.protocol_version = MODERN
        await channel.write.send(notification("notifications/cancelled", {"requestId": 1}))
        await channel.write.send(request(2, "ping"))
        assert (await error(channel))[0] == 2
        assert origin.seen("notifications/cancelled") == []


async def test_a_handshake_cancellation_is_sent_and_the_response_stream_stays() -> None:
    cancelled = anyio.Event()

    async def wait(exchange: Exchange) -> None:
        async with exchange.events() as events:
            await cancelled.wait()
            await events.result({"late": True})

    async def cancel(exchange: Exchange) -> None:
        cancelled.set()
        await exchange.reply(202)

    async with (
        Origin({"tools/call": wait, "notifications/cancelled": cancel}) as origin,
        HttpTransport(origin.url).open() as channel,
    ):
        await handshake(channel)
        await channel.write.send(request(1, "tools/call"))
        await channel.write.send(notification("notifications/cancelled", {"requestId": 1}))
        assert await result(channel) == (1, {"late": True})


async def test_a_json_rpc_error_in_a_refusal_is_passed_on_under_our_id() -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32602, "message": "wrong", "data": 1}}).encode()
    async with (
        Origin({"tools/call": answers(400, body, "application/json")}) as origin,
        HttpTransport(origin.url).open() as channel,
    ):
        await channel.write.send(request(1, "tools/call"))
        assert await error(channel) == (1, -32602, "wrong")


@pytest.mark.parametrize(
    ("status", "body", "code", "text"),
    [
        (
            401,
            b"",
            -32001,
            "the server answered HTTP 401 Scripted: it needs credentials, such as an Authorization header",
        ),
        (
            403,
            b"",
            -32001,
            "the server answered HTTP 403 Scripted: it needs credentials, such as an Authorization header",
        ),
        (404, b"", -32000, "the server answered HTTP 404 Scripted"),
        (500, b"<p>\n" + b"x" * 300, -32000, "the server answered HTTP 500 Scripted: <p> " + "x" * 196),
        (202, b"", -32000, "the server answered HTTP 202 without a response"),
    ],
)
async def test_a_refusal_without_json_rpc_says_what_happened(status: int, body: bytes, code: int, text: str) -> None:
    async with Origin({"tools/call": answers(status, body)}) as origin:
        async with HttpTransport(origin.url).open() as channel:
            await channel.write.send(request(1, "tools/call"))
            assert await error(channel) == (1, code, text)
        assert channel.state.lost_reason is None


async def test_a_refusal_for_want_of_scopes_says_which_and_what_to_do() -> None:
    async def forbidden(exchange: Exchange) -> None:
        challenge = 'Bearer error="insufficient_scope", scope="files:read files:write"'
        await exchange.reply(403, headers={"www-authenticate": challenge})

    async with Origin({"tools/call": forbidden}) as origin, HttpTransport(origin.url).open() as channel:
        await channel.write.send(request(1, "tools/call"))
        _, code, text = await error(channel)
    assert code == -32001
    assert text.endswith(
        'it needs more scopes: set oauth.scopes of its entry to ["files:read", "files:write"], '
        "and run `emceepee login` again"
    )


async def test_an_answer_that_is_not_json_rpc_fails_its_request() -> None:
    async def garbled(exchange: Exchange) -> None:
        async with exchange.events() as events:
            await events.send("not json")

    handlers = {"tools/call": Script(garbled, answers(200, b"<html>", "text/html"))}
    async with Origin(handlers) as origin, HttpTransport(origin.url).open() as channel:
        for number in (1, 2):
            await channel.write.send(request(number, "tools/call"))
            assert (await error(channel))[:2] == (number, -32700)


async def test_every_message_of_a_batch_is_delivered() -> None:
    async def batch(exchange: Exchange) -> None:
        note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}
        await exchange.json([note, {"jsonrpc": "2.0", "id": "1", "result": {}}])

    async with Origin({"tools/call": batch}) as origin, HttpTransport(origin.url).open() as channel:
        await channel.write.send(request(1, "tools/call"))
        assert related_to(await arrival(channel)) == 1
        assert await result(channel) == (1, {})


async def test_headers_of_the_user_the_session_and_the_message_travel_together() -> None:
    headers = {"Authorization": "Bearer t", "Accept": "nothing", "X-Trace": "user"}
    async with (
        Origin({"tools/call": by_stream}) as origin,
        HttpTransport(origin.url, headers=headers).open() as channel,
    ):
        await handshake(channel)
        await channel.write.send(request(1, "tools/call", headers={"x-trace": "message"}))
        await result(channel)
    expected = {
        "authorization": "Bearer t",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-session-id": "session-1",
        "mcp-protocol-version": "2025-11-25",
        "x-trace": "message",
    }
    assert expected.items() <= origin.seen("tools/call")[0].headers.items()
    first = origin.seen("initialize")[0].headers
    assert "mcp-session-id" not in first
    assert "mcp-protocol-version" not in first
    assert origin.seen("DELETE")[0].headers["mcp-session-id"] == "session-1"


async def test_a_redirect_within_the_origin_is_followed_and_one_beyond_is_not() -> None:
    async def redirect(exchange: Exchange) -> None:
        if exchange.path == "/mcp":
            await exchange.reply(308, headers={"location": "/mcp/"})
        elif exchange.message["id"] == 1:
            await exchange.result({"path": exchange.path})
        else:
            await exchange.reply(307, headers={"location": "http://example.invalid/mcp"})

    async with Origin({"tools/call": redirect}) as origin, HttpTransport(origin.url).open() as channel:
        await channel.write.send(request(1, "tools/call"))
        assert await result(channel) == (1, {"path": "/mcp/"})
        await channel.write.send(request(2, "tools/call"))
        assert "http://example.invalid/mcp" in (await error(channel))[2]


async def test_a_hundred_open_calls_leave_room_for_the_answers_to_their_questions() -> None:
    answered: dict[Any, anyio.Event] = {number: anyio.Event() for number in range(100)}

    async def ask(exchange: Exchange) -> None:
        number = exchange.message["id"]
        async with exchange.events() as events:
            await events.send({"id": f"q{number}", "method": "elicitation/create", "params": {}})
            await answered[number].wait()
            await events.result()

    async def note(exchange: Exchange) -> None:
        answered[int(exchange.message["id"][1:])].set()
        await exchange.reply(202)

    async with Origin({"tools/call": ask, "response": note}) as origin, HttpTransport(origin.url).open() as channel:
        with anyio.fail_after(PATIENCE):
            for number in range(100):
                await channel.write.send(request(number, "tools/call"))
            for item in [await arrival(channel) for _ in range(100)]:
                await channel.write.send(response(item.message.id, {}))  # type: ignore[union-attr, arg-type]
        assert {(await result(channel))[0] for _ in range(100)} == set(range(100))


async def test_one_request_too_many_is_refused_while_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_REQUESTS", 1)
    gate = anyio.Event()

    async def slow(exchange: Exchange) -> None:
        await gate.wait()
        await exchange.result()

    async with Origin({"tools/call": slow}) as origin, HttpTransport(origin.url).open() as channel:
        await channel.write.send(request(1, "tools/call"))
        await channel.write.send(request(2, "tools/call"))
        assert (await error(channel))[:2] == (2, -32000)
        gate.set()
        assert await result(channel) == (1, {})


async def test_the_session_is_ended_when_the_channel_is_left() -> None:
    async with Origin() as origin:
        async with HttpTransport(origin.url).open() as channel:
            await handshake(channel)
        assert [exchange.verb for exchange in origin.exchanges][-1] == "DELETE"
        assert channel.state.session_id == "session-1"
        assert channel.state.lost_reason is None


async def test_a_server_that_hangs_does_not_keep_us_from_leaving() -> None:
    async def hang(exchange: Exchange) -> None:
        await exchange.disconnected()

    async with Origin({"DELETE": hang, "tools/call": hang, "GET": hold}) as origin:
        with anyio.fail_after(PATIENCE):
            async with HttpTransport(origin.url).open() as channel:
                await handshake(channel)
                await channel.write.send(request(1, "tools/call"))


async def test_a_cancelled_owner_still_ends_the_session() -> None:
    async with Origin({"tools/call": hold, "GET": hold}) as origin, anyio.create_task_group() as tasks:
        calls = anyio.Event()

        async def own() -> None:
            async with HttpTransport(origin.url).open() as channel:
                await handshake(channel)
                await channel.write.send(request(1, "tools/call"))
                calls.set()
                await anyio.sleep_forever()

        tasks.start_soon(own)
        with anyio.fail_after(PATIENCE):
            await calls.wait()
        tasks.cancel_scope.cancel()
    assert origin.exchanges[-1].verb == "DELETE"


async def test_the_modern_era_has_no_session() -> None:
    async with Origin({"server/discover": start_session, "notifications/initialized": accept}) as origin:
        async with HttpTransport(origin.url).open() as channel:
            await channel.write.send(request(1, "server/discover", headers={"mcp-protocol-version": MODERN}))
            await result(channel)
            assert channel.state.session_id is None
        assert origin.seen("DELETE") == []


@pytest.mark.parametrize("url", ["ftp://host/mcp", "no url", "http:///mcp"])
async def test_an_address_without_a_server_is_refused_before_the_first_message(url: str) -> None:
    with pytest.raises(ConnectFailed):
        async with HttpTransport(url).open():
            pass


async def test_an_error_of_the_body_comes_out_as_it_is() -> None:
    with pytest.raises(KeyError):
        async with HttpTransport("http://127.0.0.1:1/mcp").open():
            raise KeyError


def test_the_target_hides_user_and_password() -> None:
    assert HttpTransport("https://user:secret@host/mcp?key=secret#secret").target == "https://host/mcp"


async def test_a_session_that_is_taken_up_has_its_stream_and_is_left_alone_at_the_end() -> None:
    listening = Script(answers(409), hold)
    async with Origin({"GET": listening, "ping": by_stream}) as origin:
        transport = HttpTransport(origin.url, session_id="session-0")
        async with transport.open() as channel:
            await channel.write.send(request(1, "ping"))
            assert await result(channel) == (1, {"ok": True})
            # The first GET found the one before us still there.
            await listening.turns(2)
        assert [exchange.headers["mcp-session-id"] for exchange in origin.exchanges] == ["session-0"] * 3
        assert origin.seen("DELETE") == []


@pytest.mark.parametrize("status", [404, 400])
async def test_a_session_that_cannot_be_taken_up_is_a_loss(status: int) -> None:
    async with Origin({"ping": answers(status)}) as origin:
        async with HttpTransport(origin.url, session_id="session-0").open() as channel:
            await channel.write.send(request(1, "ping"))
            assert await error(channel) == (1, -32000, "the server does not know our session any more")
            assert await loss(channel) == "the server does not know our session any more"
        assert origin.seen("GET") == []


async def test_a_refusal_in_a_session_that_was_taken_up_is_no_loss_once_the_server_knew_it() -> None:
    async with Origin({"ping": by_stream, "tools/list": answers(400)}) as origin:
        transport = HttpTransport(origin.url, session_id="session-0")
        async with transport.open() as channel:
            await channel.write.send(request(1, "ping"))
            await result(channel)
            await channel.write.send(request(2, "tools/list"))
            assert (await error(channel))[0] == 2
            assert channel.state.lost_reason is None


async def test_a_connection_that_an_abandoned_request_is_held_up_on_is_let_go_without_a_word() -> None:
    left = anyio.Event()

    async def silent(exchange: Exchange) -> None:
        await exchange.disconnected()
        left.set()

    waiting = Script(silent)
    async with Origin({"tasks/get": waiting}) as origin, HttpTransport(origin.url).open() as channel:
        await handshake(channel)
        await channel.write.send(request(7, "tasks/get"))
        await waiting.turns(1)
        channel.state.on_abandoned(7)
        channel.state.on_abandoned(8)
        with anyio.fail_after(PATIENCE):
            await left.wait()
        assert origin.seen("notifications/cancelled") == []
