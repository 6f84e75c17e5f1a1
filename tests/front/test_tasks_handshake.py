"""The tasks of 2025-11-25 at the front: a client that augments `execute_tool` gets one."""

from __future__ import annotations

from typing import Any

import pytest

from emceepee.config import HubSettings
from emceepee.core.state import SessionLimits
from emceepee.core.tasks import TaskLimits
from emceepee.errors import PeerError
from emceepee.testing import FakeClock, ScriptedCall, ScriptedServer, settle, text_result
from tests.front.clients import Handshake, front
from tests.interaction.gates import Gate, ask_name, echo

pytestmark = pytest.mark.anyio

RELATED = "io.modelcontextprotocol/related-task"


def params(tool: str, task: Any, **arguments: Any) -> dict[str, Any]:
    return {"name": "execute_tool", "arguments": {"server": "demo", "tool": tool, **arguments}, "task": task}


async def begun(client: Handshake, tool: str, **task: Any) -> dict[str, Any]:
    created = await client.request("tools/call", params(tool, task)).result()
    task_of_it: dict[str, Any] = created["task"]
    return task_of_it


async def about(client: Handshake, method: str, task_id: str) -> dict[str, Any]:
    return await client.request(method, {"taskId": task_id}).result()


async def test_we_declare_what_we_serve(clock: FakeClock) -> None:
    async with front({"demo": ScriptedServer({})}, clock=clock) as world:
        client = await world.handshake()
        tasks: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        assert client.introduction["capabilities"]["tasks"] == tasks
        older = await world.handshake(version="2025-06-18")
        assert "tasks" not in older.introduction["capabilities"]
        assert await older.request("tasks/list").failure() == (200, -32601)


@pytest.mark.parametrize("modern", [False, True])
async def test_a_call_that_is_augmented_is_answered_with_a_task_at_once(clock: FakeClock, modern: bool) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate}, modern=modern)}, clock=clock) as world:
        client = await world.handshake()
        task = await begun(client, "slow", ttl=90_000)
        assert (task["status"], task["ttl"], task["pollInterval"]) == ("working", 90_000, 1000)
        assert {"createdAt", "lastUpdatedAt"} <= set(task)
        task_id = task["taskId"]
        assert await about(client, "tasks/get", task_id) == task
        waiting = client.request("tasks/result", {"taskId": task_id})
        await settle()
        assert not waiting.done.is_set()
        gate.opened.set()
        expected = {**text_result("done"), "_meta": {RELATED: {"taskId": task_id}}}
        assert await waiting.result() == expected
        assert await about(client, "tasks/result", task_id) == expected
        assert (await about(client, "tasks/get", task_id))["status"] == "completed"
        # The tools know it as well.
        assert (await client.call("get_task", task_id=task_id)).json["task"]["status"] == "completed"


async def test_other_tools_cannot_be_called_as_tasks_and_older_clients_have_none(clock: FakeClock) -> None:
    async with front({"demo": ScriptedServer({"echo": echo})}, clock=clock) as world:
        client = await world.handshake()
        augmented = {"name": "list_servers", "arguments": {}, "task": {}}
        assert await client.request("tools/call", augmented).failure() == (200, -32601)
        older = await world.handshake(version="2025-06-18")
        result = await older.request("tools/call", params("echo", {}, args={"text": "hi"})).result()
        assert result["content"][0]["text"] == "hi"


async def test_a_call_that_cannot_even_begin_is_an_error_and_costs_no_events(clock: FakeClock) -> None:
    async with front({"demo": ScriptedServer({"echo": echo})}, clock=clock) as world:
        client = await world.handshake()
        wrong = params("echo", {})
        wrong["arguments"]["server"] = "nowhere"
        assert await client.request("tools/call", wrong).failure() == (200, -32602)
        wrong["arguments"] = []
        assert await client.request("tools/call", wrong).failure() == (200, -32602)
        assert (await client.call("list_tasks")).event_types == ["server_connected"]


@pytest.mark.parametrize("ttl", [None, -1, "x", True, 1.5, 10**12])
async def test_a_ttl_that_is_none_or_too_long_is_ours(clock: FakeClock, ttl: Any) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate})}, clock=clock) as world:
        client = await world.handshake()
        task = await begun(client, "slow", ttl=ttl)
        assert task["ttl"] == (1_800_000 if ttl == 10**12 else 300_000)
        gate.opened.set()


async def test_every_end_as_this_protocol_says_it(clock: FakeClock) -> None:
    async def error(_call: ScriptedCall) -> dict[str, Any]:
        return {**text_result("no"), "isError": True}

    async def broken(_call: ScriptedCall) -> str:
        raise PeerError(-32050, "broken", {"part": 7})

    limits = SessionLimits(tasks=TaskLimits(retention_ms=30_000))
    demo = ScriptedServer({"error": error, "broken": broken, "slow": Gate()})
    async with front({"demo": demo}, clock=clock, settings=HubSettings(limits=limits)) as world:
        client = await world.handshake()
        ids = {tool: (await begun(client, tool, ttl=5000))["taskId"] for tool in ("error", "broken", "slow")}
        await settle()
        failed = await about(client, "tasks/get", ids["error"])
        assert failed["status"] == "failed"
        assert (await about(client, "tasks/result", ids["error"]))["isError"] is True
        failed = await about(client, "tasks/get", ids["broken"])
        assert (failed["status"], "broken" in failed["statusMessage"]) == ("failed", True)
        response = await client.request("tasks/result", {"taskId": ids["broken"]}).response()
        assert response["error"] == {"code": -32050, "message": "broken", "data": {"part": 7}}
        waiting = client.request("tasks/result", {"taskId": ids["slow"]})
        await clock.advance(5)
        assert await waiting.failure() == (200, -32603)
        assert (await about(client, "tasks/get", ids["slow"]))["status"] == "failed"
        await clock.advance(31)
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            assert await client.request(method, {"taskId": ids["slow"]}).failure() == (200, -32602)


async def test_cancelling_ends_the_task_once(clock: FakeClock) -> None:
    gate = Gate()
    demo = ScriptedServer({"slow": gate})
    async with front({"demo": demo}, clock=clock) as world:
        client = await world.handshake()
        task_id = (await begun(client, "slow"))["taskId"]
        await gate.reached.wait()
        waiting = client.request("tasks/result", {"taskId": task_id})
        await settle()
        cancelled = await about(client, "tasks/cancel", task_id)
        assert cancelled["status"] == "cancelled"
        assert (await waiting.failure())[1] == -32603
        assert await client.request("tasks/cancel", {"taskId": task_id}).failure() == (200, -32602)
        await settle()
        assert demo.cancelled == ["slow"]


@pytest.mark.parametrize("task_id", ["nonsense", "", 7, None, []])
@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
async def test_an_unknown_task_is_an_invalid_parameter(clock: FakeClock, method: str, task_id: Any) -> None:
    async with front({"demo": ScriptedServer({})}, clock=clock) as world:
        client = await world.handshake()
        assert await client.request(method, {"taskId": task_id}).failure() == (200, -32602)
        assert await client.request("tasks/nonsense", {"taskId": task_id}).failure() == (200, -32601)


async def test_a_task_of_another_session_is_unknown(clock: FakeClock) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate})}, clock=clock) as world:
        one, two = await world.handshake(), await world.handshake()
        task_id = (await begun(one, "slow"))["taskId"]
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            assert await two.request(method, {"taskId": task_id}).failure() == (200, -32602)
        assert (await two.request("tasks/list").result()) == {"tasks": []}
        gate.opened.set()


async def test_the_list_comes_in_pages(clock: FakeClock) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate})}, clock=clock) as world:
        client = await world.handshake()
        ids = [(await begun(client, "slow"))["taskId"] for _ in range(60)]
        first = await client.request("tasks/list").result()
        second = await client.request("tasks/list", {"cursor": first["nextCursor"]}).result()
        assert (len(first["tasks"]), len(second["tasks"])) == (50, 10)
        assert [task["taskId"] for task in first["tasks"] + second["tasks"]] == ids
        assert "nextCursor" not in second
        for cursor in ("nonsense", 7, ["x"]):
            assert await client.request("tasks/list", {"cursor": cursor}).failure() == (200, -32602)
        gate.opened.set()


async def test_changes_are_told_on_the_standalone_stream(clock: FakeClock) -> None:
    async with front({"demo": ScriptedServer({"ask": ask_name})}, clock=clock) as world:
        client = await world.handshake({})
        stream = client.get()
        task_id = (await begun(client, "ask"))["taskId"]
        await settle()
        (question,) = (await client.call("get_elicitations")).json["elicitations"]
        await client.call("respond_to_elicitation", request_id=question["request_id"], action="decline")
        await settle()
        told = [message for message in stream.messages if message["method"] == "notifications/tasks/status"]
        assert [message["params"]["status"] for message in told] == ["input_required", "working", "completed"]
        assert {message["params"]["taskId"] for message in told} == {task_id}
        # Those that nobody asked for in this way are told of in the events only.
        await client.call("execute_tool", server="demo", tool="ask", timeout_ms=0)
        await settle()
        assert len([one for one in stream.messages if one["method"] == "notifications/tasks/status"]) == 3
