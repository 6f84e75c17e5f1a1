"""One server that floods, hangs or keeps dying costs the others of its session, and other sessions, nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from emceepee.core.deadlines import DeadlineQueue
from emceepee.core.events import Event
from emceepee.core.timers import Timer
from emceepee.hub.journal import StoreJournal
from emceepee.hub.late_events import LATE_SECONDS, URGENT_NOTIFICATIONS
from emceepee.hub.origin import Origin
from emceepee.store import Key, MemoryStore
from emceepee.testing import Answer, FakeClock, ScriptedServer, running_hub, settle
from tests.interaction.gates import Gate, ask_name, echo

pytestmark = pytest.mark.anyio

FLOOD = 3_000
"""Three times what an event log holds."""


async def flood(server: ScriptedServer, count: int = FLOOD, method: str = "notifications/tick") -> None:
    for n in range(count):
        await server.notify(method, {"n": n})
    await settle()


def told(answer: Answer, server: str) -> list[Mapping[str, Any]]:
    return [event for event in answer.events if event["server"] == server]


async def test_a_flood_costs_no_other_server_an_event(clock: FakeClock) -> None:
    gate = Gate()
    good = ScriptedServer({"work": gate, "ask": ask_name})
    bad = ScriptedServer()
    async with running_hub({"good": good, "bad": bad}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        await client.execute("good", "work", timeout_ms=0)
        await flood(bad)
        gate.opened.set()
        await settle()
        await good.notify("notifications/good", {"n": 1})
        await flood(bad)

        answer = await client.call("list_servers")
        assert [(event["type"], event["data"].get("method")) for event in told(answer, "good")] == [
            ("task_completed", None),
            ("notification", "notifications/good"),
        ]
        flooded = [event["data"]["params"]["n"] for event in told(answer, "bad")]
        assert flooded == list(range(FLOOD - len(flooded), FLOOD)), "the newest are kept"
        assert len(flooded) + answer.part("events_lost") == 2 * FLOOD


async def test_a_question_is_told_in_the_midst_of_a_flood(clock: FakeClock) -> None:
    bad = ScriptedServer()
    async with running_hub({"good": ScriptedServer({"ask": ask_name}), "bad": bad}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        asked = await client.execute("good", "ask")
        assert asked.event_types == ["task_created", "elicitation_request"]
        await flood(bad)
        question = (await client.call("get_elicitations")).json["elicitations"][0]
        await flood(bad)
        answer = await client.call(
            "respond_to_elicitation", request_id=question["request_id"], action="accept", content={"name": "Ada"}
        )
        assert not answer.is_error
        result = await client.call("get_task_result", task_id=asked.task["task_id"])
        assert result.texts[0] == "hello Ada"


async def test_another_session_hears_nothing_of_a_flood(clock: FakeClock) -> None:
    server = ScriptedServer({"echo": echo})
    async with running_hub({"demo": server}, clock=clock) as running:
        ours, theirs = await running.client(), await running.client()
        await ours.call("list_tools")
        (channel, peer), *_ = server._channels
        for n in range(FLOOD):
            await peer.notify("notifications/tick", {"n": n})
        await settle()
        await theirs.call("list_tools")
        answer = await theirs.execute("demo", "echo", {"text": "mine"})
        assert answer.texts == ["mine"]
        assert channel.state.lost_reason is None


async def test_a_server_that_says_all_the_time_that_its_tools_changed_is_asked_one_question_at_a_time(
    clock: FakeClock,
) -> None:
    server = ScriptedServer({"echo": echo})
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        gate, asked = anyio.Event(), list[str]()

        async def list_tools(_params: Mapping[str, Any]) -> dict[str, Any]:
            asked.append("tools/list")
            await gate.wait()
            return {"tools": [{"name": "new", "inputSchema": {"type": "object"}}]}

        server.methods = {"tools/list": list_tools}
        await flood(server, 500, "notifications/tools/list_changed")
        assert len(asked) == 1
        gate.set()
        await settle()
        assert len(asked) == 2, "once more, for it had changed meanwhile"
        assert list(client.session.links["demo"].tools) == ["new"]


async def test_the_same_signal_again_and_again_is_one_event(clock: FakeClock) -> None:
    server = ScriptedServer()
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        for _ in range(100):
            await server.notify("notifications/resources/updated", {"uri": "demo://menu"})
        await settle()
        answer = await client.call("list_servers")
        assert [event["data"]["params"] for event in answer.events] == [{"uri": "demo://menu"}]
        assert len((await client.call("get_notifications")).json["notifications"]) == 100


async def test_a_server_that_hangs_holds_up_nobody_else(clock: FakeClock) -> None:
    hung = Gate()
    servers = {"good": ScriptedServer({"echo": echo}), "bad": ScriptedServer({"hang": hung})}
    async with running_hub(servers, clock=clock) as running:
        client, other = await running.client(), await running.client()
        for _ in range(20):
            await client.execute("bad", "hang", timeout_ms=0)
        for each in (client, other):
            assert (await each.execute("good", "echo", {"text": "here"})).texts[0] == "here"


# What is written


class SlowStore(MemoryStore):
    """Writes nothing until the gate is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = anyio.Event()
        self.gate.set()

    @property
    def is_settled(self) -> bool:
        return False

    async def sync(self) -> None:
        await self.gate.wait()

    @asynccontextmanager
    async def stuck(self) -> AsyncIterator[None]:
        self.gate = anyio.Event()
        yield
        self.gate.set()


async def test_a_response_waits_for_no_other_sessions_writes(clock: FakeClock) -> None:
    store = SlowStore()
    async with running_hub({"demo": ScriptedServer({"echo": echo})}, clock=clock, store=store) as running:
        ours, theirs = await running.client(), await running.client()
        await ours.call("list_tools")
        await theirs.call("list_tools")
        async with store.stuck():
            theirs.session.state.events.append("server_added", "x", {})
            with anyio.fail_after(30):
                assert (await ours.execute("demo", "echo", {"text": "at once"})).texts == ["at once"]


async def test_a_response_waits_for_what_its_own_session_owes(clock: FakeClock) -> None:
    store = SlowStore()
    async with running_hub({"demo": ScriptedServer({"echo": echo})}, clock=clock, store=store) as running:
        client = await running.client()
        await client.call("list_tools")
        answers: list[Answer] = []

        async def call() -> None:
            answers.append(await client.execute("demo", "echo", {"text": "later"}))

        async with anyio.create_task_group() as tasks, store.stuck():
            client.session.state.events.append("notification", "demo", {"method": "x", "params": {}})
            tasks.start_soon(call)
            await settle()
            assert answers == []
        assert answers[0].event_types == ["notification"]


async def test_a_response_does_not_wait_for_the_notifications_of_a_flooding_server(clock: FakeClock) -> None:
    store = SlowStore()
    server = ScriptedServer({"echo": echo})
    async with running_hub({"demo": server}, clock=clock, store=store) as running:
        client = await running.client()
        await client.call("list_tools")
        await flood(server, URGENT_NOTIFICATIONS)
        await client.call("list_servers")
        async with store.stuck():
            await flood(server, 10)
            with anyio.fail_after(30):
                answer = await client.execute("demo", "echo", {"text": "at once"})
            assert len(answer.events) == 10


def journal_of(store: MemoryStore, clock: FakeClock) -> tuple[StoreJournal, DeadlineQueue[Timer]]:
    deadlines: DeadlineQueue[Timer] = DeadlineQueue()
    journal = StoreJournal(store, "session", Origin(), clock, deadlines)
    for n in range(URGENT_NOTIFICATIONS):
        journal.save_event(note(f"0{n:04}"))
        journal.forget_event(f"0{n:04}")
    return journal, deadlines


def note(event_id: str) -> Event:
    return Event(event_id, 1.0, "notification", "bad", {"method": "x", "params": {}})


async def written(store: MemoryStore) -> list[str]:
    return [key.id for key in await store.load()]


async def test_a_flooding_servers_notification_is_written_once_it_has_been_there_for_a_while(clock: FakeClock) -> None:
    store = MemoryStore()
    journal, deadlines = journal_of(store, clock)
    journal.save_event(note("1"))
    journal.save_event(note("2"))
    assert await written(store) == []
    assert deadlines.next_deadline() == clock.monotonic() + LATE_SECONDS
    journal.write_late()
    journal.save_event(note("3"))
    journal.forget_event("1")
    assert await written(store) == []
    journal.write_late()
    assert await written(store) == ["2"]
    assert (await store.load())[Key("event", "session", "2")]["data"] == {"method": "x", "params": {}}
    journal.stop()
    assert await written(store) == ["2", "3"]


async def test_what_was_evicted_is_not_written_late(clock: FakeClock) -> None:
    store = MemoryStore()
    journal, _ = journal_of(store, clock)
    for event_id in ("1", "2", "3"):
        journal.save_event(note(event_id))
    journal.forget_events("2")
    journal.stop()
    assert await written(store) == ["3"]


async def test_nothing_of_a_session_that_was_closed_is_written_late(clock: FakeClock) -> None:
    store = MemoryStore()
    journal, _ = journal_of(store, clock)
    journal.save_event(note("1"))
    journal.erase()
    journal.write_late()
    journal.write_late()
    assert await written(store) == []


async def test_what_a_flooding_server_said_is_told_after_the_hub_was_stopped_and_started(clock: FakeClock) -> None:
    store, server = MemoryStore(), ScriptedServer()
    async with running_hub({"demo": server}, clock=clock, store=store) as running:
        client = await running.client()
        await client.call("list_tools")
        await flood(server, URGENT_NOTIFICATIONS + 50)
        session_id = client.session.id
    async with running_hub({"demo": server}, clock=clock, store=store) as running:
        events = running.hub.sessions[session_id].state.events.read_new().events
        assert len([event for event in events if event.type == "notification"]) == URGENT_NOTIFICATIONS + 50
