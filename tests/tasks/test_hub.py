"""Tasks of servers that we did not write, through a hub, for a client that has tools and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from tests.tasks.asking import LIMIT_S, connections
from tests.tasks.cases import CASES, Case, cases_of
from tests.tasks.hubs import GLANCE_MS, PATIENCE_MS, HubOfPeers, ToolsOnlyClient, hub_of_peers
from tests.tasks.matrix import together, tried
from tests.tasks.peers import TRANSPORTS, PeerName, Servers, Transport

pytestmark = pytest.mark.anyio

ENDED_BY_HAND = cases_of("cancelled task")
FAILING = cases_of("failed task")
transports = pytest.mark.parametrize("transport", TRANSPORTS)


@pytest.fixture(scope="module")
async def hub(servers: Servers) -> AsyncIterator[HubOfPeers]:
    async with hub_of_peers(servers) as opened:
        yield opened


@tried("hub", together(case for case in CASES if case not in (*ENDED_BY_HAND, *FAILING)))
async def test_a_tool_is_seen_through_to_its_result(
    cases: tuple[Case, ...], transport: Transport, hub: HubOfPeers
) -> None:
    with anyio.fail_after(LIMIT_S):
        server = await hub.server(cases[0].peer, transport)
        async with anyio.create_task_group() as calls:
            for case in cases:
                calls.start_soon(see_through, hub.client, server, case)
    hub.client.assert_idle()


async def see_through(client: ToolsOnlyClient, server: str, case: Case) -> None:
    # A call that asks comes back by itself; one that does not is sent to the background at once.
    timeout_ms = PATIENCE_MS if case.questions else 0
    task_id = (await client.execute(server, case.tool, dict(case.args), timeout_ms=timeout_ms)).task["task_id"]
    for kind in case.questions:
        question = await client.next_question(task_id)
        assert (question["kind"], question["server"]) == (kind, server)
        assert question["certainty"] == "exact" or not case.is_native
        if case.is_native:
            shown = await client.task_with_status(task_id, "input_required")
            assert (shown["origin"], shown["tool"]) == ("native", case.tool)
        await client.answer(question)

    result = await client.result(task_id)
    assert result.texts[0].startswith(case.text)
    assert not result.is_error
    task = await client.task(task_id)
    assert (task["status"], task["origin"]) == ("completed", "native" if case.is_native else "promoted")


@tried("hub", together(ENDED_BY_HAND))
async def test_cancel_task_reaches_the_server(cases: tuple[Case, ...], transport: Transport, hub: HubOfPeers) -> None:
    (case,) = cases
    client = hub.client
    with anyio.fail_after(LIMIT_S):
        server = await hub.server(case.peer, transport)
        before = (await client.execute(server, "statuses")).texts[0].count("cancelled")
        task_id = (await client.execute(server, case.tool, timeout_ms=0)).task["task_id"]
        await becomes_native(client, task_id)
        await shown_by_the_server(client, server, "working", 1)

        cancelled = await client.call("cancel_task", task_id=task_id)

        assert cancelled.json["success"] is True
        assert (await client.task(task_id))["status"] == "cancelled"
        assert (await client.call("get_task_result", task_id=task_id)).error_code == "TASK_CANCELLED"
        await shown_by_the_server(client, server, "cancelled", before + 1)
    client.assert_idle()


async def becomes_native(client: ToolsOnlyClient, task_id: str) -> None:
    """The server has said that it made a task of the call."""
    while (await client.task(task_id))["origin"] != "native":
        await client.call("await_activity", timeout_ms=GLANCE_MS)


async def shown_by_the_server(client: ToolsOnlyClient, server: str, status: str, count: int) -> None:
    """So many tasks have that status, in the server's own eyes."""
    while (await client.execute(server, "statuses")).texts[0].count(status) != count:
        await client.call("await_activity", timeout_ms=GLANCE_MS)


@tried("hub", together(FAILING))
async def test_a_task_that_fails_says_why(cases: tuple[Case, ...], transport: Transport, hub: HubOfPeers) -> None:
    (case,) = cases
    client = hub.client
    with anyio.fail_after(LIMIT_S):
        server = await hub.server(case.peer, transport)
        task_id = (await client.execute(server, case.tool, timeout_ms=0)).task["task_id"]
        result = await client.result(task_id)
        task = await client.task(task_id)
    assert result.is_error
    if case.tool == "refuse":
        assert (task["status"], result.texts[0]) == ("completed", case.text)
    else:
        assert (task["status"], result.error_code) == ("failed", "TASK_FAILED")
        assert case.text in task["error"]
    client.assert_idle()


# What a client sees, and what it does not


@transports
@pytest.mark.parametrize(
    ("peer", "tool"),
    [
        ("python", "work"),
        ("npm", "work"),
        ("fastmcp", "work"),
        ("python", "elicit_inside"),
        ("npm", "elicit_inside"),
        ("fastmcp", "ask_one"),
        ("python", "fail"),
        ("npm", "fail"),
        ("fastmcp", "fail"),
    ],
)
async def test_the_servers_own_task_id_is_shown_nowhere(
    peer: PeerName, tool: str, transport: Transport, hub: HubOfPeers
) -> None:
    client = hub.client
    with anyio.fail_after(LIMIT_S):
        server = await hub.server(peer, transport)
        task_id = (await client.execute(server, tool, timeout_ms=0)).task["task_id"]
        if tool in ("elicit_inside", "ask_one"):
            await client.answer(await client.next_question(task_id))
        await client.result(task_id)
        for look in ("list_tasks", "get_notifications", "await_activity"):
            await client.call(look, **({"timeout_ms": 0} if look == "await_activity" else {}))
    assert client.servers_own_id(task_id) not in "\n".join(client.told)
    assert task_id in "\n".join(client.told)


@transports
@pytest.mark.parametrize("peer", ["python", "npm", "fastmcp"])
async def test_a_result_that_was_fetched_is_the_servers_own(
    peer: PeerName, transport: Transport, hub: HubOfPeers, servers: Servers
) -> None:
    client = hub.client
    with anyio.fail_after(LIMIT_S):
        server = await hub.server(peer, transport)
        task_id = (await client.execute(server, "work", {"topic": "bees"}, timeout_ms=0)).task["task_id"]
        fetched = (await client.result(task_id)).raw
        async with connections(servers) as opened:
            asked = await opened.to(peer, transport)
            direct = await asked.server.call_tool_task("work", {"topic": "bees"})
    ours = {key: value for key, value in direct.items() if key not in ("content", "resultType", "_meta")}
    assert {key: value for key, value in fetched.items() if key not in ("content", "_meta")} == ours
    assert fetched["content"][: len(direct["content"])] == direct["content"]


@transports
@pytest.mark.parametrize("peer", ["python", "npm", "fastmcp"])
async def test_a_call_that_ends_in_time_shows_no_task(peer: PeerName, transport: Transport, hub: HubOfPeers) -> None:
    client = hub.client
    with anyio.fail_after(LIMIT_S):
        server = await hub.server(peer, transport)
        known = (await client.call("list_tasks", include_completed=True)).json
        answer = await client.execute(server, "work", {"topic": "bees"}, timeout_ms=PATIENCE_MS)
        assert answer.texts[0] == "worked on bees"
        assert (await client.call("list_tasks", include_completed=True)).json == known
        assert "task_created" not in answer.event_types


@transports
@pytest.mark.parametrize("peer", ["python", "npm"])
async def test_what_a_server_wants_its_caller_to_be_told_meanwhile_is_told(
    peer: PeerName, transport: Transport, hub: HubOfPeers
) -> None:
    client = hub.client
    with anyio.fail_after(LIMIT_S):
        server = await hub.server(peer, transport)
        for timeout_ms in (1_000, 10_000, 60_000):
            promoted = await client.execute(server, "hold", timeout_ms=timeout_ms)
            await client.call("cancel_task", task_id=promoted.task["task_id"])
            if promoted.texts[0].startswith("hold has begun"):
                return
    pytest.fail("a server may take its time on a busy machine, but not so much")


@pytest.mark.requirement("T000-related-task")
@transports
@pytest.mark.parametrize("peer", ["python", "npm"])
async def test_two_tasks_of_one_tool_keep_their_questions_apart(
    peer: PeerName, transport: Transport, hub: HubOfPeers
) -> None:
    client = hub.client
    with anyio.fail_after(LIMIT_S):
        server = await hub.server(peer, transport)
        tasks = {}
        for word in ("First", "Second"):
            promoted = await client.execute(server, "elicit_inside", {"question": f"{word}?"}, timeout_ms=0)
            tasks[word] = promoted.task["task_id"]
        for word in ("Second", "First"):
            question = await client.next_question(tasks[word])
            assert (question["message"], question["certainty"]) == (f"{word}?", "exact")
            await client.answer(question)
        for word, task_id in tasks.items():
            assert (await client.result(task_id)).texts[0] == f"accept {word}"
