"""A server that we did not write behind the hub, on both transports: `@modelcontextprotocol/server-everything`."""

import json
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from tests.peers.drive import LineClient
from tests.peers.locate import node_script, program
from tests.process.everything import everything_over_http
from tests.process.hub_process import (
    StdioClient,
    config_file,
    open_questions,
    own_json,
    proxy_task,
    serving,
)

LIMIT_S = 180

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def hub_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One hub that has the server twice, once on each transport."""
    command, *args = [*node_script("mcp-server-everything"), "stdio"]
    with everything_over_http() as url:
        servers: dict[str, dict[str, Any]] = {"stdio": {"command": command, "args": args}, "http": {"url": url}}
        with serving(*config_file(tmp_path_factory.mktemp("hub"), servers)) as (hub, _):
            yield hub


servers = pytest.mark.parametrize("server", ["stdio", "http"])


async def execute(client: LineClient, server: str, tool: str, args: dict[str, Any], **options: Any) -> dict[str, Any]:
    return await client.call("execute_tool", {"server": server, "tool": tool, "args": args}, **options)


async def direct_names() -> list[str]:
    """What the server offers to a client that can do all that the hub can."""
    task_requests: dict[str, Any] = {"elicitation": {"create": {}}, "sampling": {"createMessage": {}}}
    capabilities = {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {},
        "roots": {"listChanged": True},
        "tasks": {"list": {}, "cancel": {}, "requests": task_requests},
    }
    program = [*node_script("mcp-server-everything"), "stdio"]
    async with StdioClient(program=program, capabilities=capabilities) as direct:
        listed = (await direct.request("tools/list"))["result"]["tools"]
        direct.process.terminate()  # It does not end with its input.
    return sorted(tool["name"] for tool in listed)


@servers
async def test_every_tool_is_listed(hub_url: str, server: str) -> None:
    with anyio.fail_after(LIMIT_S):
        async with LineClient(program("story_client.py"), hub_url) as client:
            (entry,) = own_json(await client.call("list_tools", {"server": server}))["servers"]
        assert sorted(tool["name"] for tool in entry["tools"]) == await direct_names()


@servers
async def test_definitions_pass_through_as_the_server_gives_them(hub_url: str, server: str) -> None:
    command, *args = [*node_script("mcp-server-everything"), "stdio"]
    with anyio.fail_after(LIMIT_S):
        async with LineClient(program("sdk_client.mjs"), command, *args) as direct:
            (echo,) = [tool for tool in (await direct.list_tools())["tools"] if tool["name"] == "echo"]
        async with LineClient(program("sdk_client.mjs"), hub_url) as client:
            wanted = {"server": server, "tool": "echo", "include_schemas": True}
            (entry,) = own_json(await client.call("list_tools", wanted))["servers"]
    (listed,) = entry["tools"]
    assert {key: value for key, value in listed.items() if key != "task_support"} == echo


@servers
async def test_echo_and_images_and_structured_content_pass_through(hub_url: str, server: str) -> None:
    command, *args = [*node_script("mcp-server-everything"), "stdio"]
    calls: list[tuple[str, dict[str, Any]]] = [
        ("echo", {"message": "hi"}),
        ("get-tiny-image", {}),
        ("get-structured-content", {"location": "Chicago"}),
        ("get-annotated-message", {"messageType": "error", "includeImage": True}),
        ("get-resource-links", {"count": 2}),
    ]
    with anyio.fail_after(LIMIT_S):
        async with LineClient(program("sdk_client.mjs"), command, *args) as direct:
            expected = [await direct.call(tool, arguments) for tool, arguments in calls]
        async with LineClient(program("sdk_client.mjs"), hub_url) as client:
            await client.call("list_tools")
            await client.call("await_activity", {"timeout_ms": 0})
            for (tool, arguments), result in zip(calls, expected, strict=True):
                passed = await execute(client, server, tool, arguments)
                assert passed["content"][: len(result["content"])] == result["content"]
                assert {**passed, "content": []} == {**result, "content": []}


@servers
async def test_progress_of_the_long_running_operation_reaches_the_client(hub_url: str, server: str) -> None:
    seen: list[tuple[float, float]] = []
    with anyio.fail_after(LIMIT_S):
        async with LineClient(program("sdk_client.mjs"), hub_url) as client:
            result = await client.call(
                "execute_tool",
                {"server": server, "tool": "trigger-long-running-operation", "args": {"duration": 0.5, "steps": 5}},
                on_progress=lambda news: seen.append((news["progress"], news["total"])),
            )
    text = "Long running operation completed. Duration: 0.5 seconds, Steps: 5."
    assert result["content"][0] == {"type": "text", "text": text}
    assert seen == [(step, 5) for step in range(1, 6)]


@servers
async def test_its_elicitation_is_answered_through_the_hub(hub_url: str, server: str) -> None:
    with anyio.fail_after(LIMIT_S):
        async with LineClient(program("sdk_client.mjs"), hub_url) as client:
            promoted = await execute(client, server, "trigger-elicitation-request", {})
            (question,) = open_questions(promoted)
            assert question["params"]["requestedSchema"]["required"] == ["name"]
            content = {
                "name": "Ada",
                "integer": 42,
                "legacyTitledEnum": "pet-2",
                "titledMultipleSelectEnum": ["fish-1"],
            }
            answer = {"request_id": question["request_id"], "action": "accept", "content": content}
            own_json(await client.call("respond_to_elicitation", answer))
            result = await client.call("get_task_result", {"task_id": proxy_task(promoted)["task_id"]})
    raw = result["content"][2]["text"].partition("Raw result: ")[2]
    assert json.loads(raw) == {"action": "accept", "content": content}


@servers
async def test_its_sampling_request_is_answered_through_the_hub(hub_url: str, server: str) -> None:
    with anyio.fail_after(LIMIT_S):
        async with LineClient(program("sdk_client.mjs"), hub_url) as client:
            promoted = await execute(client, server, "trigger-sampling-request", {"prompt": "why?", "maxTokens": 7})
            (question,) = open_questions(promoted, "sampling_requests")
            assert question["params"]["maxTokens"] == 7
            answer = {
                "request_id": question["request_id"],
                "content": "because",
                "model": "a-model",
                "stop_reason": "endTurn",
            }
            own_json(await client.call("respond_to_sampling", answer))
            result = await client.call("get_task_result", {"task_id": proxy_task(promoted)["task_id"]})
    sampled = json.loads(result["content"][0]["text"].partition("\n")[2])
    assert sampled == {
        "role": "assistant",
        "content": {"type": "text", "text": "because"},
        "model": "a-model",
        "stopReason": "endTurn",
    }


async def test_both_transports_are_told_apart(hub_url: str) -> None:
    with anyio.fail_after(LIMIT_S):
        async with LineClient(program("story_client.py"), hub_url) as client:
            await client.call("list_tools")
            entries = own_json(await client.call("list_servers"))["servers"]
    assert {entry["name"]: (entry["transport"], entry["era"]) for entry in entries} == {
        "stdio": ("stdio", "handshake"),
        "http": ("http", "handshake"),
    }
