"""Servers and hubs that come back, as programs: one blow each, at a chosen moment."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest

from tests.chaos.world import POLL_S, HubProcess, World, alive, until, world
from tests.peers.locate import fastmcp_python, mcp130_python, program
from tests.process.hub_process import (
    INITIALIZE,
    HttpClient,
    Program,
    error_code,
    open_questions,
    own_json,
    proxy_task,
    started,
)

pytestmark = pytest.mark.anyio

PROGRAMS = Path(__file__).resolve().parent / "programs"
LIMIT_S = 180
GLANCE_MS = 50
"""How long to wait for news before looking again at what makes no event."""


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[World]:
    """The chaos servers and a hub, for one test."""
    with anyio.fail_after(LIMIT_S):
        async with world(folder) as found:
            await found.hub.start()
            yield found


async def called(found: World, tag: str) -> int:
    """The process that a call has reached."""
    while True:
        for entry in found.told_by_servers("called"):
            if entry["tag"] == tag:
                return int(entry["pid"])
        await anyio.sleep(POLL_S)


@pytest.mark.parametrize("server", ["pipe", "web-one"])
async def test_a_server_killed_mid_call_is_usable_by_the_very_next_call(tmp_path: Path, server: str) -> None:
    async with running(tmp_path) as found, HttpClient(found.hub.url) as client:
        answers: list[Any] = []

        async def interrupted() -> None:
            answers.append(await client.execute(server, "work", {"tag": "first", "ms": 60_000}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(interrupted)
            os.kill(await called(found, "first"), signal.SIGKILL)
            if server == "web-one":
                await found.http[0].kill()
                await found.http[0].start()
        assert error_code(answers[0]) == "SERVER_DISCONNECTED"
        again = await client.execute(server, "echo", {"tag": "second"})
        assert again["content"][0]["text"] == "second"
        assert again.get("isError") is not True


@contextmanager
def waiting_server(era: str) -> Iterator[Program]:
    """A server with a task that lasts as long as a test likes, and which outlives every hub."""
    python, name = {
        "2025-11-25": (mcp130_python, "waiting_task_130.py"),
        "2026-07-28": (fastmcp_python, "waiting_extension.py"),
    }[era]
    with started([str(python()), str(PROGRAMS / name)], {"PYTHONWARNINGS": "ignore"}) as server:
        yield server


def address(server: Program) -> dict[str, Any]:
    return {"url": server.wait_for_line("listening at").split()[-1], "transport": "http"}


async def native_task(client: HttpClient, tool: str, args: dict[str, Any]) -> str:
    """The hub's id of a task, once the server has made one of it as well, and the hub has written that down."""
    task_id = str(proxy_task(await client.execute("native", tool, args, timeout_ms=0))["task_id"])
    while own_json(await client.call("get_task", {"task_id": task_id}))["task"]["origin"] != "native":
        await client.call("await_activity", {"timeout_ms": GLANCE_MS})
    return task_id


@pytest.mark.parametrize("end", ["kill", "stop"])
@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
async def test_a_hub_that_ended_delivers_the_result_of_a_native_task(tmp_path: Path, era: str, end: str) -> None:
    """The server of 2025-11-25 shows a task only to the MCP session that made it."""
    with waiting_server(era) as server, anyio.fail_after(LIMIT_S):
        hub = HubProcess(tmp_path, {"native": address(server)})
        await hub.start()
        try:
            async with HttpClient(hub.url) as client:
                args = {"path": str(tmp_path / "released")}
                task_id = await native_task(client, "wait_for", args)
                await (hub.kill() if end == "kill" else hub.stop())
                await hub.start()
                task = own_json(await client.call("get_task", {"task_id": task_id}))["task"]
                assert (task["origin"], task["status"]) == ("native", "working")
                (tmp_path / "released").touch()
                result = await client.call("get_task_result", {"task_id": task_id})
                assert (result["content"][0]["text"], result.get("isError", False)) == ("it is there", False)
        finally:
            if hub.program is not None:
                await hub.stop()


async def test_tasks_that_end_just_as_the_next_hub_takes_them_up_are_all_delivered(tmp_path: Path) -> None:
    """A server on 1.x of the Python SDK loses its session, and all tasks in it, if a cancellation crosses an answer."""
    with waiting_server("2025-11-25") as server, anyio.fail_after(LIMIT_S):
        hub = HubProcess(tmp_path, {"native": address(server)})
        await hub.start()
        try:
            async with HttpClient(hub.url) as client:
                args = {"path": str(tmp_path / "released")}
                tasks = [await native_task(client, "wait_for", args) for _ in range(30)]
                await anyio.to_thread.run_sync(server.wait_for_line, "results: 30 wanted")
                await hub.kill()
                await hub.start()
                await anyio.to_thread.run_sync(server.wait_for_line, "results: 31 wanted")
                (tmp_path / "released").touch()
                results = [await client.call("get_task_result", {"task_id": task_id}) for task_id in tasks]
                assert {result["content"][0]["text"] for result in results} == {"it is there"}
        finally:
            if hub.program is not None:
                await hub.stop()


@pytest.mark.parametrize("end", ["kill", "stop"])
async def test_a_task_that_asks_after_the_hub_ended_is_heard(tmp_path: Path, end: str) -> None:
    """The server asks the first who waits for the result: that must not be the hub that is gone."""
    with waiting_server("2025-11-25") as server, anyio.fail_after(LIMIT_S):
        hub = HubProcess(tmp_path, {"native": address(server)})
        await hub.start()
        try:
            async with HttpClient(hub.url) as client:
                args = {"path": str(tmp_path / "released")}
                task_id = await native_task(client, "ask_after", args)
                await anyio.to_thread.run_sync(server.wait_for_line, "results: 1 wanted")
                await (hub.kill() if end == "kill" else hub.stop())
                await hub.start()
                await anyio.to_thread.run_sync(server.wait_for_line, "results: 2 wanted")
                (tmp_path / "released").touch()
                told = await client.call("await_activity")
                while not (asked := open_questions(told, "elicitations")):
                    told = await client.call("await_activity")
                assert asked[0]["task_id"] == task_id
                content = {"request_id": asked[0]["request_id"], "action": "accept", "content": {"name": "Ada"}}
                await client.call("respond_to_elicitation", content)
                result = await client.call("get_task_result", {"task_id": task_id})
                assert result["content"][0]["text"] == "hello Ada"
        finally:
            if hub.program is not None:
                await hub.stop()


QUESTIONS = [("ask", "accept Ada, asked once"), ("ask_one", "accept Ada")]
"""An `input_required` result, which is all that there is of its call, and a task of the extension with an input."""


@pytest.mark.parametrize("end", ["kill", "stop"])
@pytest.mark.parametrize(("tool", "text"), QUESTIONS)
async def test_a_question_that_lives_on_no_connection_is_open_after_the_hub_ended(
    tmp_path: Path, tool: str, text: str, end: str
) -> None:
    command = [*program("extension_server.py"), "http"]
    with started(command, {"PYTHONWARNINGS": "ignore"}) as server, anyio.fail_after(LIMIT_S):
        hub = HubProcess(tmp_path, {"modern": address(server)})
        await hub.start()
        try:
            async with HttpClient(hub.url) as client:
                promoted = await client.execute("modern", tool, {"question": "Who?"}, timeout_ms=30_000)
                task_id = proxy_task(promoted)["task_id"]
                (asked,) = open_questions(promoted, "elicitations")
                await (hub.kill() if end == "kill" else hub.stop())
                await hub.start()
                assert own_json(await client.call("get_elicitations"))["elicitations"] == [asked]
                content = {"request_id": asked["request_id"], "action": "accept", "content": {"name": "Ada"}}
                assert own_json(await client.call("respond_to_elicitation", content))["success"] is True
                result = await client.call("get_task_result", {"task_id": task_id})
                assert (result["content"][0]["text"], result.get("isError", False)) == (text, False)
        finally:
            if hub.program is not None:
                await hub.stop()


async def test_a_session_whose_id_was_told_is_known_after_a_kill(tmp_path: Path) -> None:
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE}
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    accept = {"accept": "application/json, text/event-stream"}
    with anyio.fail_after(LIMIT_S):
        hub = HubProcess(tmp_path, {})
        try:
            for _ in range(2):
                await hub.start()
                async with httpx2.AsyncClient(verify=False, headers=accept, timeout=LIMIT_S) as http:
                    session_id = (await http.post(hub.url, json=hello)).headers["mcp-session-id"]
                    await hub.kill()
                    await hub.start()
                    answer = await http.post(hub.url, json=ping, headers={"mcp-session-id": session_id})
                    assert answer.status_code == 200
                    gone = await http.delete(hub.url, headers={"mcp-session-id": session_id})
                    await hub.kill()
                    assert gone.status_code == 200
                    await hub.start()
                    answer = await http.post(hub.url, json=ping, headers={"mcp-session-id": session_id})
                    assert answer.status_code == 404
                await hub.kill()
        finally:
            if hub.program is not None:
                await hub.kill()


async def test_events_of_a_response_that_a_kill_cut_are_told_by_the_next_hub(tmp_path: Path) -> None:
    """The response is too large for the buffers between us, so that it is still on its way when the hub is killed."""
    async with running(tmp_path) as found, HttpClient(found.hub.url) as client:
        session_id = client.http.headers["mcp-session-id"]
        args = {"server": "web-one", "tool": "echo", "args": {"tag": "big", "size": 30_000_000}}
        params = {"name": "execute_tool", "arguments": args}
        body = json.dumps({"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": params}).encode()
        with socket.create_connection(("127.0.0.1", found.hub.port)) as slow_reader:
            slow_reader.sendall(
                b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: application/json, text/event-stream\r\n"
                b"content-type: application/json\r\n"
                + f"mcp-session-id: {session_id}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
                + body
            )
            # More than what begins a stream while there is no result yet.
            await anyio.to_thread.run_sync(slow_reader.recv, 100_000, socket.MSG_WAITALL)
            # Comes back when everything is written down that was to be written down by now.
            await client.call("list_servers")
            killed_at = datetime.now(UTC)
            await found.hub.kill()
        await found.hub.start()
        while not (told := events_in(await client.call("await_activity"))):
            pass
        from_before = [event for event in told if datetime.fromisoformat(event["created_at"]) < killed_at]
        assert ("server_connected", "web-one") in [(event["type"], event["server"]) for event in from_before]


async def gone(pids: list[int]) -> None:
    """Wait for processes that have been sent SIGKILL: it need not have arrived yet."""
    await until(lambda: not any(alive(pid) for pid in pids))


async def test_programs_of_a_killed_hub_are_ended_by_the_next_one(tmp_path: Path) -> None:
    """However early it is killed: here as soon as the first line of a server's program has run."""
    async with running(tmp_path) as found:
        for _ in range(2):
            async with HttpClient(found.hub.url):
                await until(lambda: bool(found.stdio_pids()), look_every_s=0)
                await found.hub.kill()
                left = found.stdio_pids()
                await found.hub.start()
            await gone(left)
            await until(lambda: not found.stdio_pids())


def events_in(result: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for block in result["content"]:
        if block["text"].startswith('{"events_since_last_response"'):
            found += json.loads(block["text"])["events_since_last_response"]
        elif block["text"].startswith('{"triggers"'):
            found += [event for server in json.loads(block["text"])["events"] for event in server["events"]]
    return found
