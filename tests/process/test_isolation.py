"""Two sessions on one hub: neither sees anything of the other, and a server that goes bad is nobody else's burden."""

import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest

from tests.peers.drive import LineClient
from tests.peers.locate import program
from tests.process.hub_process import (
    HttpClient,
    config_file,
    demo_serving,
    error_code,
    json_blocks,
    odd_server,
    open_questions,
    own_json,
    proxy_task,
    serving,
)

LIMIT_S = 180

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def hub_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with demo_serving() as demo:
        flags = config_file(tmp_path_factory.mktemp("hub"), {"demo": {"url": demo}})
        with serving(*flags) as (url, _):
            yield url


@pytest.fixture
async def pair(hub_url: str) -> AsyncIterator[tuple[LineClient, LineClient]]:
    """Two clients that we did not write, each with a session of its own."""
    with anyio.fail_after(LIMIT_S):
        async with (
            LineClient(program("story_client.py"), hub_url) as one,
            LineClient(program("sdk_client.mjs"), hub_url) as two,
        ):
            yield one, two


async def execute(client: LineClient, tool: str, args: dict[str, Any], **options: Any) -> dict[str, Any]:
    return await client.call("execute_tool", {"server": "demo", "tool": tool, "args": args, **options})


async def drained(client: LineClient) -> None:
    """Connect, and have every event so far told."""
    await execute(client, "echo", {"text": "connected"})
    await client.call("await_activity", {"timeout_ms": 0})


async def test_a_session_sees_nothing_of_anothers_tasks_questions_and_events(
    pair: tuple[LineClient, LineClient],
) -> None:
    ours, theirs = pair
    await drained(theirs)
    promoted = await execute(ours, "book_table", {})
    await execute(ours, "summarise", {"text": "a secret"})
    slow = proxy_task(await execute(ours, "slow", {"seconds": 600}, timeout_ms=0))

    # What would be seen is there by now: their own activity is told, and nothing else.
    seen = await execute(theirs, "echo", {"text": "mine"})
    assert seen["content"] == [{"type": "text", "text": "mine"}]
    assert own_json(await theirs.call("list_tasks", {"include_completed": True})) == {"tasks": []}
    assert own_json(await theirs.call("get_elicitations")) == {"elicitations": []}
    assert own_json(await theirs.call("get_sampling_requests")) == {"sampling_requests": []}
    (entry,) = own_json(await theirs.call("list_servers"))["servers"]
    assert (entry["working_tasks"], entry["pending_questions"]) == (0, 0)
    waited = own_json(await theirs.call("await_activity", {"timeout_ms": 100}))
    assert waited["triggers"] == [{"type": "timeout"}]
    assert waited["events"] == []
    assert waited["pending_server"] == []
    assert waited["pending_client"] == {"elicitations": [], "sampling_requests": []}

    replayed = json.dumps(await theirs.call("await_activity", {"timeout_ms": 0, "last_event_id": "0" * 26}))
    mine = [slow["task_id"], proxy_task(promoted)["task_id"], open_questions(promoted)[0]["request_id"]]
    assert [found for found in mine if found in replayed] == []


async def test_another_sessions_task_id_is_not_found(pair: tuple[LineClient, LineClient]) -> None:
    ours, theirs = pair
    task = proxy_task(await execute(ours, "slow", {"seconds": 600}, timeout_ms=0))
    guess = {"task_id": task["task_id"]}
    for tool in ("get_task", "get_task_result", "cancel_task"):
        assert error_code(await theirs.call(tool, guess)) == "TASK_NOT_FOUND"
    assert own_json(await ours.call("get_task", guess))["task"]["status"] == "working"


async def test_another_sessions_request_id_is_not_found(pair: tuple[LineClient, LineClient]) -> None:
    ours, theirs = pair
    (question,) = open_questions(await execute(ours, "book_table", {}))
    sampled = await execute(ours, "summarise", {"text": "a secret"})
    (sampling,) = open_questions(sampled, "sampling_requests")

    guess = {"request_id": question["request_id"], "action": "decline"}
    assert error_code(await theirs.call("respond_to_elicitation", guess)) == "REQUEST_NOT_FOUND"
    answer = {"request_id": sampling["request_id"], "content": "hijacked", "model": "m"}
    assert error_code(await theirs.call("respond_to_sampling", answer)) == "REQUEST_NOT_FOUND"
    reject = {"request_id": sampling["request_id"], "reject": "hijacked"}
    assert error_code(await theirs.call("respond_to_sampling", reject)) == "REQUEST_NOT_FOUND"

    open_still = own_json(await ours.call("await_activity", {"timeout_ms": 0}))["pending_client"]
    assert [found["request_id"] for found in open_still["elicitations"]] == [question["request_id"]]
    assert [found["request_id"] for found in open_still["sampling_requests"]] == [sampling["request_id"]]


async def test_the_end_of_one_session_leaves_the_others_task_running(hub_url: str) -> None:
    with anyio.fail_after(LIMIT_S):
        async with LineClient(program("story_client.py"), hub_url) as ours:
            promoted = await execute(ours, "summarise", {"text": "x"})
            async with LineClient(program("story_client.py"), hub_url) as theirs:
                await execute(theirs, "summarise", {"text": "y"})
            (question,) = open_questions(promoted, "sampling_requests")
            answer = {"request_id": question["request_id"], "content": "mine", "model": "m"}
            own_json(await ours.call("respond_to_sampling", answer))
            result = await ours.call("get_task_result", {"task_id": proxy_task(promoted)["task_id"]})
    assert result["content"][0] == {"type": "text", "text": "mine"}


async def test_a_session_that_is_ending_does_not_keep_another_from_adding_a_server(tmp_path: Path) -> None:
    flags = config_file(tmp_path, {"stubborn": odd_server("stubborn")})
    with anyio.fail_after(LIMIT_S), serving("--allow-spawn", *flags) as (url, _):
        async with HttpClient(url) as staying:
            # On a busy machine the session's end may be over before the request is served, which shows nothing.
            for attempt in range(5):
                if await adds_a_server_meanwhile(staying, f"odd-{attempt}"):
                    return
    pytest.fail("each time the session had ended before a server was added")


async def adds_a_server_meanwhile(staying: HttpClient, name: str) -> bool:
    """Add a server while another session ends; whether that was still going on afterwards."""
    async with HttpClient(staying.url) as leaving:
        pids = json.loads((await leaving.execute("stubborn", "pids"))["content"][0]["text"])
        await leaving.http.delete(staying.url)  # takes two seconds behind the scenes: its server does not want to end
        # Not waited for until it is connected: its program may take longer to start than the other to end.
        await staying.call("add_server", {"name": name, "timeout_ms": 0, **odd_server("none")})
        is_ending = all(is_there(pid) for pid in pids)
        assert name in [server["name"] for server in own_json(await staying.call("list_servers"))["servers"]]
    return is_ending


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# Servers that are bad neighbours


async def test_a_flooding_server_costs_no_other_server_an_event(tmp_path: Path) -> None:
    flags = config_file(tmp_path, {"odd": odd_server("floods")})
    with anyio.fail_after(LIMIT_S), serving("--demo", *flags) as (url, _):
        async with HttpClient(url) as client:
            await client.call("list_tools")
            asked = await client.execute("demo", "book_table")
            (question,) = open_questions(asked)
            await client.execute("odd", "hello")
            answer = {"request_id": question["request_id"], "action": "decline"}
            answered = await client.call("respond_to_elicitation", answer)
            await evicted_and_completed(url)
            told = own_json(await client.call("await_activity"))
    events = {group["server"]: group["events"] for group in told["events"]}
    # A demo server that is quick has its end told with the response to the answer already.
    early = [(event["server"], event["type"]) for event in at_once(answered)]
    late = [("demo", event["type"]) for event in events.get("demo", [])]
    assert [event for event in early if event == ("demo", "task_completed")] + late == [("demo", "task_completed")]
    assert told["events_lost"] > 0
    ticks = [event["data"]["params"]["n"] for event in events["odd"]]
    assert ticks == list(range(ticks[0], ticks[0] + len(ticks))), "the newest, and none left out among them"


def at_once(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The events that a response brought along."""
    return [event for block in json_blocks(result) for event in block.get("events_since_last_response", [])]


async def evicted_and_completed(url: str) -> None:
    """Wait, without reading an event, until a task has ended and a log was too full for all that came from now on."""
    async with httpx2.AsyncClient(timeout=LIMIT_S) as http:
        before = await counted(http, url, 'emceepee_events_evicted_total{delivered="false"}')
        while await counted(http, url, 'emceepee_tasks_ended_total{status="completed"}') == 0:
            pass
        while await counted(http, url, 'emceepee_events_evicted_total{delivered="false"}') == before:
            pass


async def counted(http: httpx2.AsyncClient, url: str, metric: str) -> float:
    metrics = (await http.get(url.replace("/mcp", "/metrics"))).text
    found = re.search(rf"^{re.escape(metric)} ([\d.e+]+)$", metrics, re.MULTILINE)
    return 0.0 if found is None else float(found[1])


@pytest.mark.parametrize("oddity", ["floods", "chatters", "deaf"])
async def test_a_bad_server_keeps_neither_others_nor_the_end_of_its_session_waiting(
    tmp_path: Path, oddity: str
) -> None:
    flags = config_file(tmp_path, {"odd": odd_server(oddity)})
    with anyio.fail_after(LIMIT_S), serving("--demo", *flags) as (url, hub):
        async with HttpClient(url) as client, HttpClient(url) as other:
            await client.execute("odd", "hello")
            # More than its pipe holds, for a server that does not read.
            for _ in range(5):
                await client.execute("odd", "hello", {"text": "x" * 100_000}, timeout_ms=0)
            for each in (client, other):
                result = await each.execute("demo", "echo", {"text": "here"})
                assert result["content"][0] == {"type": "text", "text": "here"}
        hub.process.send_signal(signal.SIGTERM)
        assert await anyio.to_thread.run_sync(hub.wait, LIMIT_S) == 0


async def test_a_program_that_keeps_dying_is_started_a_few_times_and_no_more(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    script = f"open({str(starts)!r}, 'a').write('x')"
    flags = config_file(tmp_path, {"dying": {"command": sys.executable, "args": ["-c", script]}})
    with anyio.fail_after(LIMIT_S), serving("--demo", *flags) as (url, _):
        async with HttpClient(url) as client:
            # Each call makes the hub try at once: nobody has to wait for the backoff here.
            for _ in range(20):
                assert error_code(await client.execute("dying", "hello")) == "SERVER_DISCONNECTED"
            result = await client.execute("demo", "echo", {"text": "here"})
            assert result["content"][0] == {"type": "text", "text": "here"}
            assert own_json(await client.call("list_servers"))["servers"][0]["status"] == "error"
    assert starts.read_text() == "x" * 6
