"""The stdio transport with real processes."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from emceepee.client import Stdio, connect
from emceepee.errors import ConnectFailed
from emceepee.wire import process, stdio
from emceepee.wire.stdio import StdioTransport
from emceepee.wire.transport import Channel
from tests.wire.messages import PATIENCE, arrival, loss, notification, request, result

pytestmark = pytest.mark.anyio

ANSWER = """
import json, os, signal, subprocess, sys, time
def say(message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def answer(line, **result): say({"id": json.loads(line)["id"], "result": result})
"""

ECHO = """
for line in sys.stdin:
    if "id" in json.loads(line): answer(line, pid=os.getpid())
"""

STUBBORN = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
grandchild = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", grandchild], stdout=subprocess.PIPE)
child.stdout.readline()
for line in sys.stdin:
    if "id" in json.loads(line): answer(line, pid=os.getpid(), child=child.pid)
time.sleep(600)
"""

HAS_PROGRAMS = STUBBORN.replace("stdout=subprocess.PIPE", "stdout=subprocess.PIPE, start_new_session=True")
"""As a hub has them, which is not done with ending them."""

BEHIND_A_WRAPPER = """
inner = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
inner.wait()
"""

LEAVES_A_CHILD = """
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
answer(sys.stdin.readline(), child=child.pid)
sys.stdin.readline()
sys.exit(3)
"""


@pytest.fixture(autouse=True)
def reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process is waited for, however busy the machine is: one that is left behind fails the test."""
    monkeypatch.setattr(process, "REAP_SECONDS", PATIENCE)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For servers that end by themselves: nothing is cut short because the machine is busy."""
    monkeypatch.setattr(stdio, "FLUSH_SECONDS", PATIENCE)
    monkeypatch.setattr(stdio, "LAST_WORDS_SECONDS", PATIENCE)
    monkeypatch.setattr(process, "STEP_SECONDS", PATIENCE)


def python(script: str, **options: object) -> StdioTransport:
    return StdioTransport(sys.executable, ["-c", ANSWER + script], **options)  # type: ignore[arg-type]


async def all_dead(handles: list[int]) -> None:
    """Wait until the processes behind these pidfds are dead: asked of the kernel, which also counts zombies as dead."""
    for handle in handles:
        with anyio.fail_after(PATIENCE):
            await anyio.wait_readable(handle)
        os.close(handle)


async def ask(channel: Channel, request_id: int = 1) -> dict[str, int]:
    await channel.write.send(request(request_id, "ping"))
    answered, content = await result(channel)
    assert answered == request_id
    return content


async def test_requests_are_answered_and_the_process_is_named() -> None:
    async with python(ECHO).open() as channel:
        assert await ask(channel) == {"pid": channel.state.process_id}
    assert channel.state.lost_reason is None


async def test_stray_output_arrives_as_exceptions_and_harms_nothing() -> None:
    noise = r"""
print("Listening..."); print(); print("[1]", flush=True)
sys.stdout.buffer.write(b"\xff\n"); sys.stdout.flush()
"""
    async with python(noise + ECHO).open() as channel:
        with anyio.fail_after(PATIENCE):
            assert all([isinstance(await channel.read.receive(), ValueError) for _ in range(3)])
        assert await ask(channel) == {"pid": channel.state.process_id}


async def test_invalid_utf8_inside_a_message_is_replaced() -> None:
    script = r"""
sys.stdout.buffer.write(b'{"jsonrpc": "2.0", "id": 1, "result": {"text": "a\xffb"}}\r\n')
sys.stdout.flush(); sys.stdin.read()
"""
    async with python(script).open() as channel:
        assert await result(channel) == (1, {"text": "a\ufffdb"})


async def test_a_large_result_passes() -> None:
    async with python('answer(sys.stdin.readline(), text="x" * (5 * 1024 * 1024)); sys.stdin.read()').open() as channel:
        await channel.write.send(request(1, "big"))
        assert await result(channel) == (1, {"text": "x" * (5 * 1024 * 1024)})


async def test_a_line_without_end_loses_the_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "LONGEST_MESSAGE", 1000)
    async with python('print("x" * 2000, end="", flush=True); sys.stdin.read()').open() as channel:
        assert await loss(channel) == "the server does not speak the protocol: a line is longer than 1000 bytes"


async def test_stderr_is_given_line_by_line_and_a_failing_callback_is_contained() -> None:
    lines: list[str] = []
    done = anyio.Event()

    def take(line: str) -> None:
        lines.append(line)
        if line == "end":
            done.set()
        raise RuntimeError("contained")

    script = 'print("one\\ntwo\\n" + "x" * 70000 + "\\nend", file=sys.stderr, flush=True)\n'
    async with python(script + ECHO, on_stderr=take).open() as channel:
        with anyio.fail_after(PATIENCE):
            await done.wait()
        assert await ask(channel) == {"pid": channel.state.process_id}
    assert lines == ["one", "two", "x" * 65536, "x" * (70000 - 65536), "end"]


@pytest.mark.usefixtures("patient")
async def test_last_words_and_exit_status_are_not_lost() -> None:
    lines: list[str] = []
    script = 'answer(sys.stdin.readline()); print("Traceback", file=sys.stderr); sys.exit(3)'
    async with python(script, on_stderr=lines.append).open() as channel:
        await channel.write.send(request(1, "ping"))
        assert await result(channel) == (1, {})
        assert await loss(channel) == "the server process exited with status 3"
        assert lines == ["Traceback"]
        with pytest.raises(anyio.BrokenResourceError):
            await channel.write.send(request(2, "ping"))


@pytest.mark.usefixtures("patient")
async def test_a_killed_server_loses_the_channel() -> None:
    async with python(ECHO).open() as channel:
        os.kill((await ask(channel))["pid"], 9)
        assert await loss(channel) == "the server process was killed by signal 9"


async def test_a_server_that_closes_its_output_loses_the_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STEP_SECONDS", 0.1)
    async with python("os.close(1); time.sleep(600)").open() as channel:
        assert await loss(channel) == "the server closed its output"


@pytest.mark.usefixtures("patient")
async def test_without_pidfds_the_exit_is_noticed_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    async with python("answer(sys.stdin.readline()); sys.exit(3)").open() as channel:
        await ask(channel)
        assert await loss(channel) == "the server process exited with status 3"


async def test_nothing_is_left_open_when_a_server_is_gone() -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    async with python(ECHO).open() as channel:
        await ask(channel)
    with pytest.raises(ConnectFailed):
        async with StdioTransport("no-such-program").open():
            pass
    assert sorted(os.listdir("/proc/self/fd")) == before


async def test_no_other_program_holds_the_pipes_of_a_server() -> None:
    """Nor does the server itself hold more than one copy of each: it would never be seen to close them."""
    held = "answer(sys.stdin.readline(), held=len([f for f in os.listdir('/proc/self/fd')]) - 1); sys.stdin.read()"
    async with python(held).open() as first, python(held).open() as second:
        assert (await ask(first), await ask(second)) == ({"held": 3}, {"held": 3})


async def test_a_server_that_does_not_read_its_input_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STEP_SECONDS", 0.1)
    async with python("answer(sys.stdin.readline(), pid=os.getpid()); time.sleep(600)").open() as channel:
        handle = os.pidfd_open((await ask(channel))["pid"])
        # More than the pipe holds: from here on our writes wait.
        await channel.write.send(notification("notifications/odd", {"text": "x" * 200_000}))
        await channel.write.send(notification("notifications/cancelled"))
        await anyio.wait_all_tasks_blocked()
    await all_dead([handle])


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("script", "was_heard"), [("sys.exit(3)", False), ("sys.stdin.readline(); sys.exit(3)", True)])
async def test_it_is_known_whether_a_server_that_ended_had_heard_anything(script: str, was_heard: bool) -> None:
    async with python(script).open() as channel:
        with suppress(anyio.BrokenResourceError):
            await channel.write.send(request(1, "server/discover"))
        await loss(channel)
        assert channel.state.was_heard is was_heard


async def test_the_exit_is_noticed_while_a_grandchild_holds_the_pipes_and_the_grandchild_dies_too() -> None:
    async with python(LEAVES_A_CHILD).open() as channel:
        child = (await ask(channel))["child"]
        handle = os.pidfd_open(child)
        await channel.write.send(notification("leave"))
        assert await loss(channel) == "the server process exited with status 3"
        os.kill(child, 0)
    await all_dead([handle])


async def test_a_server_that_ignores_eof_and_sigterm_is_ended_with_its_children(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "STEP_SECONDS", 0.1)
    async with python(STUBBORN).open() as channel:
        handles = [os.pidfd_open(pid) for pid in (await ask(channel)).values()]
    await all_dead(handles)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="descendants are found in /proc")
async def test_a_server_that_is_killed_takes_its_programs_in_other_groups_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "STEP_SECONDS", 0.1)
    async with python(HAS_PROGRAMS).open() as channel:
        handles = [os.pidfd_open(pid) for pid in (await ask(channel)).values()]
    await all_dead(handles)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="descendants are found in /proc")
async def test_a_wrapper_that_ends_first_takes_the_programs_behind_it_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STEP_SECONDS", 0.1)
    wrapper = StdioTransport(sys.executable, ["-c", ANSWER + BEHIND_A_WRAPPER, ANSWER + HAS_PROGRAMS])
    async with wrapper.open() as channel:
        handles = [os.pidfd_open(pid) for pid in (await ask(channel)).values()]
    await all_dead(handles)


async def test_a_cancelled_owner_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STEP_SECONDS", 0.1)
    handles: list[int] = []
    ready = anyio.Event()

    async def own() -> None:
        async with python(STUBBORN).open() as channel:
            handles.extend(os.pidfd_open(pid) for pid in (await ask(channel)).values())
            ready.set()
            await anyio.sleep_forever()

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(own)
            await ready.wait()
            tasks.cancel_scope.cancel()
    await all_dead(handles)


@pytest.mark.usefixtures("patient")
async def test_messages_written_just_before_closing_arrive(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    script = f"answer(sys.stdin.readline()); open({str(notes)!r}, 'w').write(sys.stdin.read())"
    async with python(script).open() as channel:
        await ask(channel)
        await channel.write.send(notification("notifications/cancelled"))
    assert notes.read_text() == '{"jsonrpc":"2.0","method":"notifications/cancelled"}\n'


async def test_environment_and_directory_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_SECRET", "1")
    script = "answer(sys.stdin.readline(), cwd=os.getcwd(), env={k: os.environ.get(k) for k in ('OURS', 'OUR_SECRET')})"
    async with python(script, env={"OURS": "2"}, cwd=tmp_path).open() as channel:
        await channel.write.send(request(1, "where"))
        assert await result(channel) == (1, {"cwd": str(tmp_path), "env": {"OURS": "2", "OUR_SECRET": None}})


@pytest.mark.parametrize(
    ("command", "cwd", "reason"),
    [
        ("no-such-program", None, "there is no program no-such-program"),
        ("/etc/passwd", None, "/etc/passwd may not be executed"),
        ("cat", "/etc/passwd", "/etc/passwd is not a directory to start cat in"),
        ("cat", "/nowhere", "/nowhere is not a directory to start cat in"),
        ("ca\0t", None, "ca\0t cannot be started: embedded null byte"),
    ],
)
async def test_what_cannot_be_started_says_why(command: str, cwd: str | None, reason: str) -> None:
    with pytest.raises(ConnectFailed) as caught:
        async with StdioTransport(command, cwd=cwd).open():
            pass
    assert caught.value.reason == reason


async def test_a_message_that_json_cannot_hold_fails_alone() -> None:
    async with python(ECHO).open() as channel:
        await channel.write.send(request(1, "ping", {"text": "\ud800"}))
        failed = (await arrival(channel)).message
        assert failed.error.code == -32603  # type: ignore[union-attr]
        assert await ask(channel, 2) == {"pid": channel.state.process_id}


async def test_an_error_of_the_body_comes_out_as_it_is() -> None:
    with pytest.raises(KeyError):
        async with python(ECHO).open():
            raise KeyError


def test_uvloop_carries_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STEP_SECONDS", 0.1)

    async def converse() -> None:
        async with python("os.close(1); time.sleep(600)").open() as channel:
            assert await loss(channel) == "the server closed its output"
        async with python(STUBBORN).open() as channel:
            assert (await ask(channel))["pid"] == channel.state.process_id
        async with python(LEAVES_A_CHILD).open() as channel:
            await ask(channel)
            await channel.write.send(notification("leave"))
            assert await loss(channel) == "the server process exited with status 3"
        with pytest.raises(ConnectFailed):
            async with StdioTransport("no-such-program").open():
                pass

    anyio.run(converse, backend_options={"use_uvloop": True})


def test_the_target_is_the_command_line() -> None:
    transport = StdioTransport("npx", ["-y", "a server"], env={"KEY": "secret"})
    assert (transport.kind, transport.target) == ("stdio", "npx -y 'a server'")


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("first_act", "starts"), [("pass", 1), ("sys.stdin.readline()", 2)], ids=["at once", "at the probe"]
)
async def test_a_program_that_exits_is_started_again_only_if_it_had_heard_us(
    tmp_path: Path, first_act: str, starts: int
) -> None:
    notes = tmp_path / "starts"
    script = f"import sys; open({str(notes)!r}, 'a').write('x'); {first_act}; sys.exit(3)"
    with pytest.raises(ConnectFailed, match="exited with status 3"):
        async with connect(Stdio(sys.executable, ["-c", script])):
            pass
    assert notes.read_text() == "x" * starts
