"""The promise of the hub as one story, told by clients that we did not write: a call that asks becomes a task."""

import json
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client import Client, ClientRequestContext
from mcp.types import ElicitRequestParams, ElicitResult

from tests.peers.drive import LineClient
from tests.peers.locate import node_script, program
from tests.process.hub_process import (
    DEMO,
    EMCEEPEE,
    config_file,
    demo_serving,
    json_blocks,
    open_questions,
    own_json,
    proxy_task,
    serving,
)
from tests.requirements import requirement

LIMIT_S = 180
MANY_LIMIT_S = 600
"""For hundreds of calls, each with several messages, which a busy machine takes minutes for."""

PATIENCE_MS = 600_000
"""A timeout that no test lives to see: what comes back earlier was promoted by its question."""

WHEN = {"date": "2030-05-17", "time": "19:30"}
YES = {"confirm": True, "note": "a birthday"}

pytestmark = pytest.mark.anyio
fronts = pytest.mark.parametrize("front", ["http", "stdio"])
ways = pytest.mark.parametrize(
    ("front", "behind", "era"),
    [
        ("http", "stdio", "auto"),
        ("stdio", "http", "auto"),
        ("stdio", "stdio", "handshake"),
        ("http", "http", "handshake"),
    ],
)


@pytest.fixture(scope="module")
def demo_url() -> Iterator[str]:
    with demo_serving() as url:
        yield url


@contextmanager
def hub_in_front(front: str, flags: list[str]) -> Iterator[list[str]]:
    """Where a client finds a hub: a URL, or the command to start it with."""
    if front == "stdio":
        yield [*EMCEEPEE, "stdio", *flags]
    else:
        with serving(*flags) as (url, _):
            yield [url]


def demo_entry(behind: str, era: str, demo_url: str) -> dict[str, Any]:
    return {"era": era, **({"url": demo_url} if behind == "http" else {"command": DEMO[0], "args": DEMO[1:]})}


async def execute(client: LineClient, tool: str, args: dict[str, Any], **options: Any) -> dict[str, Any]:
    arguments = {"server": "demo", "tool": tool, "args": args, "timeout_ms": PATIENCE_MS, **options}
    return await client.call("execute_tool", arguments)


async def accept(client: LineClient, question: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    arguments = {"request_id": question["request_id"], "action": "accept", "content": content}
    return own_json(await client.call("respond_to_elicitation", arguments))


async def direct_booking(url: str, guests: int) -> list[dict[str, Any]]:
    """The blocks of the demo server's own result, asked without a hub."""
    answers: list[dict[str, Any]] = [WHEN, YES]

    async def fill_in(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content=answers.pop(0))

    async with Client(url, mode="legacy", elicitation_callback=fill_in) as client:
        result = await client.call_tool("book_table", {"guests": guests})
    return [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]


@requirement("P000-manual-server")
@ways
async def test_a_booking_that_asks_twice_is_made_through_the_hub(
    front: str, behind: str, era: str, demo_url: str, tmp_path: Path
) -> None:
    flags = config_file(tmp_path, {"demo": demo_entry(behind, era, demo_url)})
    with anyio.fail_after(LIMIT_S), hub_in_front(front, flags) as target:
        async with LineClient(program("story_client.py"), *target) as client:
            promoted = await execute(client, "book_table", {"guests": 3})

            task = proxy_task(promoted)
            (first,) = open_questions(promoted)
            assert promoted.get("isError", False) is False
            assert (task["server"], task["tool"], task["status"]) == ("demo", "book_table", "working")
            assert (first["task_id"], first["certainty"] in ("exact", "sole")) == (task["task_id"], True)
            assert first["message"] == "When would you like a table for 3?"
            assert list(first["params"]["requestedSchema"]["properties"]) == ["date", "time"]
            summary = promoted["content"][0]["text"]
            for word in (task["task_id"], first["request_id"], "respond_to_elicitation", "get_task_result"):
                assert word in summary
            on_server = json_blocks(promoted)[0]["pending_on_server"]
            assert [found["task_id"] for found in on_server["tasks"]] == [task["task_id"]]
            assert [found["request_id"] for found in on_server["elicitations_for_server"]] == [first["request_id"]]

            assert (await accept(client, first, WHEN))["task_id"] == task["task_id"]
            second = await next_question(client)
            assert list(second["params"]["requestedSchema"]["properties"]) == ["confirm", "note"]
            assert second["task_id"] == task["task_id"]
            await accept(client, second, YES)

            result = await client.call("get_task_result", {"task_id": task["task_id"]})
        direct = await direct_booking(demo_url, 3)
    assert result["content"][: len(direct)] == direct
    assert result.get("isError", False) is False
    for block in result["content"][len(direct) :]:
        assert list(json.loads(block["text"])) in (["events_since_last_response"], ["pending_client_action"])


async def next_question(client: LineClient, kind: str = "elicitations") -> dict[str, Any]:
    """What `await_activity` brings next; it may come back for other reasons first."""
    while True:
        told = own_json(await client.call("await_activity"))
        if found := told["pending_client"][kind]:
            return dict(found[0])


@fronts
async def test_a_call_that_asks_nothing_comes_back_with_the_servers_own_result(front: str) -> None:
    with anyio.fail_after(LIMIT_S), hub_in_front(front, ["--demo"]) as target:
        async with LineClient(program("story_client.py"), *target) as client:
            await execute(client, "echo", {"text": "the first answer tells of the connection"})
            assert (await execute(client, "echo", {"text": "grüß dich"}))["content"] == [
                {"type": "text", "text": "grüß dich"}
            ]
            failed = await execute(client, "fail", {"message": "no such dish"})
            assert failed["isError"] is True
            assert failed["content"] == [{"type": "text", "text": "Error executing tool fail: no such dish"}]
            assert own_json(await client.call("list_tasks", {"include_completed": True})) == {"tasks": []}


@pytest.mark.parametrize(("front", "action"), [("http", "decline"), ("stdio", "cancel")])
async def test_a_question_that_is_not_answered_with_yes_resumes_the_call(front: str, action: str) -> None:
    with anyio.fail_after(LIMIT_S), hub_in_front(front, ["--demo"]) as target:
        async with LineClient(program("story_client.py"), *target) as client:
            promoted = await execute(client, "book_table", {})
            (question,) = open_questions(promoted)
            answer = {"request_id": question["request_id"], "action": action}
            own_json(await client.call("respond_to_elicitation", answer))
            result = await client.call("get_task_result", {"task_id": proxy_task(promoted)["task_id"]})
    assert result["content"][0]["text"].startswith("No table was booked")


# Many at once


@dataclass
class Asking:
    """One session whose calls of `summarise` ask one question each, answered in random order."""

    client: LineClient
    name: str
    calls: int
    order: random.Random
    results: dict[str, Any] = field(default_factory=dict)

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(self.calls):
                tasks.start_soon(self._call, f"{self.name} {number}")
            questions = await self._questions()
            self.order.shuffle(questions)
            for question in questions:
                tasks.start_soon(self._answer, question)
        for text, result in self.results.items():
            if any("proxy_task" in block for block in json_blocks(result)):
                task_id = proxy_task(result)["task_id"]
                self.results[text] = await self.client.call("get_task_result", {"task_id": task_id})

    async def _call(self, text: str) -> None:
        self.results[text] = await execute(self.client, "summarise", {"text": text})

    async def _questions(self) -> list[dict[str, Any]]:
        """All of them, before any is answered."""
        while True:
            listed = own_json(await self.client.call("get_sampling_requests"))["sampling_requests"]
            if len(listed) == self.calls:
                return list(listed)
            await self.client.call("await_activity", {"timeout_ms": 1000})

    async def _answer(self, question: dict[str, Any]) -> None:
        answer = {"request_id": question["request_id"], "content": answer_to(question), "model": "test"}
        own_json(await self.client.call("respond_to_sampling", answer))

    def answers(self) -> dict[str, Any]:
        return {text: result["content"][0] for text, result in self.results.items()}

    def expected(self) -> dict[str, Any]:
        texts = [f"{self.name} {number}" for number in range(self.calls)]
        return {text: {"type": "text", "text": f"in short: {text}"} for text in texts}


def answer_to(question: dict[str, Any]) -> str:
    asked: str = question["params"]["messages"][0]["content"]["text"]
    return "in short: " + asked.rpartition("\n\n")[2]


@ways
async def test_each_of_three_answers_reaches_its_own_call(
    front: str, behind: str, era: str, demo_url: str, tmp_path: Path
) -> None:
    flags = config_file(tmp_path, {"demo": demo_entry(behind, era, demo_url)})
    with anyio.fail_after(LIMIT_S), hub_in_front(front, flags) as target:
        async with LineClient(program("story_client.py"), *target) as client:
            asking = Asking(client, "story", 3, random.Random(3))  # noqa: S311
            await asking.run()
    assert asking.answers() == asking.expected()


@pytest.mark.parametrize(("behind", "era"), [("stdio", "auto"), ("http", "handshake")])
async def test_eighty_calls_in_each_of_three_sessions_are_answered_in_random_order(
    behind: str, era: str, demo_url: str, tmp_path: Path
) -> None:
    flags = config_file(tmp_path, {"demo": demo_entry(behind, era, demo_url)})
    with anyio.fail_after(MANY_LIMIT_S), serving(*flags) as (url, _):
        peer = program("story_client.py")
        async with LineClient(peer, url) as one, LineClient(peer, url) as two, LineClient(peer, url) as three:
            sessions = [
                Asking(client, name, 80, random.Random(name))  # noqa: S311
                for client, name in ((one, "one"), (two, "two"), (three, "three"))
            ]
            async with anyio.create_task_group() as tasks:
                for session in sessions:
                    tasks.start_soon(session.run)
    assert [session.answers() for session in sessions] == [session.expected() for session in sessions]


# The inspector


async def inspect(url: str, home: Path, *arguments: str) -> dict[str, Any]:
    """One call with the inspector, which keeps files in the home directory; a test leaves none there."""
    command = [*node_script("mcp-inspector"), "--cli", url, *arguments]
    done = await anyio.run_process(command, env={**os.environ, "HOME": str(home)})
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


async def test_the_inspector_lists_and_calls_the_hubs_tools(tmp_path: Path) -> None:
    with anyio.fail_after(LIMIT_S), serving("--demo") as (url, _):
        listed = await inspect(url, tmp_path, "--method", "tools/list")
        assert {"list_servers", "execute_tool", "await_activity"} <= {tool["name"] for tool in listed["tools"]}

        call = ("--method", "tools/call", "--tool-name")
        servers = await inspect(url, tmp_path, *call, "list_servers")
        assert [server["name"] for server in own_json(servers)["servers"]] == ["demo"]

        given = ("--tool-arg", "server=demo", "tool=echo", 'args={"text": "hi"}')
        echoed = await inspect(url, tmp_path, *call, "execute_tool", *given)
        assert echoed["content"][0] == {"type": "text", "text": "hi"}
