"""Batches over HTTP, which only clients of 2025-03-26 may send."""

from __future__ import annotations

import json
from typing import Any

import pytest

from emceepee.testing import FakeClock, ScriptedCall, ScriptedServer, settle
from tests.front.asgi import HttpExchange
from tests.front.clients import MODERN, Handshake, front
from tests.interaction.gates import Gate, ask_name, echo

pytestmark = pytest.mark.anyio

BATCHING = "2025-03-26"
NOTE = {"jsonrpc": "2.0", "method": "notifications/unknown"}
PING = {"jsonrpc": "2.0", "id": "p", "method": "ping"}


def post(client: Handshake, batch: list[Any], **headers: str) -> HttpExchange:
    return client.world.web.open("POST", client.url, {**client.headers(), **headers}, json.dumps(batch).encode())


def call(request_id: str | int, tool: str, **more: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": {}, **more}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


async def progressing(call: ScriptedCall) -> str:
    await call.progress(1, 2)
    return "done"


def demo(**tools: Any) -> dict[str, ScriptedServer]:
    return {"demo": ScriptedServer({"echo": echo, "work": progressing, "ask": ask_name, **tools})}


async def test_every_request_of_a_batch_is_answered_on_one_stream(clock: FakeClock) -> None:
    async with front(demo(), clock=clock) as world:
        client = await world.handshake(url="/mcp/server/demo", version=BATCHING)
        batch = [PING, NOTE, call(2, "work", _meta={"progressToken": "t"}), call(3, "echo", arguments={"text": "hi"})]
        exchange = post(client, batch)
        await exchange.done.wait()
        assert (exchange.status, exchange.is_stream, exchange.is_complete) == (200, True, True)
        progress, *others = sorted(exchange.messages, key=lambda message: "id" in message)
        assert (progress["method"], progress["params"]["progressToken"]) == ("notifications/progress", "t")
        answers = {message["id"]: message["result"] for message in others}
        assert answers["p"] == {}
        assert [answers[number]["content"][0]["text"] for number in (2, 3)] == ["done", "hi"]


async def test_a_quick_answer_does_not_wait_for_a_slow_one(clock: FakeClock) -> None:
    gate = Gate()
    async with front(demo(slow=gate), clock=clock) as world:
        client = await world.handshake(url="/mcp/server/demo", version=BATCHING)
        exchange = post(client, [call(1, "slow"), PING])
        await gate.reached.wait()
        await settle()
        assert [message["id"] for message in exchange.messages] == ["p"]
        gate.opened.set()
        await exchange.done.wait()
        assert [message["id"] for message in exchange.messages] == ["p", 1]


async def test_a_batch_that_asks_for_nothing_is_accepted(clock: FakeClock) -> None:
    async with front(demo(), clock=clock) as world:
        client = await world.handshake({"elicitation": {}}, url="/mcp/server/demo", version=BATCHING)
        asking = client.request("tools/call", {"name": "ask", "arguments": {}})
        question = await asking.message(0)
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"name": "Ada"}}}
        exchange = post(client, [NOTE, answer])
        await exchange.done.wait()
        assert (exchange.status, exchange.body) == (202, b"")
        assert "Ada" in (await asking.result())["content"][0]["text"]


async def test_what_is_wrong_in_a_batch_is_told_without_harm_to_the_rest(clock: FakeClock) -> None:
    async with front(demo(), clock=clock) as world:
        client = await world.handshake(version=BATCHING)
        initialize = {"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": {}}
        exchange = post(client, [7, {"id": "old", "method": "ping"}, initialize, PING, NOTE])
        await exchange.done.wait()
        told = {message["id"]: message.get("error", {}).get("code") for message in exchange.messages}
        assert told == {None: -32600, "old": -32600, "i": -32600, "p": None}


async def test_a_client_that_goes_leaves_tasks_behind(clock: FakeClock) -> None:
    gate = Gate()
    async with front(demo(slow=gate), clock=clock) as world:
        client = await world.handshake(version=BATCHING)
        params = {"name": "execute_tool", "arguments": {"server": "demo", "tool": "slow"}}
        exchange = post(client, [{**call(number, ""), "params": params} for number in (1, 2)])
        await gate.reached.wait()
        exchange.drop()
        await clock.advance(11)
        assert exchange.done.is_set()
        assert len(client.session.state.tasks.live()) == 2
        gate.opened.set()


@pytest.mark.parametrize("batch", [[], [PING] * 101])
async def test_a_batch_of_nothing_or_too_much_is_refused(clock: FakeClock, batch: list[Any]) -> None:
    async with front(demo(), clock=clock) as world:
        client = await world.handshake(version=BATCHING)
        assert await post(client, batch).failure() == (400, -32600)


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25"])
async def test_other_revisions_have_no_batches(clock: FakeClock, version: str) -> None:
    async with front(demo(), clock=clock) as world:
        client = await world.handshake(version=version)
        assert await post(client, [PING]).failure() == (400, -32600)


async def test_neither_has_whoever_has_no_session_or_says_another_revision(clock: FakeClock) -> None:
    async with front(demo(), clock=clock) as world:
        client = await world.handshake(version=BATCHING)
        assert await post(client, [PING], **{"mcp-protocol-version": MODERN}).failure() == (400, -32600)
        client.session_id = ""
        assert await post(client, [PING]).failure() == (400, -32600)
