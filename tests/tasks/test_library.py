"""Tasks of servers that we did not write, through `emceepee.client` alone."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from emceepee.client import ClientOptions, Error, Result, TaskCreated, Update, connect
from emceepee.errors import PeerError, TaskRequired
from tests.tasks.asking import LIMIT_S, Asked, Connections, connections, text_of
from tests.tasks.cases import CASES, Case, cases_of
from tests.tasks.matrix import together, tried
from tests.tasks.peers import TRANSPORTS, PeerName, Servers, Transport

pytestmark = pytest.mark.anyio
requirement = pytest.mark.requirement

ENDED_BY_HAND = cases_of("cancelled task")
FAILING = cases_of("failed task")


@pytest.fixture(scope="module")
async def peers(servers: Servers) -> AsyncIterator[Connections]:
    async with connections(servers) as opened:
        yield opened


async def updates_of(asked: Asked, case: Case) -> list[Update]:
    return [update async for update in asked.server.call_tool_stream(case.tool, case.args, origin=case)]


@requirement("002-integration-server", "002-integration-create", "002-integration-stream")
@tried("library", together(case for case in CASES if case not in (*ENDED_BY_HAND, *FAILING)))
async def test_a_tool_is_seen_through_to_its_result(
    cases: tuple[Case, ...], transport: Transport, peers: Connections
) -> None:
    with anyio.fail_after(LIMIT_S):
        asked = await peers.to(cases[0].peer, transport)
        async with anyio.create_task_group() as calls:
            for case in cases:
                calls.start_soon(see_through, asked, case)


async def see_through(asked: Asked, case: Case) -> None:
    updates = await updates_of(asked, case)

    assert isinstance(updates[-1], Result)
    assert text_of(updates[-1].result).startswith(case.text)
    assert [isinstance(update, TaskCreated) for update in updates] == [case.is_native, *[False] * (len(updates) - 1)]
    questions = asked.questions_of(case)
    assert tuple(question.kind for question in questions) == case.questions
    assert {question.arrival for question in questions} <= {case.arrival}
    assert {question.settled for question in questions} <= {"answered"}
    if case.is_native:
        assert {question.belongs_to.certainty for question in questions} <= {"exact"}


@requirement("002-integration-cancel")
@tried("library", together(ENDED_BY_HAND))
async def test_a_cancelled_task_ends_as_cancelled_here_and_at_its_server(
    cases: tuple[Case, ...], transport: Transport, peers: Connections
) -> None:
    (case,) = cases
    updates: list[Update] = []
    with anyio.fail_after(LIMIT_S):
        asked = await peers.to(case.peer, transport)
        async for update in asked.server.call_tool_stream(case.tool, case.args):
            updates.append(update)
            if isinstance(update, TaskCreated):
                await asked.server.cancel_task(update.task.task_id)
        created = updates[0]
        assert isinstance(created, TaskCreated)
        assert (await asked.server.get_task(created.task.task_id)).status == "cancelled"
    assert isinstance(updates[-1], Error), updates
    assert asked.server.tasks[created.task.task_id].status == "cancelled"


@tried("library", together(FAILING))
async def test_a_task_fails_with_its_servers_own_reason(
    cases: tuple[Case, ...], transport: Transport, peers: Connections
) -> None:
    (case,) = cases
    with anyio.fail_after(LIMIT_S):
        asked = await peers.to(case.peer, transport)
        *_, last = await updates_of(asked, case)
    if case.tool == "refuse":
        assert isinstance(last, Result)
        assert (text_of(last.result), last.result["isError"]) == (case.text, True)
    else:
        assert isinstance(last, Error)
        assert case.text in str(last.error)


# What only some of them have


transports = pytest.mark.parametrize("transport", TRANSPORTS)
with_lists = pytest.mark.parametrize("peer", ["python", "npm"])


@requirement("002-integration-server", "002-unit-methods")
@transports
@with_lists
async def test_the_tasks_of_a_server_are_listed_page_by_page_and_their_results_fetched(
    peer: PeerName, transport: Transport, servers: Servers
) -> None:
    with anyio.fail_after(LIMIT_S):
        async with connect(servers.target(peer, transport)) as server:
            await server.list_tools()
            for number in range(12):  # npm's has ten on a page
                await server.call_tool_task("work", {"topic": f"topic {number}"})
            found, cursor = await server.list_tasks()
            while cursor is not None:
                page, cursor = await server.list_tasks(cursor)
                found += page
            results = [text_of(await server.get_task_result(task.task_id)) for task in found]
    assert sorted(results) == sorted(f"worked on topic {number}" for number in range(12))
    assert set(server.tasks) == {task.task_id for task in found}


@requirement("002-integration-server", "002-unit-capability")
@transports
@with_lists
async def test_a_tool_that_demands_a_task_gets_one_and_one_that_allows_it_may_do_without(
    peer: PeerName, transport: Transport, peers: Connections
) -> None:
    with anyio.fail_after(LIMIT_S):
        server = (await peers.to(peer, transport)).server
        assert [server.task_support(tool) for tool in ("work", "maybe", "echo")] == [
            "required",
            "optional",
            "forbidden",
        ]
        with pytest.raises(TaskRequired):
            await server.call_tool("work")
        assert text_of(await server.call_tool("maybe", {"topic": "bees"})) == "worked on bees"
        assert text_of(await server.call_tool("echo", {"text": "hi"})) == "hi"


@requirement("003-FR-10", "003-FR-11", "003-FR-15")
@transports
async def test_a_server_lists_and_cancels_the_question_that_it_asked_with_a_task(
    transport: Transport, servers: Servers
) -> None:
    results: list[str] = []
    with anyio.fail_after(LIMIT_S):
        options = ClientOptions(receiver_tasks=True)
        async with (
            connect(servers.target("python", transport), options=options) as server,
            anyio.create_task_group() as calls,
        ):

            async def call() -> None:
                results.append(text_of(await server.call_tool("cancel_own_question")))

            calls.start_soon(call)
            with server.events.subscribe() as events:
                question = await anext(server.questions())
                async for _event in events:
                    if question.settled is not None:
                        break
    assert results == ["listed True, cancelled, again -32602"]
    assert question.settled == "withdrawn"


@transports
async def test_a_connection_that_takes_no_tasks_is_not_asked_with_one(transport: Transport, servers: Servers) -> None:
    with anyio.fail_after(LIMIT_S):
        async with connect(servers.target("everything", transport)) as server:
            plain = {tool["name"] for tool in await server.list_tools()}
        async with connect(servers.target("python", transport)) as server:
            refused = await server.call_tool("elicit_as_task")
    assert "trigger-elicitation-request" in plain
    assert not {name for name in plain if name.endswith("-async")}
    assert refused["isError"] is True


@requirement("003-NFR-2")
@transports
async def test_a_task_of_one_connection_is_unknown_to_another(transport: Transport, servers: Servers) -> None:
    with anyio.fail_after(LIMIT_S):
        async with (
            connect(servers.target("python", transport)) as one,
            connect(servers.target("python", transport)) as other,
        ):
            await one.list_tools()
            async for update in one.call_tool_stream("work", {"topic": "bees"}):
                if isinstance(update, TaskCreated):
                    task_id = update.task.task_id
            with pytest.raises(PeerError) as refused:
                await other.get_task(task_id)
    assert refused.value.code == -32602
