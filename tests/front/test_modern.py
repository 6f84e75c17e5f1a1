"""Clients of 2026-07-28: every request says all there is to say, and nothing hides in a connection."""

from __future__ import annotations

import json
from typing import Any

import pytest

from emceepee.config import HubSettings
from emceepee.testing import FakeClock, ScriptedCall, ScriptedServer, settle, text_result
from tests.front.asgi import HttpExchange
from tests.front.clients import MODERN, TASKS, Modern, World, front
from tests.interaction.gates import Gate, echo

pytestmark = pytest.mark.anyio

META = "io.modelcontextprotocol/"


def server() -> ScriptedServer:
    return ScriptedServer({"echo": echo})


def raw(world: World, message: Any, **headers: str) -> HttpExchange:
    lines = {
        "host": "127.0.0.1",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    return world.web.open("POST", "/mcp", lines, json.dumps(message).encode())


# What every request has to say


async def test_discover_says_what_there_is_without_any_state(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        result = await world.modern().request("server/discover").result()
        assert MODERN in result["supportedVersions"]
        assert result["resultType"] == "complete"
        assert result["capabilities"]["extensions"] == {f"{META}tasks": {}}
        assert "tasks" not in result["capabilities"]
        assert result["_meta"][f"{META}serverInfo"]["name"] == "emceepee"
        assert result["instructions"]
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private")


@pytest.mark.parametrize("method", ["tools/list", "resources/list", "resources/templates/list"])
async def test_lists_come_with_cache_hints(clock: FakeClock, method: str) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        result = await world.modern().request(method).result()
        assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 0, "private")


async def test_every_tool_takes_a_workspace_and_none_is_said_to_make_tasks(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        tools = (await world.modern().request("tools/list").result())["tools"]
        assert all(tool["inputSchema"]["properties"]["workspace"]["type"] == "string" for tool in tools)
        assert all("execution" not in tool for tool in tools)
        older = await world.handshake()
        tools = (await older.request("tools/list").result())["tools"]
        assert all("workspace" not in tool["inputSchema"].get("properties", {}) for tool in tools)
        tasked = {tool["name"]: tool["execution"]["taskSupport"] for tool in tools if "execution" in tool}
        assert tasked == {"execute_tool": "optional"}
        oldest = await world.handshake(version="2025-06-18")
        assert all("execution" not in tool for tool in (await oldest.request("tools/list").result())["tools"])


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"mcp-method": None}, -32020),
        ({"mcp-method": "tools/list"}, -32020),
        ({"mcp-name": None}, -32020),
        ({"mcp-name": "other"}, -32020),
        ({"mcp-name": "=?base64?b3RoZXI=?="}, -32020),
        ({"mcp-name": "=?base64?!!!?="}, -32020),
        ({"mcp-protocol-version": None}, -32020),
        ({"mcp-protocol-version": "2025-11-25"}, -32020),
    ],
)
async def test_headers_that_are_missing_or_say_something_else(
    clock: FakeClock, headers: dict[str, Any], code: int
) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        exchange = world.modern().request("tools/call", {"name": "list_servers"}, headers=headers, request_id="r")
        assert await exchange.failure() == (400, code)
        assert (await exchange.response())["id"] == "r"


async def test_a_name_may_be_encoded(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        headers = {"mcp-name": "=?base64?bGlzdF9zZXJ2ZXJz?="}
        await world.modern().request("tools/call", {"name": "list_servers"}, headers=headers).result()


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_a_task_that_is_named_in_the_header_has_to_be_the_one_in_the_body(clock: FakeClock, method: str) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        client = world.modern(TASKS)
        exchange = client.request(method, {"taskId": "a", "inputResponses": {}}, headers={"mcp-name": "b"})
        assert await exchange.failure() == (400, -32020)
        # The SDK does not send it.
        without = client.request(method, {"taskId": "a", "inputResponses": {}}, headers={"mcp-name": None})
        assert await without.failure() == (400, -32602)


async def test_a_header_that_comes_twice_is_refused(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        client = world.modern()
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": client.envelope()}}
        lines = [
            ("host", "127.0.0.1"),
            ("accept", "*/*"),
            ("content-type", "application/json"),
            ("mcp-protocol-version", MODERN),
            ("mcp-method", "tools/list"),
            ("Mcp-Method", "tools/call"),
        ]
        exchange = world.web.open("POST", "/mcp", lines, json.dumps(message).encode())
        assert await exchange.failure() == (400, -32020)


@pytest.mark.parametrize("params", [{}, {"_meta": {}}, {"_meta": None}, {"_meta": {f"{META}protocolVersion": MODERN}}])
async def test_what_is_missing_in_meta_is_an_invalid_parameter(clock: FakeClock, params: dict[str, Any]) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        message = {"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": params}
        exchange = raw(world, message, mcp_protocol_version=MODERN, mcp_method="tools/list")
        assert await exchange.failure() == (400, -32602)
        assert (await exchange.response())["id"] == 5


@pytest.mark.parametrize("has_meta", [True, False])
async def test_a_version_that_nobody_speaks_is_refused_with_those_that_we_do(clock: FakeClock, has_meta: bool) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        meta = {**world.modern().envelope(), f"{META}protocolVersion": "2099-01-01"} if has_meta else {}
        message = {"jsonrpc": "2.0", "id": 9, "method": "tools/list", "params": {"_meta": meta}}
        exchange = raw(world, message, mcp_protocol_version="2099-01-01", mcp_method="tools/list")
        assert await exchange.failure() == (400, -32022)
        response = await exchange.response()
        assert response["id"] == 9
        assert response["error"]["data"]["requested"] == "2099-01-01"
        assert {MODERN, "2025-11-25", "2024-11-05"} <= set(response["error"]["data"]["supported"])


@pytest.mark.parametrize(
    "method",
    [
        *("nonsense", "initialize", "ping", "logging/setLevel", "resources/subscribe", "tasks/list", "tasks/result"),
        *("resources/unsubscribe", "prompts/list", "completion/complete", "tasks/nonsense"),
    ],
)
async def test_a_method_that_there_is_not_is_not_found(clock: FakeClock, method: str) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        assert await world.modern(TASKS).request(method).failure() == (404, -32601)


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_tasks_need_the_extension(clock: FakeClock, method: str) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        exchange = world.modern().request(method, {"taskId": "x"})
        assert await exchange.failure() == (400, -32021)
        data = (await exchange.response())["error"]["data"]
        assert data == {"requiredCapabilities": {"extensions": {f"{META}tasks": {}}}}


async def test_there_is_only_post_and_notifications_are_taken_without_a_word(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        lines = {"host": "127.0.0.1", "accept": "text/event-stream", "mcp-protocol-version": MODERN}
        for method in ("GET", "DELETE"):
            exchange = world.web.open(method, "/mcp", lines)
            assert (await exchange.failure())[0] == 405
            assert exchange.headers["allow"] == "POST"
        note = raw(world, {"jsonrpc": "2.0", "method": "notifications/x"}, mcp_protocol_version=MODERN)
        await note.done.wait()
        assert (note.status, note.body) == (202, b"")


async def test_a_result_of_a_server_comes_complete_and_untouched(clock: FakeClock) -> None:
    strange = {"content": [{"type": "hologram"}], "isError": True, "x-top": 1, "_meta": {"vendor/x": 1}}

    async def odd(_call: ScriptedCall) -> dict[str, Any]:
        return strange

    async with front({"demo": ScriptedServer({"odd": odd})}, clock=clock) as world:
        client = world.modern()
        await client.call("list_tools")
        result = await client.execute("demo", "odd").result()
        assert result == {"resultType": "complete", **strange}


async def test_an_error_of_a_tool_is_a_result(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        client = world.modern()
        assert (await client.call("execute_tool", server="no", tool="x")).error_code == "SERVER_NOT_FOUND"
        assert (await client.call("no_such_tool")).error_code == "TOOL_NOT_FOUND"
        for arguments in ([1], "x", 7):
            result = await client.request("tools/call", {"name": "list_tasks", "arguments": arguments}).result()
            assert "INVALID_ARGUMENTS" in result["content"][0]["text"]
        assert await client.request("tools/call").failure() == (400, -32602)


async def test_our_own_resources_are_read_and_others_are_not_found(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        client = world.modern()
        read = await client.request("resources/read", {"uri": "emceepee://diagrams"}).result()
        assert read["contents"][0]["uri"] == "emceepee://diagrams"
        # Its code has another meaning in this era.
        assert await client.request("resources/read", {"uri": "x://y"}).failure() == (400, -32602)
        older = await world.handshake()
        assert await older.request("resources/read", {"uri": "x://y"}).failure() == (200, -32002)


# Workspaces


async def tasks_of(client: Modern, **arguments: Any) -> list[str]:
    listed = await client.call("list_tasks", **arguments)
    return [task["tool"] for task in listed.json["tasks"]]


async def test_state_is_kept_by_the_workspace_wherever_it_is_named(clock: FakeClock) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate})}, clock=clock) as world:
        plain, named = world.modern(), world.modern(url="/mcp?workspace=one")
        await plain.execute("demo", "slow", timeout_ms=0, workspace="one").result()
        assert await tasks_of(plain) == []
        assert await tasks_of(plain, workspace="one") == ["slow"]
        assert await tasks_of(named) == ["slow"]
        # What the arguments say counts more than what the URL says.
        assert await tasks_of(named, workspace="two") == []
        assert await tasks_of(named, workspace="default") == []
        assert await tasks_of(world.modern(url="/mcp?workspace=default")) == []
        gate.opened.set()


async def test_clients_of_one_workspace_share_its_events_each_told_once(clock: FakeClock) -> None:
    demo = server()
    async with front({"demo": demo}, clock=clock) as world:
        one, two, other = world.modern(), world.modern(), world.modern(url="/mcp?workspace=other")
        for client in (one, other):
            await client.call("list_tools")
            await client.call("list_tools")
        await demo.notify("notifications/x")
        await settle()
        told = [(await client.call("list_tasks")).event_types for client in (one, two, other)]
        assert told == [["notification"], [], ["notification"]]


async def test_the_same_name_of_another_principal_is_another_workspace(clock: FakeClock) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate})}, clock=clock) as world:
        ada, eve = world.modern(TASKS, principal="ada"), world.modern(TASKS, principal="eve")
        task = await ada.execute("demo", "slow", timeout_ms=0).result()
        assert await tasks_of(eve) == []
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            params = {"taskId": task["taskId"], "inputResponses": {}}
            assert await eve.request(method, params).failure() == (400, -32602)
        assert (await ada.task(task["taskId"]))["status"] == "working"
        gate.opened.set()


@pytest.mark.parametrize("workspace", ["", 7, ["x"], {}])
async def test_a_workspace_has_a_name(clock: FakeClock, workspace: Any) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        exchange = world.modern().tool("list_tasks", workspace=workspace)
        assert await exchange.failure() == (400, -32602)


async def test_a_handshake_session_is_no_workspace_and_a_workspace_no_session(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        client = await world.handshake()
        modern = world.modern()
        await modern.call("list_tasks")
        (workspace,) = [one.id for one in world.hub.sessions.values() if one.id != client.session_id]
        client.session_id = workspace
        assert (await client.request("ping").failure())[0] == 404


async def test_too_many_workspaces_are_refused_and_an_idle_one_makes_room(clock: FakeClock) -> None:
    settings = HubSettings(max_sessions=2, session_idle_ms=60_000)
    async with front({"demo": server()}, clock=clock, settings=settings) as world:
        client = world.modern()
        await client.call("list_tasks", workspace="a")
        await client.call("list_tasks", workspace="b")
        response = await client.tool("list_tasks", workspace="c").response()
        assert response["error"]["code"] == -32603
        await clock.advance(130)
        await client.call("list_tasks", workspace="c")


async def test_requests_that_open_a_workspace_at_once_open_it_once(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        exchanges = [world.modern().tool("list_tasks", workspace="w") for _ in range(5)]
        for exchange in exchanges:
            await exchange.result()
        assert len(world.hub.sessions) == 1


# Hanging up


async def test_closing_the_response_stream_cancels(clock: FakeClock) -> None:
    gate = Gate()
    demo = ScriptedServer({"slow": gate})
    async with front({"demo": demo}, clock=clock) as world:
        client = world.modern()
        exchange = client.execute("demo", "slow")
        await gate.reached.wait()
        exchange.drop()
        await settle()
        assert exchange.done.is_set()
        assert demo.cancelled == ["slow"]
        assert await tasks_of(client, include_completed=True) == []


async def test_events_in_a_response_that_nobody_read_are_told_again(clock: FakeClock) -> None:
    demo = server()
    async with front({"demo": demo}, clock=clock) as world:
        client = world.modern()
        await client.call("list_tools")
        await client.call("list_tools")
        waiting = client.tool("await_activity", timeout_ms=60_000)
        await clock.advance(20)
        waiting.stop_reading()
        await demo.notify("notifications/x")
        await settle()
        waiting.drop()
        await settle()
        assert waiting.done.is_set()
        assert (await client.call("list_tasks")).event_types == ["notification"]


async def test_progress_and_pings_fill_a_silence(clock: FakeClock) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate})}, clock=clock) as world:
        client = world.modern()
        plain = client.execute("demo", "slow")
        params = {"name": "execute_tool", "arguments": {"server": "demo", "tool": "slow"}}
        wanting = client.request("tools/call", params, meta={"progressToken": "p"})
        await clock.advance(40)
        assert [frame.is_comment for frame in plain.frames] == [True]
        assert [message["method"] for message in wanting.messages] == ["notifications/progress"] * 2
        # There is nothing to come back for, so there are no ids.
        assert [frame.id for frame in wanting.frames] == [None, None]
        gate.opened.set()
        assert (await plain.result())["content"][0] == text_result("done")["content"][0]


@pytest.mark.parametrize("capabilities", [[], "x", 7])
async def test_capabilities_that_are_no_object_are_refused(clock: FakeClock, capabilities: Any) -> None:
    async with front({}, clock=clock) as world:
        client = world.modern()
        client.capabilities = capabilities
        assert await client.request("tools/list").failure() == (400, -32602)
