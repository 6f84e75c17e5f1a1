"""Servers that break the protocol: each gets a clear error, and the hub goes on serving the others."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.process.hub_process import (
    HttpClient,
    StdioClient,
    error_code,
    odd_server,
    own_json,
    proxy_task,
    serving,
)

LIMIT_S = 180
HELLO = [{"type": "text", "text": "hello"}]

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def hub() -> AsyncIterator[HttpClient]:
    """One session for the module; each test brings its own server into it, and takes it away again."""
    with serving("--demo", "--allow-spawn") as (url, _):
        async with HttpClient(url) as client:
            yield client


@pytest.fixture(scope="module")
async def pipes() -> AsyncIterator[StdioClient]:
    """The same over stdio."""
    async with StdioClient("--demo") as client:
        yield client


@pytest.fixture(params=["hub", "pipes"], ids=["http", "stdio"])
def client(request: pytest.FixtureRequest, hub: HttpClient, pipes: StdioClient) -> HttpClient | StdioClient:
    return hub if request.param == "hub" else pipes


NEVER_THERE = ("error", "connecting")
"""The states of a link that has not been connected yet, while it is tried again now and then."""

SOON_MS = 60_000
"""How long a call of a test may take whose server answers at once, on a busy machine."""


@asynccontextmanager
async def added(client: HttpClient | StdioClient, oddity: str, **options: Any) -> AsyncIterator[dict[str, Any]]:
    """A server with an oddity: what `add_server` said. Afterwards the hub must still serve the demo server."""
    with anyio.fail_after(LIMIT_S):
        try:
            yield await client.call(
                "add_server", {"name": "odd", "timeout_ms": SOON_MS, **odd_server(oddity), **options}
            )
            await serves_the_demo(client)
        finally:
            with anyio.CancelScope(shield=True):
                await client.call("remove_server", {"name": "odd"})


async def serves_the_demo(client: HttpClient | StdioClient) -> None:
    result = await client.execute("demo", "echo", {"text": "still here"})
    assert result["content"][0] == {"type": "text", "text": "still here"}


async def entry(client: HttpClient | StdioClient) -> dict[str, Any]:
    servers = own_json(await client.call("list_servers"))["servers"]
    (found,) = [server for server in servers if server["name"] == "odd"]
    return dict(found)


async def test_a_server_that_prints_garbage_between_messages_is_usable(client: HttpClient | StdioClient) -> None:
    async with added(client, "garbage") as answer:
        assert own_json(answer)["server"]["status"] == "connected"
        assert [tool["name"] for tool in own_json(answer)["tools"]] == ["hello", "pids", "wait"]
        result = await client.execute("odd", "hello")
        assert result["content"][:1] == HELLO


async def test_a_server_that_dies_during_initialize_has_status_error(client: HttpClient | StdioClient) -> None:
    async with added(client, "dies") as answer:
        assert error_code(answer) == "SERVER_DISCONNECTED"
        found = await entry(client)
        assert (found["status"] in NEVER_THERE, found["connected"]) == (True, False)
        assert "exited with status 7" in found["last_error"]
        assert error_code(await client.execute("odd", "hello")) == "SERVER_DISCONNECTED"


@pytest.mark.parametrize("result", ['"hello"', "{}", '{"protocolVersion": 42, "capabilities": []}'])
async def test_a_server_that_answers_initialize_with_nonsense_has_status_error(hub: HttpClient, result: str) -> None:
    async with added(hub, f"initialize={result}") as answer:
        assert error_code(answer) == "SERVER_DISCONNECTED"
        found = await entry(hub)
        assert (found["status"] in NEVER_THERE, found["connected"]) == (True, False)
        assert found["last_error"]


@pytest.mark.parametrize(
    "result",
    ["null", '{"tools": "none"}', '{"tools": [], "nextCursor": "again"}'],
)
async def test_a_server_that_answers_tools_list_with_nonsense_has_status_error(hub: HttpClient, result: str) -> None:
    async with added(hub, f"tools/list={result}") as answer:
        assert error_code(answer) in ("SERVER_DISCONNECTED", "SERVER_ERROR")
        found = await entry(hub)
        assert (found["status"] in NEVER_THERE, found["connected"]) == (True, False)
        assert found["last_error"]


@pytest.mark.parametrize(
    "result", ["{}", '{"tools": [7, null, {"name": 5}, {"title": "nameless"}]}', '{"tools": [], "nextCursor": 0}']
)
async def test_tools_without_a_usable_definition_are_left_out(hub: HttpClient, result: str) -> None:
    async with added(hub, f"tools/list={result}") as answer:
        assert own_json(answer)["tools"] == []
        assert error_code(await hub.execute("odd", "hello")) == "TOOL_NOT_FOUND"


@pytest.mark.parametrize("result", ['"hello"', "[1, 2]", "null"])
async def test_a_call_that_is_answered_with_nonsense_fails_with_a_server_error(hub: HttpClient, result: str) -> None:
    async with added(hub, f"tools/call={result}"):
        called = await hub.execute("odd", "hello", timeout_ms=SOON_MS)
        assert called.get("isError") is True, "it became a task that will never end"
        assert error_code(called) == "SERVER_ERROR"


@pytest.mark.parametrize(
    "result", ["{}", '{"content": "hello"}', '{"content": [7, null]}', '{"content": null, "isError": "no"}']
)
async def test_a_result_with_odd_content_reaches_the_client_as_it_is(hub: HttpClient, result: str) -> None:
    # In a session of its own: in the others' it may be told late that the server of the test before is gone.
    with anyio.fail_after(LIMIT_S):
        async with HttpClient(hub.url) as client:
            await serves_the_demo(client)  # it is connected
            async with added(client, f"tools/call={result}"):
                await client.call("list_servers")  # takes the events away, so that no blocks are added
                assert await client.execute("odd", "hello") == json.loads(result)


async def test_the_hub_serves_others_while_a_server_never_answers_initialize(client: HttpClient | StdioClient) -> None:
    async with added(client, "silent", timeout_ms=100) as answer:
        assert error_code(answer) == "SERVER_DISCONNECTED"
        assert (await entry(client))["status"] == "connecting"
        async with anyio.create_task_group() as tasks:

            async def call_the_silent_one() -> None:
                result = await client.execute("odd", "hello", timeout_ms=600_000)
                assert error_code(result) == "SERVER_DISCONNECTED"

            tasks.start_soon(call_the_silent_one)
            for _ in range(10):
                await serves_the_demo(client)
            await client.call("remove_server", {"name": "odd"})
        await client.call("add_server", {"name": "odd", **odd_server("none")})


async def test_a_call_to_a_server_that_never_connects_becomes_a_task_at_its_timeout(hub: HttpClient) -> None:
    async with added(hub, "silent", timeout_ms=0):
        task = proxy_task(await hub.execute("odd", "hello", timeout_ms=50))
        assert task["status"] == "working"
        assert own_json(await hub.call("cancel_task", {"task_id": task["task_id"]}))["success"] is True


async def test_a_server_that_closes_its_output_and_lives_on_is_lost(hub: HttpClient) -> None:
    async with added(hub, "no-output") as answer:
        assert own_json(answer)["server"]["status"] == "connected"
        called = await hub.execute("odd", "hello", timeout_ms=SOON_MS)
        assert called.get("isError") is True, "it became a task that will never end"
        assert error_code(called) == "SERVER_DISCONNECTED"
        lost = await hub.next_event("server_disconnected")
        assert "closed its output" in lost["data"]["reason"]


async def test_a_server_that_crashes_during_a_call_is_started_again_for_the_next(
    client: HttpClient | StdioClient,
) -> None:
    with anyio.fail_after(LIMIT_S):
        assert error_code(await client.execute("demo", "crash")) == "SERVER_DISCONNECTED"
        await serves_the_demo(client)


async def test_a_task_fails_when_its_server_crashes(hub: HttpClient) -> None:
    with anyio.fail_after(LIMIT_S):
        task = proxy_task(await hub.execute("demo", "slow", {"seconds": 600}, timeout_ms=0))
        await hub.execute("demo", "crash")
        assert error_code(await hub.call("get_task_result", {"task_id": task["task_id"]})) == "TASK_FAILED"
        await serves_the_demo(hub)


async def test_a_program_that_does_not_exist_has_status_error(client: HttpClient | StdioClient, tmp_path: Path) -> None:
    server = {"name": "odd", "command": str(tmp_path / "nothing")}
    with anyio.fail_after(LIMIT_S):
        assert error_code(await client.call("add_server", server)) == "SERVER_DISCONNECTED"
        assert (await entry(client))["status"] in NEVER_THERE
        await client.call("remove_server", {"name": "odd"})
        await serves_the_demo(client)
