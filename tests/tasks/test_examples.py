"""The examples do what they say, against servers that we did not write."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from emceepee.client import Http, Stdio, connect
from tests.process.hub_process import demo_serving
from tests.tasks.asking import LIMIT_S
from tests.tasks.peers import PeerName, Servers

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def command_of(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-u", str(EXAMPLES / name), *arguments]


async def run(name: str, *arguments: str, typed: str = "") -> list[str]:
    """What an example prints, line by line, if `typed` is typed into it."""
    with anyio.fail_after(LIMIT_S):
        done = await anyio.run_process(command_of(name, *arguments), input=typed.encode(), stderr=None)
    return done.stdout.decode().splitlines()


async def printed_until(line: str, output: BufferedByteReceiveStream) -> list[str]:
    """What an example prints up to a line, which it has to print."""
    lines = list[str]()
    while line not in lines:
        lines.append((await output.receive_until(b"\n", 1000)).decode())
    return lines


def url(servers: Servers, peer: PeerName) -> str:
    target = servers.target(peer, "HTTP")
    assert isinstance(target, Http)
    return target.url


async def test_an_example_follows_a_task_over_http(servers: Servers) -> None:
    at = url(servers, "npm")
    command = command_of("follow_a_task.py", at, "work", '{"topic": "bees", "gate": "an example"}')
    with anyio.fail_after(LIMIT_S):
        async with await anyio.open_process(command, stderr=None) as example, connect(at) as server:
            assert example.stdout is not None
            output = BufferedByteReceiveStream(example.stdout)
            lines = await printed_until("It is working: reading", output)
            assert lines[0].startswith("The server made a task of it:")
            await server.call_tool("release", {"gate": "an example"})
            await printed_until("worked on bees", output)


async def test_an_example_follows_an_extension_task(servers: Servers) -> None:
    lines = await run("follow_a_task.py", url(servers, "fastmcp"), "work", '{"topic": "bees"}')
    assert lines[0].startswith("The server made a task of it:")
    assert lines[-1] == "worked on bees"


async def test_an_example_starts_a_server_and_calls_a_plain_tool(servers: Servers) -> None:
    target = servers.target("npm", "stdio")
    assert isinstance(target, Stdio)
    command = shlex.join([target.command, *target.args])
    assert await run("follow_a_task.py", command, "echo", '{"text": "hi"}') == ["hi"]


@pytest.mark.parametrize("tool", ["elicit_as_task", "elicit_inside", "elicit"])
async def test_an_example_answers_a_form_however_it_arrives(servers: Servers, tool: str) -> None:
    lines = await run("answer_questions.py", url(servers, "npm"), tool, '{"question": "Who?"}', typed="Ada\n")
    assert lines == ["Who?", "name: accept Ada"]


async def test_an_example_answers_for_a_model(servers: Servers) -> None:
    lines = await run("answer_questions.py", url(servers, "python"), "sample_inside", typed="word\n")
    assert lines == ["[user] Say a word", "What would a model say? a person said word"]


async def test_an_example_watches_a_task_from_its_beginning_to_its_end(servers: Servers) -> None:
    lines = await run("watch_events.py", url(servers, "npm"), "work")
    assert lines[0].startswith("+ task ")
    assert lines[-2].endswith(": TaskCompletedEvent")
    assert lines[-1] == "  the server has 1 tasks"


async def test_an_example_watches_a_server_that_keeps_no_list_of_tasks() -> None:
    with demo_serving() as at:
        lines = await run("watch_events.py", at, "book_table")
    assert lines == [
        "? When would you like a table for 2?",
        "  elicitation: rejected",
        "It failed: This program only watches",
        "  the server keeps no list of tasks",
    ]


@pytest.mark.parametrize("example", sorted(path.name for path in EXAMPLES.glob("*.py")))
async def test_an_example_without_arguments_says_how_it_is_used(example: str) -> None:
    with anyio.fail_after(LIMIT_S):
        done = await anyio.run_process(command_of(example), check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert f".venv/bin/python examples/{example} " in done.stderr.decode()
