"""Clients that stop waiting: who gives up keeps the work as a task, who cancels ends it, who waits gets the result."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.peers.drive import LineClient, PeerError
from tests.peers.locate import program
from tests.process.hub_process import (
    EMCEEPEE,
    HttpClient,
    config_file,
    demo_serving,
    odd_server,
    own_json,
    proxy_task,
    serving,
)

LIMIT_S = 180
LONG_LIMIT_S = 300

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with demo_serving() as demo:
        flags = config_file(tmp_path_factory.mktemp("hub"), {"demo": {"url": demo}, "odd": odd_server("none")})
        with serving(*flags) as (url, _):
            yield url


@pytest.fixture(params=["http", "stdio"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """Where a client finds the hub: a URL, or the command to start it with."""
    if request.param == "http":
        return [request.getfixturevalue("hub")]
    return [*EMCEEPEE, "stdio", "--demo", *config_file(tmp_path, {"odd": odd_server("none")})]


def executing(server: str, tool: str, args: dict[str, Any], **options: Any) -> dict[str, Any]:
    return {"server": server, "tool": tool, "args": args, **options}


async def finished_task(client: LineClient | HttpClient) -> dict[str, Any]:
    """The only task of the session, once it has ended."""
    while True:
        (task,) = own_json(await client.call("list_tasks", {"include_completed": True}))["tasks"]
        if task["status"] != "working":
            return dict(task)
        await client.call("await_activity")


async def test_a_client_that_gives_up_finds_its_call_as_a_task(target: list[str], tmp_path: Path) -> None:
    released = tmp_path / "released"
    with anyio.fail_after(LIMIT_S):
        async with LineClient(program("sdk_client.mjs"), *target) as client:
            await client.call("execute_tool", executing("odd", "hello", {}))
            with pytest.raises(PeerError) as raised:
                await client.call("execute_tool", executing("odd", "wait", {"until": str(released)}), timeout_ms=500)
            assert raised.value.code == -32001

            created = await next_event(client, "task_created")
            assert created["data"]["tool"] == "wait"
            released.touch()
            task = await finished_task(client)
            assert (task["task_id"], task["status"]) == (created["data"]["task_id"], "completed")
            result = await client.call("get_task_result", {"task_id": task["task_id"]})
            assert result["content"][0] == {"type": "text", "text": "it is there"}


async def test_a_client_that_cancels_on_purpose_cancels_the_call_at_the_server(target: list[str]) -> None:
    with anyio.fail_after(LIMIT_S):
        async with LineClient(program("sdk_client.mjs"), *target) as client, anyio.create_task_group() as tasks:

            async def wait_in_vain() -> None:
                with pytest.raises(PeerError):
                    await client.call("execute_tool", executing("odd", "wait", {}), id="vain")

            tasks.start_soon(wait_in_vain)
            assert (await next_event(client, "notification"))["data"]["method"] == "notifications/odd/waiting"
            await client.request({"op": "cancel", "call": "vain", "reason": "changed my mind"})

            cancelled = await next_event(client, "notification")
            assert cancelled["data"]["method"] == "notifications/odd/cancelled"
            assert own_json(await client.call("list_tasks", {"include_completed": True})) == {"tasks": []}


async def next_event(client: LineClient | HttpClient, kind: str) -> dict[str, Any]:
    while True:
        told = own_json(await client.call("await_activity"))
        for server in told["events"]:
            for event in server["events"]:
                if event["type"] == kind:
                    return dict(event)


async def test_a_client_whose_connection_drops_finds_its_call_as_a_task(hub: str, tmp_path: Path) -> None:
    released = tmp_path / "released"
    with anyio.fail_after(LIMIT_S):
        async with HttpClient(hub) as client:
            arguments = executing("odd", "wait", {"until": str(released)}, timeout_ms=600_000)
            params = {"name": "execute_tool", "arguments": arguments}
            message = {"jsonrpc": "2.0", "id": "dropped", "method": "tools/call", "params": params}
            async with client.http.stream("POST", client.url, json=message) as response:
                # After some silence the response becomes a stream.
                async for line in response.aiter_lines():
                    if line.startswith("id:"):
                        break
                # Left here, the response is not read to its end: the connection is closed under it.
            assert (await next_event(client, "task_created"))["data"]["tool"] == "wait"
            released.touch()
            task = await finished_task(client)
            assert (task["tool"], task["status"]) == ("wait", "completed")
            result = await client.call("get_task_result", {"task_id": task["task_id"]})
            assert result["content"][0] == {"type": "text", "text": "it is there"}


async def test_a_late_cancellation_changes_nothing(hub: str) -> None:
    with anyio.fail_after(LIMIT_S):
        async with HttpClient(hub) as client:
            await client.execute("demo", "echo", {"text": "done"})
            for request_id in (1, 99, "nobody", None):
                await client.notify("notifications/cancelled", {"requestId": request_id, "reason": "too late"})
            result = await client.execute("demo", "echo", {"text": "still here"})
            assert result["content"][0] == {"type": "text", "text": "still here"}


async def test_progress_reaches_a_client_that_waits(hub: str) -> None:
    seen: list[float] = []
    with anyio.fail_after(LIMIT_S):
        async with LineClient(program("sdk_client.mjs"), hub) as client:
            arguments = executing("demo", "slow", {"seconds": 0.2})
            result = await client.call(
                "execute_tool", arguments, on_progress=lambda news: seen.append(news["progress"])
            )
    assert result["content"][0] == {"type": "text", "text": "slept 0.2 s"}
    # The client runs progress callbacks beside the call, so the last of them may lose the race with the result.
    assert seen[:5] == [0, 1, 2, 3, 4]


async def test_a_call_that_outlives_its_timeout_becomes_a_task_that_can_be_cancelled(hub: str) -> None:
    with anyio.fail_after(LIMIT_S):
        async with LineClient(program("story_client.py"), hub) as client:
            await client.call("execute_tool", executing("odd", "hello", {}))  # its program has started
            promoted = await client.call("execute_tool", executing("odd", "wait", {}, timeout_ms=200))
            task = proxy_task(promoted)
            assert "is not done after 200 ms" in promoted["content"][0]["text"]
            if "notifications/odd/waiting" not in json.dumps(promoted):
                assert (await next_event(client, "notification"))["data"]["method"] == "notifications/odd/waiting"
            cancelled = await client.call("cancel_task", {"task_id": task["task_id"]})
            assert own_json(cancelled)["success"] is True
            assert (await next_event(client, "notification"))["data"]["method"] == "notifications/odd/cancelled"
            result = await client.call("get_task_result", {"task_id": task["task_id"]})
            assert json.loads(result["content"][0]["text"])["error"]["code"] == "TASK_CANCELLED"


@pytest.mark.slow
async def test_a_call_of_75_seconds_comes_back_directly_to_a_client_that_waits(target: list[str]) -> None:
    with anyio.fail_after(LONG_LIMIT_S):
        async with LineClient(program("sdk_client.mjs"), *target) as client:
            await client.call("execute_tool", executing("demo", "echo", {"text": "connected"}))
            arguments = executing("demo", "slow", {"seconds": 75}, timeout_ms=120_000)
            result = await client.call("execute_tool", arguments, timeout_ms=130_000)
    assert result["content"][0] == {"type": "text", "text": "slept 75 s"}


@pytest.mark.slow
async def test_a_call_of_75_seconds_with_a_timeout_of_5_becomes_a_task_with_the_result(target: list[str]) -> None:
    with anyio.fail_after(LONG_LIMIT_S):
        async with LineClient(program("story_client.py"), *target) as client:
            arguments = executing("demo", "slow", {"seconds": 75}, timeout_ms=5_000)
            task = proxy_task(await client.call("execute_tool", arguments))
            finished = await finished_task(client)
            assert (finished["task_id"], finished["status"]) == (task["task_id"], "completed")
            result = await client.call("get_task_result", {"task_id": task["task_id"]})
    assert result["content"][0] == {"type": "text", "text": "slept 75 s"}


@pytest.mark.slow
async def test_the_npm_sdk_at_its_default_timeout_of_60_seconds_finds_its_call_as_a_task(target: list[str]) -> None:
    with anyio.fail_after(LONG_LIMIT_S):
        async with LineClient(program("sdk_client.mjs"), *target) as client:
            with pytest.raises(PeerError):
                await client.call("execute_tool", executing("demo", "slow", {"seconds": 75}), timeout_ms=None)
            task = await finished_task(client)
            result = await client.call("get_task_result", {"task_id": task["task_id"]})
    assert result["content"][0] == {"type": "text", "text": "slept 75 s"}
