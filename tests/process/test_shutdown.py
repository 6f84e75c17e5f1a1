"""The end of the hub: by signal, whatever is open, in time and with nothing left behind."""

import json
import os
import select
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
import httpx2
import pytest

from emceepee.cli import running
from emceepee.cli.running import ASKED_TO_END, FATAL
from emceepee.front import serving as serving_http
from emceepee.wire import http, process, stdio
from emceepee.wire.transport import CLOSE_TIMEOUT
from tests.process.hub_process import (
    EMCEEPEE,
    HttpClient,
    StdioClient,
    config_file,
    odd_server,
    proxy_task,
    serving,
    started,
)

LIMIT_S = 180
"""Only a hang meets this. What an end takes is not measured: on a busy machine that says nothing about the hub."""

SHUTDOWN_S = 5.0
"""What a graceful end may take."""

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the end of a foreign process is watched with pidfd_open"),
]
signals = pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=["SIGINT", "SIGTERM", "SIGHUP"]
)
every_signal = pytest.mark.parametrize("number", [*ASKED_TO_END, *FATAL], ids=lambda number: str(number.name))


@contextmanager
def watched(pids: list[int]) -> Iterator[list[int]]:
    """A file descriptor for each process, which becomes readable when it ends; a pid alone can be used again."""
    descriptors = [os.pidfd_open(pid) for pid in pids]
    try:
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def ended(descriptors: list[int]) -> list[bool]:
    """Which of the processes have ended; one that was just killed has some time for it."""
    return [bool(select.select([descriptor], [], [], LIMIT_S)[0]) for descriptor in descriptors]


async def stubborn_pids(client: HttpClient | StdioClient) -> list[int]:
    """The processes of the stubborn server: itself and its child."""
    result = await client.execute("stubborn", "pids")
    pids: list[int] = json.loads(result["content"][0]["text"])
    assert len(pids) == 2
    return pids


async def hold_a_call(client: HttpClient, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    """Call a slow tool, say when the server is at it, and read the response to its end."""
    arguments = {"server": "demo", "tool": "slow", "args": {"seconds": 600}, "timeout_ms": 600_000}
    params = {"name": "execute_tool", "arguments": arguments, "_meta": {"progressToken": 1}}
    message = {"jsonrpc": "2.0", "id": "held", "method": "tools/call", "params": params}
    is_first = True
    with suppress(httpx2.TransportError):
        async with client.http.stream("POST", client.url, json=message) as response:
            async for line in response.aiter_lines():
                if "notifications/progress" in line and is_first:
                    task_status.started()
                    is_first = False


def test_what_a_graceful_end_waits_for_takes_5_seconds_at_most() -> None:
    # A program is asked to end in two ways, each with its time; all servers are left at once.
    assert stdio.FLUSH_SECONDS + 2 * process.STEP_SECONDS + process.REAP_SECONDS < CLOSE_TIMEOUT
    assert http.GOODBYE_SECONDS < CLOSE_TIMEOUT
    assert CLOSE_TIMEOUT < running.SHUTDOWN_SECONDS
    assert serving_http.DRAIN_SECONDS + running.SHUTDOWN_SECONDS <= SHUTDOWN_S


@signals
async def test_a_signal_ends_serve_with_calls_questions_and_streams_open(
    tmp_path: Path, number: signal.Signals
) -> None:
    flags = config_file(tmp_path, {"stubborn": odd_server("stubborn")})
    with anyio.fail_after(LIMIT_S), serving("--demo", *flags) as (url, hub):
        async with HttpClient(url) as client, HttpClient(url) as other, anyio.create_task_group() as tasks:
            with watched([*await stubborn_pids(client), *await stubborn_pids(other)]) as processes:
                await tasks.start(hold_a_call, client)
                proxy_task(await client.execute("demo", "book_table"))
                proxy_task(await client.execute("stubborn", "wait", timeout_ms=0))
                async with client.listening() as stream:
                    hub.process.send_signal(number)
                    assert await anyio.to_thread.run_sync(hub.wait, LIMIT_S) == 0
                    with suppress(httpx2.TransportError):  # held up too long, the hub does not end it properly
                        await stream.aread()
                assert ended(processes) == [True, True, True, True]


@signals
async def test_a_signal_ends_stdio_with_calls_and_questions_open(tmp_path: Path, number: signal.Signals) -> None:
    flags = config_file(tmp_path, {"stubborn": odd_server("stubborn")})
    with anyio.fail_after(LIMIT_S):
        async with StdioClient("--demo", *flags) as client, anyio.create_task_group() as tasks:

            async def hold() -> None:
                with pytest.raises(EOFError):
                    await client.execute("stubborn", "wait", timeout_ms=600_000)

            with watched(await stubborn_pids(client)) as processes:
                tasks.start_soon(hold)
                proxy_task(await client.execute("demo", "book_table"))
                client.process.send_signal(number)
                assert await client.process.wait() == 0
                assert ended(processes) == [True, True]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="descendants are found in /proc")
async def test_a_signal_ends_the_programs_of_a_hub_behind_a_hub(tmp_path: Path) -> None:
    for folder in ("inner", "outer"):
        (tmp_path / folder).mkdir()
    inner = [*EMCEEPEE, "stdio", *config_file(tmp_path / "inner", {"stubborn": odd_server("stubborn")})]
    # A directory of its own, or any hub that starts meanwhile would end what this one leaves.
    environment = {"XDG_DATA_HOME": str(tmp_path / "inner")}
    flags = config_file(tmp_path / "outer", {"inner": {"command": inner[0], "args": inner[1:], "env": environment}})
    with anyio.fail_after(LIMIT_S), serving(*flags) as (url, hub):
        async with HttpClient(url) as client:
            asked = {"server": "stubborn", "tool": "pids"}
            result = await client.execute("inner", "execute_tool", args=asked)
            with watched(json.loads(result["content"][0]["text"])) as processes:
                hub.process.send_signal(signal.SIGTERM)
                assert await anyio.to_thread.run_sync(hub.wait, LIMIT_S) == 0
                assert ended(processes) == [True, True]


async def test_the_end_of_its_input_ends_stdio(tmp_path: Path) -> None:
    flags = config_file(tmp_path, {"stubborn": odd_server("stubborn")})
    with anyio.fail_after(LIMIT_S):
        async with StdioClient("--demo", *flags) as client:
            with watched(await stubborn_pids(client)) as processes:
                proxy_task(await client.execute("demo", "book_table"))
                assert client.process.stdin is not None
                await client.process.stdin.aclose()
                assert await client.process.wait() == 0
                assert ended(processes) == [True, True]


async def test_a_signal_ends_serve_while_a_server_never_finishes_connecting(tmp_path: Path) -> None:
    flags = config_file(tmp_path, {"silent": odd_server("silent"), "stubborn": odd_server("stubborn")})
    with anyio.fail_after(LIMIT_S), serving(*flags) as (url, hub):
        async with HttpClient(url) as client:
            with watched(await stubborn_pids(client)) as processes:
                hub.process.send_signal(signal.SIGTERM)
                assert await anyio.to_thread.run_sync(hub.wait, LIMIT_S) == 0
                assert ended(processes) == [True, True]


@every_signal
def test_a_signal_ends_serve_as_soon_as_it_says_that_it_serves(number: signal.Signals) -> None:
    with serving() as (_, hub):
        hub.process.send_signal(number)
        assert hub.wait(LIMIT_S) == 0


async def test_a_hub_that_was_told_to_outlive_its_terminal_does() -> None:
    with started(["nohup", *EMCEEPEE, "serve", "--port", "0"]) as hub, anyio.fail_after(LIMIT_S):
        url = hub.wait_for_line("emceepee is serving on").split()[-1]
        hub.process.send_signal(signal.SIGHUP)
        async with HttpClient(url) as client:
            await client.call("list_servers")
        assert hub.process.poll() is None


def test_a_client_can_connect_as_soon_as_the_hub_says_where() -> None:
    with serving() as (url, _):
        port = int(url.rsplit(":", 1)[1].split("/")[0])
        socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S).close()


async def test_the_end_of_a_session_ends_its_servers_processes(tmp_path: Path) -> None:
    flags = config_file(tmp_path, {"stubborn": odd_server("stubborn")})
    with anyio.fail_after(LIMIT_S), serving(*flags) as (url, _):
        async with HttpClient(url) as staying, HttpClient(url) as leaving:
            theirs, ours = await stubborn_pids(leaving), await stubborn_pids(staying)
            with watched(theirs) as processes, watched(ours) as others:
                await leaving.http.delete(leaving.url)
                for each in processes:
                    await anyio.wait_readable(each)
                assert select.select(others, [], [], 0)[0] == []


def test_a_port_that_is_taken_is_refused_at_the_start() -> None:
    with serving() as (url, _):
        port = url.rsplit(":", 1)[1].split("/")[0]
        with started([*EMCEEPEE, "serve", "--port", port]) as second:
            assert second.wait(LIMIT_S) == 2


async def test_programs_of_a_killed_hub_that_keeps_nothing_are_ended_by_the_next_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever that is. A hub that is there keeps its own, and one that ended in order leaves nothing to be found."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    flags = config_file(tmp_path, {"stubborn": odd_server("stubborn")})
    with anyio.fail_after(LIMIT_S):
        async with StdioClient(*flags) as staying, StdioClient(*flags) as killed:
            with watched(await stubborn_pids(killed)) as left, watched(await stubborn_pids(staying)) as kept:
                killed.process.kill()
                await killed.process.wait()
                assert select.select(left, [], [], 0)[0] == []
                with serving("--data", str(tmp_path / "data")):
                    assert ended(left) == [True, True]
                    assert select.select(kept, [], [], 0)[0] == []
        assert list((tmp_path / "emceepee" / "running").iterdir()) == []


@contextmanager
def serving_unheard() -> Iterator[str]:
    """A hub whose stderr nobody reads any more; it has to end in order all the same."""
    command = [*EMCEEPEE, "serve", "--port", "0", "--data", ":memory:", "--demo", "--log-level", "debug"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as hub:
        assert hub.stderr is not None
        lines = iter(hub.stderr.readline, b"")
        place = next(line for line in lines if b"serving on" in line).decode().split()[-1]
        hub.stderr.close()
        yield place
        hub.terminate()
        assert hub.wait(LIMIT_S) == 0


async def test_nobody_at_the_other_end_of_stderr_is_no_reason_to_end() -> None:
    with anyio.fail_after(LIMIT_S), serving_unheard() as url:
        async with HttpClient(url) as client:
            result = await client.execute("demo", "echo", {"text": "hi"})
            assert result["content"][0]["text"] == "hi"
