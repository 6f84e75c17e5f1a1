"""`emceepee stdio` as one server, as all of them, and as the hub: for clients of both eras."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Literal

import anyio
import pytest

from emceepee.client import ClientOptions, Stdio, connect
from emceepee.concurrency import companions
from tests.process.hub_process import StdioClient, proxy_task

LIMIT_S = 180
pytestmark = pytest.mark.anyio

HUB = ("-m", "emceepee.cli", "stdio", "--demo", "--data", ":memory:", "--log-level", "error")
ERAS: tuple[Literal["handshake", "modern"], ...] = ("handshake", "modern")


def stdio(*flags: str) -> Stdio:
    return Stdio(sys.executable, (*HUB, *flags))


@pytest.mark.parametrize("era", ERAS)
async def test_it_is_one_server_as_it_is(era: Literal["handshake", "modern"]) -> None:
    async with connect(Stdio(sys.executable, ("-m", "emceepee.demo"))) as demo:
        own_tools = await demo.list_tools()
    async with connect(stdio("--server", "demo"), options=ClientOptions(era=era)) as server:
        assert server.server_info["name"] == "emceepee-demo"
        assert [tool["name"] for tool in await server.list_tools()] == [tool["name"] for tool in own_tools]
        answer = await server.call_tool("echo", {"text": "hello"})
        assert [block["text"] for block in answer["content"]] == ["hello"]


@pytest.mark.parametrize("era", ERAS)
async def test_it_is_all_servers_in_one(era: Literal["handshake", "modern"]) -> None:
    async with connect(stdio("--all"), options=ClientOptions(era=era)) as server:
        names = [tool["name"] for tool in await server.list_tools()]
        assert "demo__echo" in names
        assert all(name.startswith("demo__") for name in names)
        answer = await server.call_tool("demo__echo", {"text": "hello"})
        assert [block["text"] for block in answer["content"]] == ["hello"]


@pytest.mark.parametrize("era", ERAS)
async def test_the_client_is_asked_natively_while_its_call_is_open(era: Literal["handshake", "modern"]) -> None:
    async with connect(stdio("--server", "demo"), options=ClientOptions(era=era)) as server:
        answers: list[dict[str, object]] = [{"date": "2030-05-17", "time": "19:30"}, {"confirm": True}]

        async def answer_questions() -> None:
            async for question in server.questions():
                await question.accept(answers.pop(0))

        async with companions() as tasks:
            tasks.start_soon(answer_questions)
            result = await server.call_tool("book_table", {"guests": 2})
        assert answers == []
        assert "2030-05-17" in result["content"][0]["text"]


def test_a_server_that_is_not_there_is_refused_at_the_start(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, *HUB, "--server", "nope"],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        cwd=tmp_path,
    )
    assert ended.returncode == 2
    assert "there is no server nope; there are: demo" in ended.stderr


def test_one_server_and_all_of_them_exclude_each_other(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, *HUB, "--server", "demo", "--all"],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        cwd=tmp_path,
    )
    assert ended.returncode == 2
    assert "not allowed with" in ended.stderr


@pytest.mark.parametrize("era", ERAS)
async def test_a_workspace_can_be_named_at_the_start(era: Literal["handshake", "modern"]) -> None:
    async with connect(stdio("--workspace", "mine"), options=ClientOptions(era=era)) as hub:
        listed = await hub.call_tool("list_servers")
        assert json.loads(listed["content"][0]["text"])["servers"][0]["name"] == "demo"


async def test_the_results_of_a_client_of_a_pipe_are_there_for_the_next_one(tmp_path: Path) -> None:
    flags = ("--demo", "--data", str(tmp_path))
    with anyio.fail_after(LIMIT_S):
        async with StdioClient(*flags) as client:
            task = proxy_task(await client.execute("demo", "echo", {"text": "kept"}, timeout_ms=0))
            await client.call("get_task_result", {"task_id": task["task_id"]})
        for _ in range(2):
            async with StdioClient(*flags) as client:
                result = await client.call("get_task_result", {"task_id": task["task_id"]})
                assert result["content"][0] == {"type": "text", "text": "kept"}
