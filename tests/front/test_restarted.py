"""Handshake clients over HTTP that come back to a hub that was restarted while they waited."""

from __future__ import annotations

import pytest

from emceepee.store import MemoryStore
from emceepee.testing import FakeClock, ScriptedServer, settle
from tests.front.clients import Handshake, World, front
from tests.interaction.gates import Gate, echo

pytestmark = pytest.mark.anyio


def demo() -> ScriptedServer:
    return ScriptedServer({"slow": Gate(), "echo": echo}, capabilities={"tools": {"listChanged": True}})


def back(client: Handshake, world: World) -> Handshake:
    """The same client, at the hub that runs now."""
    client.world = world
    return client


def call(client: Handshake, tool: str) -> tuple[str, dict[str, object]]:
    """A call as the client's endpoint takes it."""
    if client.url == "/mcp":
        return "tools/call", {"name": "execute_tool", "arguments": {"server": "demo", "tool": tool}}
    return "tools/call", {"name": tool, "arguments": {}}


@pytest.mark.parametrize("request_id", [7, "a request: 1/2", "4f1c2a34-8a0e-4c1e-9f43-0d1f7f6f2b11"])
@pytest.mark.parametrize("url", ["/mcp", "/mcp/server/demo"])
async def test_a_request_that_was_cut_off_by_a_restart_has_an_end(
    clock: FakeClock, url: str, request_id: str | int
) -> None:
    store = MemoryStore()
    async with front({"demo": demo()}, clock=clock, store=store) as world:
        client = await world.handshake(url=url)
        exchange = client.request(*call(client, "slow"), request_id=request_id)
        await clock.advance(1.1)
        last_event_id = exchange.last_event_id
    async with front({"demo": demo()}, clock=clock, store=store) as world:
        # As often as it asks, for this answer may be lost on its way as well.
        for _ in range(2):
            resumed = back(client, world).get(last_event_id)
            response = await resumed.response()
            assert (resumed.is_complete, response["id"], response["error"]["code"]) == (True, request_id, -32603)
            assert ("list_tasks" in response["error"]["message"]) is (url == "/mcp")


async def test_the_id_of_a_stream_that_answered_nothing_opens_one_after_a_restart(clock: FakeClock) -> None:
    store = MemoryStore()
    async with front({"demo": demo()}, clock=clock, store=store) as world:
        client = await world.handshake(url="/mcp/server/demo")
        stream = client.get()
        await settle()
        last_event_id = stream.last_event_id
    server = demo()
    async with front({"demo": server}, clock=clock, store=store) as world:
        await back(client, world).request("tools/list").result()
        stream = client.get(last_event_id)
        await settle()
        await server.notify("notifications/tools/list_changed")
        await settle()
        assert [message["method"] for message in stream.messages] == ["notifications/tools/list_changed"]


async def test_a_stream_that_is_held_is_not_disturbed_by_one_that_is_not_known(clock: FakeClock) -> None:
    async with front({"demo": demo()}, clock=clock) as world:
        client = await world.handshake()
        held = client.get()
        open_call = client.request(*call(client, "slow"), request_id=3)
        await clock.advance(1.1)
        assert await client.get("00000000-1.n3-1").failure() == (200, -32603)
        assert not held.done.is_set()
        assert not open_call.done.is_set()
