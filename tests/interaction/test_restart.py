"""What a restarted hub still knows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from emceepee.config import HubSettings
from emceepee.core.state import SessionLimits
from emceepee.errors import PeerError
from emceepee.hub import LOCAL, Hub
from emceepee.store import Key, MemoryStore, SqliteStore, Store
from emceepee.testing import FakeClock, HubClient, RunningHub, ScriptedServer, running_hub, settle
from emceepee.wire.transport import HTTP_STATUS, TRANSPORT_FAILURE
from tests.interaction.gates import Gate, ask_name, echo
from tests.interaction.test_links import TaskServer
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path)


@asynccontextmanager
async def restarted(
    server: ScriptedServer, store: Store, clock: FakeClock, session_id: str
) -> AsyncIterator[tuple[RunningHub, HubClient]]:
    """The hub after a restart, and the client that comes back with its session id."""
    async with running_hub({"demo": server}, clock=clock, store=store) as running:
        await settle()
        yield running, HubClient(running.hub, running.hub.sessions[session_id])


@requirement("T000-persistence")
async def test_a_finished_result_and_its_undelivered_event_are_there_after_a_restart(
    clock: FakeClock, store: Store
) -> None:
    gate, server = Gate(), ScriptedServer()
    server.tools = {"slow": gate}
    async with running_hub({"demo": server}, clock=clock, store=store) as running:
        client = await running.client()
        await client.call("list_tools")
        task = (await client.execute("demo", "slow", timeout_ms=0)).task
        gate.opened.set()
        await settle()
    async with restarted(server, store, clock, client.session.id) as (_, again):
        result = await again.call("get_task_result", task_id=task["task_id"])
        assert result.texts[0] == "done"
        assert "task_completed" in result.event_types


async def test_a_delivered_event_is_not_told_again(clock: FakeClock, store: Store) -> None:
    server = ScriptedServer({"echo": echo})
    async with running_hub({"demo": server}, clock=clock, store=store) as running:
        client = await running.client()
        await client.call("list_tools")
        told = (await client.call("list_servers")).events
    async with restarted(server, store, clock, client.session.id) as (_, again):
        assert (await again.call("list_servers")).events == []
        events = (await again.call("list_tools")).events
        assert [event["type"] for event in events] == ["server_connected"]
        assert events[0]["id"] not in [event["id"] for event in told]


async def test_a_session_whose_client_does_not_come_back_connects_to_nothing(clock: FakeClock, store: Store) -> None:
    server = ScriptedServer({"echo": echo})
    async with running_hub({"demo": server}, clock=clock, store=store) as running:
        client = await running.client()
        await client.call("list_tools")
    before = server.received_methods().count("initialize")
    async with restarted(server, store, clock, client.session.id):
        assert server.received_methods().count("initialize") == before


async def test_programs_that_clients_added_come_back_only_where_programs_are_allowed(
    clock: FakeClock, store: Store
) -> None:
    async with running_hub({}, clock=clock, store=store) as running:
        client = await running.client()
        client.may_spawn = True
        await client.call("add_server", name="program", command="false", timeout_ms=0)
    for allowed in (False, True):
        hub = Hub(clock=clock, store=store, restore_programs=allowed)
        async with anyio.create_task_group() as tasks:
            await tasks.start(hub.run)
            assert ("program" in hub.registry.of(LOCAL)) is allowed
            hub.close()


async def test_a_promoted_call_in_flight_has_failed_and_says_why(clock: FakeClock, store: Store) -> None:
    server = ScriptedServer({"slow": Gate()})
    async with running_hub({"demo": server}, clock=clock, store=store) as running:
        client = await running.client()
        task = (await client.execute("demo", "slow", timeout_ms=0)).task
    async with restarted(server, store, clock, client.session.id) as (_, again):
        failed = await again.call("get_task_result", task_id=task["task_id"])
        assert failed.error_code == "TASK_FAILED"
        assert "the hub restarted" in failed.texts[0]
        assert failed.event_types.count("task_failed") == 1


async def test_a_native_task_in_flight_is_taken_up_again(clock: FakeClock, store: Store) -> None:
    server = TaskServer()
    async with running_hub({"demo": server}, clock=clock, store=store) as running:
        client = await running.client()
        await client.call("list_tools")
        task = (await client.execute("demo", "job", timeout_ms=0)).task
        await settle()
    async with restarted(server, store, clock, client.session.id) as (_, again):
        assert (await again.call("get_task", task_id=task["task_id"])).json["task"]["status"] == "working"
        server.finished.set()
        assert (await again.call("get_task_result", task_id=task["task_id"])).texts[0] == "native"


@pytest.mark.parametrize("trouble", [{TRANSPORT_FAILURE: True}, {HTTP_STATUS: 503}], ids=["cut off", "refused"])
async def test_a_task_that_cannot_be_asked_about_is_asked_about_with_patience(
    clock: FakeClock, trouble: dict[str, Any]
) -> None:
    server, store = TaskServer(), MemoryStore()
    get = server.methods["tasks/get"]
    polls = 0

    async def in_vain(_params: Mapping[str, Any]) -> dict[str, Any]:
        nonlocal polls
        polls += 1
        raise PeerError(-32000, "not now", trouble)

    with anyio.fail_after(60):
        async with running_hub({"demo": server}, clock=clock, store=store) as running:
            client = await running.client()
            await client.call("list_tools")
            task = (await client.execute("demo", "job", timeout_ms=0)).task
            await settle()
        server.methods = {**server.methods, "tasks/get": in_vain}
        async with restarted(server, store, clock, client.session.id) as (_, again):
            await clock.advance(20)
            assert 3 <= polls <= 6
            assert (await again.call("get_task", task_id=task["task_id"])).json["task"]["status"] == "working"
            server.methods = {**server.methods, "tasks/get": get}
            server.finished.set()
            await clock.advance(30)
            assert (await again.call("get_task_result", task_id=task["task_id"])).texts[0] == "native"


async def test_servers_that_clients_added_come_back(clock: FakeClock, store: Store) -> None:
    extra = {"extra": ScriptedServer({"echo": echo})}
    async with running_hub({}, servers=extra, clock=clock, store=store) as running:
        client = await running.client()
        await client.call("add_server", name="extra", url="http://extra.invalid/mcp", headers={"x": "y"})
    async with running_hub({}, servers=extra, clock=clock, store=store) as running:
        client = await running.client()
        assert (await client.execute("extra", "echo", {"text": "still here"})).texts[0] == "still here"
        assert running.hub.registry.of(LOCAL).get("extra").headers == {"x": "y"}
        await client.call("remove_server", name="extra")
    async with running_hub({}, servers=extra, clock=clock, store=store) as running:
        assert len(running.hub.registry) == 0


async def test_a_stored_server_that_would_be_refused_today_is_left_out_with_a_word(
    clock: FakeClock, store: Store
) -> None:
    async with store.opened():
        for name in ("good", "bad name/x"):
            store.put(Key("server", "", name), {"name": name, "url": "http://extra.invalid/mcp"})
        await store.sync()
    with capture_logs() as logged:
        async with running_hub({}, clock=clock, store=store) as running:
            assert [config.name for config in running.hub.registry.all()] == ["good"]
    assert [entry["server"] for entry in logged if entry["event"] == "server_not_restored"] == ["bad name/x"]


async def test_a_session_that_was_closed_leaves_nothing_behind(clock: FakeClock, store: Store) -> None:
    server = ScriptedServer({"slow": Gate()})
    async with running_hub({"demo": server}, clock=clock, store=store) as running:
        client = await running.client()
        await client.execute("demo", "slow", timeout_ms=0)
        client.session.close()
        await client.session.closed.wait()
    async with running_hub({"demo": server}, clock=clock, store=store) as running:
        assert running.hub.sessions == {}
    async with store.opened():
        assert await store.load() == {}


async def test_a_fast_call_writes_nothing(clock: FakeClock) -> None:
    class Counting(MemoryStore):
        puts = 0

        def put(self, key: object, value: object) -> None:
            self.puts += 1
            super().put(key, value)  # type: ignore[arg-type]

    counting = Counting()
    async with running_hub({"demo": ScriptedServer({"echo": echo})}, clock=clock, store=counting) as running:
        client = await running.client()
        await client.call("list_tools")
        before = counting.puts
        for n in range(10):
            await client.execute("demo", "echo", {"text": str(n)})
        assert counting.puts == before


async def test_an_open_question_of_a_blocking_server_is_reported_lost_with_its_task(
    clock: FakeClock, store: Store
) -> None:
    server = ScriptedServer({"ask": ask_name})
    async with running_hub({"demo": server}, clock=clock, store=store) as running:
        client = await running.client()
        task = (await client.execute("demo", "ask")).task
    async with restarted(server, store, clock, client.session.id) as (_, again):
        assert (await again.call("get_elicitations")).json == {"elicitations": []}
        assert (await again.call("get_task_result", task_id=task["task_id"])).error_code == "TASK_FAILED"


async def test_time_goes_on_while_the_hub_is_down(clock: FakeClock, store: Store) -> None:
    gate, server = Gate(), ScriptedServer()
    server.tools = {"slow": gate}
    async with running_hub({"demo": server}, clock=clock, store=store) as running:
        client = await running.client()
        task = (await client.execute("demo", "slow", timeout_ms=0)).task
        gate.opened.set()
        await settle()
    await clock.advance(301)
    async with restarted(server, store, clock, client.session.id) as (_, again):
        assert (await again.call("get_task", task_id=task["task_id"])).error_code == "TASK_NOT_FOUND"


async def test_events_that_were_lost_before_a_restart_are_counted_after_it(clock: FakeClock, store: Store) -> None:
    server = ScriptedServer({"echo": echo})
    settings = HubSettings(limits=SessionLimits(max_events=20))
    async with running_hub({"demo": server}, clock=clock, store=store, settings=settings) as running:
        client = await running.client()
        await client.call("list_tools")
        await client.call("list_tools")
        for _ in range(30):
            await server.notify("notifications/test")
            await settle()
    async with restarted(server, store, clock, client.session.id) as (_, again):
        told = await again.call("list_servers")
        assert len(told.events) + told.part("events_lost") == 30
        assert told.part("events_lost") > 0
        await settle()
    async with restarted(server, store, clock, client.session.id) as (_, again):
        assert (await again.call("list_servers")).part("events_lost") is None


async def test_a_session_whose_client_never_came_ends_however_often_the_hub_is_restarted(
    clock: FakeClock, store: Store
) -> None:
    async with running_hub({}, clock=clock, store=store) as running:
        ghost = await running.client()
        used = await running.client()
    for _ in range(4):
        await clock.advance(600)
        async with running_hub({}, clock=clock, store=store) as running:
            await settle()
            with running.hub.sessions[used.session.id].in_use():
                pass
            # Longer than a client gets to come back after a restart.
            await clock.advance(61)
            known = set(running.hub.sessions)
    assert known == {used.session.id}
    async with store.opened():
        assert {key.owner for key in await store.load()} == {used.session.id}
    assert ghost.session.id not in known


async def test_a_session_that_a_task_lives_in_is_there_after_a_long_night(clock: FakeClock, store: Store) -> None:
    server = TaskServer()
    async with running_hub({"demo": server}, clock=clock, store=store) as running:
        client = await running.client()
        await client.call("list_tools")
        task = (await client.execute("demo", "job", timeout_ms=0, task_ttl_ms=1_800_000)).task
        await settle()
        await clock.advance(1500)
    await clock.advance(200)
    async with restarted(server, store, clock, client.session.id) as (_, again):
        server.finished.set()
        assert (await again.call("get_task_result", task_id=task["task_id"])).texts[0] == "native"


KINDS = ("session", "server", "secret", "task", "event", "events_lost", "question", "waiting_call", "server_session")


async def test_a_damaged_record_costs_only_itself_and_is_kept(clock: FakeClock, store: Store) -> None:
    gate, server = Gate(), ScriptedServer()
    server.tools = {"slow": gate}
    async with running_hub({"demo": server}, clock=clock, store=store) as running:
        client = await running.client()
        task = (await client.execute("demo", "slow", timeout_ms=0)).task
        gate.opened.set()
        await settle()
    session_id = client.session.id
    damaged: dict[Key, dict[str, str]] = {
        Key(kind, "gone" if kind == "session" else session_id, "damaged"): {} for kind in KINDS
    }
    damaged[Key("secret", "", "damaged")] = {"value": "no key"}
    async with store.opened():
        for key, value in damaged.items():
            store.put(key, value)
    async with restarted(server, store, clock, session_id) as (running, again):
        assert (await again.call("get_task_result", task_id=task["task_id"])).texts[0] == "done"
        assert set(running.hub.sessions) == {session_id}
        assert len(running.hub.secret("damaged")) == 32
    async with store.opened():
        left = await store.load()
    del damaged[Key("secret", "", "damaged")]
    assert damaged.items() <= left.items()


async def test_a_session_that_cannot_be_restored_costs_no_other(clock: FakeClock, store: Store) -> None:
    server = ScriptedServer({"echo": echo})
    async with running_hub({"demo": server}, clock=clock, store=store) as running:
        client = await running.client()
        task = (await client.execute("demo", "echo", {"text": "x"}, timeout_ms=0)).task
    record = {"task_id": "t", "status": "working", "expires_at": "soon"}
    async with store.opened():
        found = await store.load()
        store.put(Key("session", "one", "one"), {"last_active_at": "long ago"})
        store.put(Key("session", "two", "two"), {"last_active_at": clock.now()})
        store.put(Key("task", "two", "t"), {**found[Key("task", client.session.id, task["task_id"])], **record})
    async with restarted(server, store, clock, client.session.id) as (running, again):
        assert set(running.hub.sessions) == {client.session.id}
        assert (await again.execute("demo", "echo", {"text": "still here"})).texts[0] == "still here"
    async with store.opened():
        assert {Key("session", "one", "one"), Key("session", "two", "two")} <= set(await store.load())


async def test_a_call_that_cannot_be_taken_up_has_failed_and_the_others_go_on(clock: FakeClock, store: Store) -> None:
    server = TaskServer()
    async with running_hub({"demo": server}, clock=clock, store=store) as running:
        client = await running.client()
        await client.call("list_tools")
        one = (await client.execute("demo", "job", timeout_ms=0)).task["task_id"]
        other = (await client.execute("demo", "job", timeout_ms=0)).task["task_id"]
        await settle()
    async with store.opened():
        store.put(Key("waiting_call", client.session.id, one), {"method": "tools/call", "resumption": {}})
    async with restarted(server, store, clock, client.session.id) as (_, again):
        failed = await again.call("get_task_result", task_id=one)
        assert (failed.error_code, "the hub restarted" in failed.texts[0]) == ("TASK_FAILED", True)
        server.finished.set()
        assert (await again.call("get_task_result", task_id=other)).texts[0] == "native"
