"""Handshake clients over HTTP that come back for a response after it was given up."""

from __future__ import annotations

import anyio
import pytest

from emceepee.testing import FakeClock, ScriptedCall, ScriptedServer, settle, text_result
from tests.front.clients import Handshake, front
from tests.interaction.gates import Gate, ask_name, echo

pytestmark = pytest.mark.anyio


async def cut_off(client: Handshake, clock: FakeClock, tool: str = "slow") -> str:
    """A call whose client has been away for too long; what it can come back with."""
    exchange = client.request("tools/call", {"name": tool, "arguments": {}, "_meta": {"progressToken": 1}})
    await clock.advance(16)
    exchange.drop()
    await clock.advance(12)
    assert exchange.done.is_set()
    return exchange.last_event_id


@pytest.mark.parametrize("url", ["/mcp/server/demo", "/mcp/all"])
@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18"])
async def test_whoever_has_no_tools_of_ours_gets_its_response_however_late_it_comes_back(
    clock: FakeClock, version: str, url: str
) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate})}, clock=clock) as world:
        client = await world.handshake(url=url, version=version)
        last_event_id = await cut_off(client, clock, "demo__slow" if url == "/mcp/all" else "slow")
        late = client.get(last_event_id)
        await clock.advance(20)
        assert not late.done.is_set()
        late.drop()
        await clock.advance(12)
        # Once more, and this time it is all done; an older id serves as well.
        gate.opened.set()
        await settle()
        last = client.get(last_event_id)
        assert await last.result() == text_result("done")
        again = client.get(last_event_id)
        assert await again.result() == text_result("done")
        ids = [frame.id for exchange in (late, last) for frame in exchange.events]
        assert len(set(ids)) == len(ids)


async def test_a_late_client_is_asked_what_came_up_meanwhile(clock: FakeClock) -> None:
    go_on = anyio.Event()

    async def asks(call: ScriptedCall) -> str:
        await go_on.wait()
        return await ask_name(call)

    async with front({"demo": ScriptedServer({"asks": asks})}, clock=clock) as world:
        client = await world.handshake({"elicitation": {}}, url="/mcp/server/demo")
        last_event_id = await cut_off(client, clock, "asks")
        go_on.set()
        await settle()
        late = client.get(last_event_id)
        asked = await late.message()
        assert asked["method"] == "elicitation/create"
        await client.answer(asked, {"action": "accept", "content": {"name": "Ada"}})
        assert await late.result() == text_result("hello Ada")


async def test_a_late_client_with_our_tools_waits_on_or_is_told_of_the_task(clock: FakeClock) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate})}, clock=clock) as world:
        client = await world.handshake()
        exchange = client.execute("demo", "slow", timeout_ms=20_000)
        await clock.advance(1.1)
        exchange.drop()
        await clock.advance(12)
        late = client.get(exchange.last_event_id)
        await clock.advance(19)
        assert not late.done.is_set()
        await clock.advance(2)
        (task,) = client.session.state.tasks.live()
        assert f"Task {task.task_id} is still working" in (await late.result())["content"][0]["text"]
        gate.opened.set()


async def test_a_late_client_that_wanted_a_task_gets_one(clock: FakeClock) -> None:
    async with front({"demo": ScriptedServer({"slow": Gate()})}, clock=clock) as world:
        for url, name in (("/mcp", "execute_tool"), ("/mcp/server/demo", "slow")):
            client = await world.handshake(url=url)
            arguments = {"server": "demo", "tool": "slow"} if url == "/mcp" else {}
            durable, client.session.durable = client.session.durable, anyio.sleep_forever  # type: ignore[method-assign]
            exchange = client.request("tools/call", {"name": name, "arguments": arguments, "task": {}})
            await clock.advance(1.1)
            exchange.drop()
            await clock.advance(12)
            client.session.durable = durable  # type: ignore[method-assign]
            result = await client.get(exchange.last_event_id).result()
            assert result["task"]["status"] == "working"


async def test_what_left_nothing_behind_has_to_be_sent_again(clock: FakeClock) -> None:
    async with front({"demo": ScriptedServer({"echo": echo})}, clock=clock) as world:
        client = await world.handshake()
        await client.call("list_tools")
        exchange = client.tool("await_activity", timeout_ms=60_000)
        await clock.advance(1.1)
        exchange.drop()
        await clock.advance(12)
        assert await client.get(exchange.last_event_id).failure() == (200, -32603)


async def test_waiting_for_the_result_of_a_task_is_taken_up_late(clock: FakeClock) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate})}, clock=clock) as world:
        client = await world.handshake(url="/mcp/server/demo")
        created = await client.request("tools/call", {"name": "slow", "arguments": {}, "task": {}}).result()
        exchange = client.request("tasks/result", {"taskId": created["task"]["taskId"]})
        await clock.advance(1.1)
        exchange.drop()
        await clock.advance(12)
        late = client.get(exchange.last_event_id)
        gate.opened.set()
        assert (await late.result())["content"] == text_result("done")["content"]


async def test_what_is_kept_for_late_clients_is_bounded(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emceepee.front.handshake_http.MAX_GIVEN_UP", 1)
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate})}, clock=clock) as world:
        client = await world.handshake(url="/mcp/server/demo")
        first = await cut_off(client, clock)
        second = await cut_off(client, clock)
        gate.opened.set()
        assert await client.get(first).failure() == (200, -32603)
        assert await client.get(second).result() == text_result("done")
