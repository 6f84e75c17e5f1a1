"""The peers themselves, against the demo server alone: what the hub's tests rely on is proved without the hub."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.peers.drive import LineClient, PeerError, ProgramEnded
from tests.peers.locate import node_script, program

DEMO = [sys.executable, "-m", "emceepee.demo"]
LIMIT_S = 180
"""Node and a second Python have to start; only a hang meets this."""

pytestmark = pytest.mark.anyio
clients = pytest.mark.parametrize("client", ["story_client.py", "sdk_client.mjs"])


@pytest.fixture(scope="module")
def demo_url() -> Iterator[str]:
    with subprocess.Popen([*DEMO, "--port", "0"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield process.stderr.readline().split()[-1]
        finally:
            process.terminate()


@pytest.fixture(params=["stdio", "http"])
def target(request: pytest.FixtureRequest) -> list[str]:
    return [str(request.getfixturevalue("demo_url"))] if request.param == "http" else DEMO


@clients
async def test_a_program_lists_and_calls_tools_concurrently(client: str, target: list[str]) -> None:
    results: dict[str, Any] = {}

    async def call(peer: LineClient, text: str) -> None:
        results[text] = await peer.call("echo", {"text": text})

    with anyio.fail_after(LIMIT_S):
        async with LineClient(program(client), *target) as peer:
            assert peer.ready["serverInfo"]["name"] == "emceepee-demo"
            assert "echo" in {tool["name"] for tool in (await peer.list_tools())["tools"]}
            async with anyio.create_task_group() as calls:
                for number in range(10):
                    calls.start_soon(call, peer, f"number {number}")
    assert {text: result["content"] for text, result in results.items()} == {
        f"number {number}": [{"type": "text", "text": f"number {number}"}] for number in range(10)
    }


@clients
async def test_progress_reaches_the_caller(client: str, demo_url: str) -> None:
    seen: list[float] = []
    with anyio.fail_after(LIMIT_S):
        async with LineClient(program(client), demo_url) as peer:
            await peer.call("slow", {"seconds": 0.1}, on_progress=lambda update: seen.append(update["progress"]))
    assert seen[:5] == [0, 1, 2, 3, 4]


async def test_the_npm_sdk_gives_up_at_its_timeout(demo_url: str) -> None:
    with anyio.fail_after(LIMIT_S):
        async with LineClient(program("sdk_client.mjs"), demo_url) as peer:
            with pytest.raises(PeerError) as raised:
                await peer.call("slow", {"seconds": 600}, timeout_ms=50)
            assert raised.value.code == -32001
            assert (await peer.call("echo", {"text": "still here"}))["content"][0]["text"] == "still here"


async def test_the_1x_python_sdk_gives_up_at_its_timeout(demo_url: str) -> None:
    with anyio.fail_after(LIMIT_S):
        async with LineClient(program("story_client.py"), demo_url) as peer:
            with pytest.raises(PeerError) as raised:
                await peer.call("slow", {"seconds": 600}, timeout_s=0.05)
            assert raised.value.code == 408


async def test_a_call_can_be_cancelled_with_a_reason_of_the_users(demo_url: str) -> None:
    started = anyio.Event()

    async def call(peer: LineClient) -> None:
        with pytest.raises(PeerError):
            await peer.call("slow", {"seconds": 600}, id="long", on_progress=lambda _: started.set())

    with anyio.fail_after(LIMIT_S):
        async with LineClient(program("sdk_client.mjs"), demo_url) as peer, anyio.create_task_group() as calls:
            calls.start_soon(call, peer)
            await started.wait()
            await peer.request({"op": "cancel", "call": "long", "reason": "changed my mind"})


@clients
async def test_a_program_that_cannot_connect_says_so(client: str) -> None:
    with anyio.fail_after(LIMIT_S), pytest.raises(ProgramEnded):
        async with LineClient(program(client), "http://127.0.0.1:9/mcp"):
            pass


async def test_the_inspector_calls_a_tool_over_http(demo_url: str, tmp_path: Path) -> None:
    command = [*node_script("mcp-inspector"), "--cli", demo_url, "--method", "tools/call", "--tool-name", "echo"]
    with anyio.fail_after(LIMIT_S):
        # The inspector keeps files in the home directory; a test leaves none there.
        done = await anyio.run_process([*command, "--tool-arg", "text=hi"], env={**os.environ, "HOME": str(tmp_path)})
    assert json.loads(done.stdout)["content"] == [{"type": "text", "text": "hi"}]


async def test_server_everything_runs_over_stdio() -> None:
    with anyio.fail_after(LIMIT_S):
        async with LineClient(program("sdk_client.mjs"), *node_script("mcp-server-everything"), "stdio") as peer:
            result = await peer.call("echo", {"message": "hi"})
    assert result["content"] == [{"type": "text", "text": "Echo: hi"}]
