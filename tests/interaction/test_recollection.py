"""Questions that do not live on a connection, over a restart of the hub: the same question, the same call."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from emceepee.hub.work import Forwarded, work_of
from emceepee.store import MemoryStore, SqliteStore, Store
from emceepee.testing import (
    FakeClock,
    HubClient,
    RunningHub,
    ScriptedCall,
    ScriptedServer,
    form,
    running_hub,
    settle,
    text_result,
)
from emceepee.wire.memory import MemoryTransport
from emceepee.wire.transport import Channel, Transport
from tests.interaction.gates import Gate, ask_name, echo
from tests.tasks.scripted import TaskServer

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path)


class Modern(ScriptedServer):
    """A modern server that can be away for a while."""

    def __init__(self, tools: Mapping[str, Any], methods: Mapping[str, Any] | None = None) -> None:
        capabilities: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
        super().__init__(tools, modern=True, capabilities=capabilities, methods=methods or {})
        self.is_away = False

    def transport(self) -> Transport:
        async def nobody(_channel: Channel) -> None:
            return

        return MemoryTransport(nobody) if self.is_away else super().transport()

    def sent(self, method: str = "tools/call") -> list[Mapping[str, Any]]:
        return [params for name, params in self.received if name == method]


@asynccontextmanager
async def life(server: ScriptedServer, store: Store, clock: FakeClock) -> AsyncIterator[RunningHub]:
    async with running_hub({"demo": server}, clock=clock, store=store) as running:
        await settle()
        yield running


def back(running: RunningHub, client: HubClient) -> HubClient:
    """The client, come back with its session id."""
    return HubClient(running.hub, running.hub.sessions[client.session.id])


async def open_question(client: HubClient) -> dict[str, Any]:
    (question,) = (await client.call("get_elicitations")).json["elicitations"]
    found: dict[str, Any] = question
    return found


async def answer(client: HubClient, question: Mapping[str, Any], **content: str) -> None:
    arguments = {"request_id": question["request_id"], "action": "accept", "content": content}
    answered = await client.call("respond_to_elicitation", **arguments)
    assert answered.json["success"] is True
    await settle()


async def test_a_call_that_waits_for_an_answer_goes_on_after_a_restart(clock: FakeClock, store: Store) -> None:
    server = Modern({"ask": ask_name})
    async with life(server, store, clock) as running:
        client = await running.client()
        task = (await client.execute("demo", "ask")).task
        before = await open_question(client)
    await clock.advance(60)
    async with life(server, store, clock) as running:
        again = back(running, client)
        assert (await again.call("get_task", task_id=task["task_id"])).json["task"]["status"] == "working"
        assert await open_question(again) == before
        await answer(again, before, name="Ada")
        result = await again.call("get_task_result", task_id=task["task_id"])
        assert result.texts[0] == "hello Ada"
        assert "elicitation_request" not in result.event_types, "it was told already"
        assert len(running.hub.sessions[client.session.id].questions) == 0
    first, retry = server.sent()
    assert "requestState" not in first
    assert (retry["requestState"], retry["inputResponses"]["question"]["content"]) == ("{}", {"name": "Ada"})
    assert retry["arguments"] == first["arguments"]


async def test_it_goes_on_after_a_second_restart_and_a_second_round(clock: FakeClock, store: Store) -> None:
    async def ask_twice(call: ScriptedCall) -> str:
        names = [await call.elicit(form(f"{which}?", name="string"), which) for which in ("first", "second")]
        return " and ".join(name["content"]["name"] for name in names)

    server = Modern({"ask": ask_twice})
    async with life(server, store, clock) as running:
        client = await running.client()
        task = (await client.execute("demo", "ask")).task
    async with life(server, store, clock) as running:
        again = back(running, client)
        await answer(again, await open_question(again), name="Ada")
        second = await open_question(again)
        assert second["message"] == "second?"
    async with life(server, store, clock) as running:
        again = back(running, client)
        assert await open_question(again) == second
        await answer(again, second, name="Bob")
        assert (await again.call("get_task_result", task_id=task["task_id"])).texts[0] == "Ada and Bob"


async def test_answers_from_before_a_restart_go_out_with_those_from_after_it(clock: FakeClock, store: Store) -> None:
    def request(message: str) -> dict[str, Any]:
        return {"method": "elicitation/create", "params": form(message, name="string")}

    async def call(params: Mapping[str, Any]) -> dict[str, Any]:
        if "inputResponses" in params:
            return text_result("done")
        return {"resultType": "input_required", "inputRequests": {"a": request("A?"), "b": request("B?")}}

    server = Modern({"ask": echo}, {"tools/call": call})
    async with life(server, store, clock) as running:
        client = await running.client()
        task = (await client.execute("demo", "ask")).task
        await settle()
        first, second = (await client.call("get_elicitations")).json["elicitations"]
        await answer(client, first, name="Ada")
    async with life(server, store, clock) as running:
        again = back(running, client)
        assert await open_question(again) == second
        await answer(again, second, name="Bob")
        assert (await again.call("get_task_result", task_id=task["task_id"])).texts[0] == "done"
    given = {key: value["content"]["name"] for key, value in server.sent()[-1]["inputResponses"].items()}
    assert given == {"a": "Ada", "b": "Bob"}
    assert "requestState" not in server.sent()[-1]


async def test_an_answer_that_could_not_be_sent_yet_is_sent_by_the_next_hub(clock: FakeClock, store: Store) -> None:
    server = Modern({"ask": ask_name})
    async with life(server, store, clock) as running:
        client = await running.client()
        task = (await client.execute("demo", "ask")).task
        server.is_away = True
        await server.die()
        await answer(client, await open_question(client), name="Ada")
        assert len(server.sent()) == 1
    server.is_away = False
    async with life(server, store, clock) as running:
        again = back(running, client)
        assert (await again.call("get_elicitations")).json == {"elicitations": []}
        assert (await again.call("get_task_result", task_id=task["task_id"])).texts[0] == "hello Ada"
    assert len(server.sent()) == 2


async def test_the_next_hub_sends_it_once_too(clock: FakeClock, store: Store) -> None:
    async def ask_and_work(call: ScriptedCall) -> str:
        await call.elicit(form("Name?", name="string"))
        await anyio.sleep_forever()
        return "unreachable"

    server = Modern({"ask": ask_and_work})
    async with life(server, store, clock) as running:
        client = await running.client()
        task = (await client.execute("demo", "ask")).task
        server.is_away = True
        await server.die()
        await answer(client, await open_question(client), name="Ada")
    server.is_away = False
    async with life(server, store, clock):
        while len(server.sent()) < 2:
            await settle()
    async with life(server, store, clock) as running:
        again = back(running, client)
        assert (await again.call("get_task_result", task_id=task["task_id"])).error_code == "TASK_FAILED"
    assert len(server.sent()) == 2


async def test_it_is_answered_while_the_server_is_away(clock: FakeClock, store: Store) -> None:
    server = Modern({"ask": ask_name})
    async with life(server, store, clock) as running:
        client = await running.client()
        task = (await client.execute("demo", "ask")).task
    server.is_away = True
    async with life(server, store, clock) as running:
        again = back(running, client)
        await answer(again, await open_question(again), name="Ada")
        server.is_away = False
        await clock.advance(2)
        assert (await again.call("get_task_result", task_id=task["task_id"])).texts[0] == "hello Ada"


async def test_answers_that_were_sent_are_not_sent_again(clock: FakeClock, tmp_path: Path) -> None:
    """And nobody could: what the call needs is out of the file before the answers are out."""
    kept: list[list[str]] = []

    async def ask_and_work(call: ScriptedCall) -> str:
        await call.elicit(form("Name?", name="string"))
        connection = sqlite3.connect(tmp_path / "emceepee.sqlite3")
        kept.append([kind for (kind,) in connection.execute("SELECT kind FROM records ORDER BY kind")])
        connection.close()
        await anyio.sleep_forever()
        return "unreachable"

    server, store = Modern({"ask": ask_and_work}), SqliteStore(tmp_path)
    async with life(server, store, clock) as running:
        client = await running.client()
        task = (await client.execute("demo", "ask")).task
        await answer(client, await open_question(client), name="Ada")
        while not kept:
            await settle()
    assert "task" in kept[0]
    assert not {"waiting_call", "question"} & set(kept[0])
    async with life(server, SqliteStore(tmp_path), clock) as running:
        failed = await back(running, client).call("get_task_result", task_id=task["task_id"])
        assert failed.error_code == "TASK_FAILED"
        assert "the hub restarted" in failed.texts[0]
    assert len(server.sent()) == 2


READS: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("read_resource", {"uri": "demo://it"}, "resources/read", {"contents": []}),
    ("get_prompt", {"name": "plan", "arguments": {"day": "Monday"}}, "prompts/get", {"messages": []}),
]


@pytest.mark.parametrize("read", READS, ids=["resource", "prompt"])
async def test_reads_and_prompts_that_ask_go_on_as_well(
    clock: FakeClock, store: Store, read: tuple[str, dict[str, Any], str, dict[str, Any]]
) -> None:
    tool, arguments, method, result = read

    async def ask(params: Mapping[str, Any]) -> dict[str, Any]:
        if "inputResponses" in params:
            return result
        requests = {"q": {"method": "elicitation/create", "params": form("Sure?", name="string")}}
        return {"resultType": "input_required", "inputRequests": requests, "requestState": "s"}

    server = Modern({}, {method: ask})
    async with life(server, store, clock) as running:
        client = await running.client()
        task = (await client.call(tool, server="demo", **arguments)).task
    async with life(server, store, clock) as running:
        again = back(running, client)
        await answer(again, await open_question(again), name="yes")
        assert (await again.call("get_task_result", task_id=task["task_id"])).json == result
    first, retry = server.sent(method)
    assert {key: retry[key] for key in arguments} == {key: first[key] for key in arguments} == arguments
    assert retry["requestState"] == "s"


async def test_a_question_whose_time_is_up_when_the_hub_comes_back_has_expired(clock: FakeClock, store: Store) -> None:
    server = Modern({"ask": ask_name})
    async with life(server, store, clock) as running:
        client = await running.client()
        task = (await client.execute("demo", "ask")).task
    await clock.advance(601)
    async with life(server, store, clock) as running:
        again = back(running, client)
        await clock.advance(0.1)
        failed = await again.call("get_task_result", task_id=task["task_id"])
        assert failed.error_code == "TASK_FAILED"
        assert failed.event_types.count("elicitation_expired") == 1
        assert (await again.call("get_elicitations")).json == {"elicitations": []}


async def test_a_question_has_what_is_left_of_its_time(clock: FakeClock, store: Store) -> None:
    server = Modern({"ask": ask_name})
    async with life(server, store, clock) as running:
        client = await running.client()
        await client.execute("demo", "ask")
        await clock.advance(300)
    async with life(server, store, clock) as running:
        again = back(running, client)
        await clock.advance(299)
        assert (await open_question(again))["message"] == "Name?"
        await clock.advance(2)
        assert (await again.call("get_elicitations")).json == {"elicitations": []}


async def test_the_ttl_of_a_task_stands_still_over_a_restart_while_its_question_is_open(
    clock: FakeClock, store: Store
) -> None:
    async def ask_and_work(call: ScriptedCall) -> str:
        await call.elicit(form("Name?", name="string"))
        await anyio.sleep_forever()
        return "unreachable"

    server = Modern({"ask": ask_and_work})
    async with life(server, store, clock) as running:
        client = await running.client()
        task = (await client.execute("demo", "ask", task_ttl_ms=60_000)).task
        await clock.advance(200)
    await clock.advance(100)
    async with life(server, store, clock) as running:
        again = back(running, client)
        await answer(again, await open_question(again), name="Ada")
        await clock.advance(59)
        assert again.session.state.tasks.get(task["task_id"]).status == "working"
        await clock.advance(2)
        assert again.session.state.tasks.get(task["task_id"]).status == "expired"


async def test_questions_of_a_server_that_is_gone_are_told_as_lost(clock: FakeClock, store: Store) -> None:
    server = Modern({"ask": ask_name})
    async with life(server, store, clock) as running:
        client = await running.client()
        task = (await client.execute("demo", "ask")).task
        question = await open_question(client)
    async with running_hub({}, clock=clock, store=store) as running:
        again = back(running, client)
        failed = await again.call("get_task_result", task_id=task["task_id"])
        assert failed.error_code == "TASK_FAILED"
        assert "there is no server 'demo' any more" in failed.texts[0]
        (expired,) = [event for event in failed.events if event["type"] == "elicitation_expired"]
        assert expired["data"] == {"request_id": question["request_id"], "reason": "the hub restarted"}
    async with running_hub({}, clock=clock, store=store) as running:
        assert back(running, client).session.state.questions.pending() == []


async def test_a_task_of_the_extension_asks_the_same_question_after_a_restart(clock: FakeClock, store: Store) -> None:
    peer = TaskServer(modern=True)
    peer.ask(name=form("Name?", name="string"))
    async with life(peer.scripted, store, clock) as running:
        client = await running.client()
        task = (await client.execute("demo", "job")).task
        before = await open_question(client)
    assert peer.answers == [], "the end of the hub is no answer"
    async with life(peer.scripted, store, clock) as running:
        again = back(running, client)
        await clock.advance(5)
        assert await open_question(again) == before
        await answer(again, before, name="Ada")
        peer.finish("hello")
        await clock.advance(2)
        assert (await again.call("get_task_result", task_id=task["task_id"])).texts[0] == "hello"
    assert peer.answers == [{"name": {"action": "accept", "content": {"name": "Ada"}}}]


async def test_an_answer_to_a_task_is_delivered_by_the_next_hub_and_nothing_is_asked_twice(
    clock: FakeClock, store: Store
) -> None:
    is_away = True

    async def update(params: Mapping[str, Any]) -> dict[str, Any]:
        if is_away:
            await anyio.sleep_forever()
        return await peer._update(params)

    peer = TaskServer(modern=True, methods={"tasks/update": update})
    peer.ask(name=form("Name?", name="string"))
    async with life(peer.scripted, store, clock) as running:
        client = await running.client()
        await client.execute("demo", "job")
        await answer(client, await open_question(client), name="Ada")
    is_away = False
    for _ in range(2):
        async with life(peer.scripted, store, clock) as running:
            again = back(running, client)
            await clock.advance(5)
            assert (await again.call("get_elicitations")).json == {"elicitations": []}
            assert peer.answers == [{"name": {"action": "accept", "content": {"name": "Ada"}}}]


async def test_nothing_is_left_of_a_call_that_asked_when_it_has_ended(clock: FakeClock) -> None:
    store, server = MemoryStore(), Modern({"ask": ask_name})

    def kinds() -> list[str]:
        return sorted(key.kind for key in store._records if key.kind != "event")

    async with life(server, store, clock) as running:
        client = await running.client()
        task = (await client.execute("demo", "ask")).task
        assert kinds() == ["question", "session", "task", "waiting_call"]
        await client.call("cancel_task", task_id=task["task_id"])
        assert kinds() == ["session", "task"]
        await client.execute("demo", "ask")
        await answer(client, await open_question(client), name="Ada")
        assert kinds() == ["session", "task", "task"]
        await client.execute("demo", "ask")
        client.session.close()
        await client.session.closed.wait()
        assert store._records == {}


async def test_the_end_of_a_question_that_blocked_its_server_is_told_after_a_restart(clock: FakeClock) -> None:
    slow = Gate()
    store, server = MemoryStore(), ScriptedServer({"ask": ask_name, "slow": slow})
    async with life(server, store, clock) as running:
        client = await running.client()
        await client.call("list_tools")
        # Among several calls it has no task that could tell of its end.
        for tool in ("slow", "ask"):
            await client.execute("demo", tool, timeout_ms=0)
        await settle()
        question = await open_question(client)
        assert question["task_id"] is None
    async with life(server, store, clock) as running:
        again = back(running, client)
        listed = await again.call("get_elicitations")
        assert listed.json == {"elicitations": []}
        ends = [event for event in listed.events if event["type"] == "elicitation_expired"]
        assert [event["data"] for event in ends] == [
            {"request_id": question["request_id"], "reason": "the hub restarted"}
        ]
        assert "question" not in {key.kind for key in store._records}


def test_a_request_that_a_client_had_forwarded_is_the_clients_own_after_a_restart() -> None:
    work = work_of("prompts/get", "prompts/get", {"name": "greet"}, is_forwarded=True)
    assert work == Forwarded("prompts/get", {"name": "greet"})
    assert work_of("tools/call", "add", {"a": 1}, is_forwarded=True) == Forwarded(
        "tools/call", {"name": "add", "arguments": {"a": 1}}
    )
