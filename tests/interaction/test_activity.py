"""Events: told exactly once, by whatever response comes first."""

from __future__ import annotations

import anyio
import pytest

from emceepee.config import HubSettings
from emceepee.core.state import SessionLimits
from emceepee.hub import Origin
from emceepee.testing import Answer, FakeClock, HubClient, ScriptedCall, ScriptedServer, running_hub, settle
from emceepee.wire.era import LOG_LEVEL_META_KEY
from tests.interaction.gates import Gate, ask_name, echo
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


def types_of(activity: Answer) -> list[str]:
    return [event["type"] for group in activity.json["events"] for event in group["events"]]


async def quiet_client(client: HubClient) -> HubClient:
    """A client that has heard of its servers' connecting."""
    await client.call("list_tools")
    return client


@requirement("T000-await-immediate", "P000-unit-await-immediate", "P001-int-await")
async def test_what_is_undelivered_comes_back_at_once(clock: FakeClock) -> None:
    async with running_hub({"demo": ScriptedServer({"slow": Gate()})}, clock=clock) as running:
        client = await running.client()
        await settle()
        activity = await client.call("await_activity")
        assert activity.json["triggers"] == [{"type": "immediate"}]
        assert types_of(activity) == ["server_connected"]


@requirement(
    "T000-await-wake",
    "T000-await-triggers",
    "T000-response-await",
    "P000-unit-await-wake",
    "P000-int-await-task",
    "P000-manual-responsive",
    "P001-int-await",
)
async def test_an_event_wakes_the_wait_and_says_what_it_was(clock: FakeClock) -> None:
    gate = Gate()
    async with running_hub({"demo": ScriptedServer({"slow": gate})}, clock=clock) as running:
        client = await quiet_client(await running.client())
        task = (await client.execute("demo", "slow", timeout_ms=0)).task
        answers: list[Answer] = []

        async def wait() -> None:
            answers.append(await client.call("await_activity"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await settle()
            assert answers == []
            gate.opened.set()
        activity = answers[0].json
        assert activity["triggers"] == [{"type": "event", "server": "demo", "event_type": "task_completed"}]
        assert types_of(answers[0]) == ["task_completed"]
        assert activity["events"][0]["events"][0]["data"] == {"task_id": task["task_id"], "tool": "slow"}
        assert activity["pending_server"] == []
        assert activity["pending_client"] == {"elicitations": [], "sampling_requests": []}
        assert activity["last_event_id"] == activity["events"][0]["events"][0]["id"]


@requirement("T000-await-timeout", "T000-await-empty", "T000-await-pending-server", "P000-int-await-timeout")
async def test_nothing_new_is_a_timeout_with_empty_lists_and_what_is_pending(clock: FakeClock) -> None:
    async with running_hub({"demo": ScriptedServer({"slow": Gate()})}, clock=clock) as running:
        client = await quiet_client(await running.client())
        task = (await client.execute("demo", "slow", timeout_ms=0)).task
        answers: list[Answer] = []

        async def wait() -> None:
            answers.append(await client.call("await_activity", timeout_ms=30_000))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await clock.advance(30)
        activity = answers[0].json
        assert (activity["triggers"], activity["events"]) == ([{"type": "timeout"}], [])
        working = [{"task_id": task["task_id"], "tool": "slow", "status": "working"}]
        assert activity["pending_server"] == [{"server": "demo", "working_tasks": working}]


@requirement("T000-await-concurrent", "P001-race-waiters")
async def test_all_waiters_wake_and_the_first_to_answer_carries_the_event(clock: FakeClock) -> None:
    gate = Gate()
    async with running_hub({"demo": ScriptedServer({"slow": gate})}, clock=clock) as running:
        client = await quiet_client(await running.client())
        await client.execute("demo", "slow", timeout_ms=0)
        answers: list[Answer] = []

        async def wait() -> None:
            answers.append(await client.call("await_activity"))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(wait)
            await settle()
            assert client.session.state.events.waiters == 3
            gate.opened.set()
        trigger = [{"type": "event", "server": "demo", "event_type": "task_completed"}]
        assert [answer.json["triggers"] for answer in answers] == [trigger] * 3
        assert [types_of(answer) for answer in answers] == [["task_completed"], [], []]
        assert client.session.state.events.waiters == 0


@requirement("T000-await-disconnect")
async def test_a_lost_server_is_a_trigger_of_its_own(clock: FakeClock) -> None:
    server = ScriptedServer()
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await quiet_client(await running.client())
        answers: list[Answer] = []

        async def wait() -> None:
            answers.append(await client.call("await_activity"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await settle()
            await server.die()
        assert answers[0].json["triggers"][0] == {"type": "server_disconnected", "server": "demo"}


@requirement("T001-await-cursor", "T001-await-unknown-cursor")
async def test_a_cursor_tells_everything_after_it_again(clock: FakeClock) -> None:
    async with running_hub({"demo": ScriptedServer({"slow": Gate()})}, clock=clock) as running:
        client = await running.client()
        await settle()
        first = await client.call("await_activity")
        await client.execute("demo", "slow", timeout_ms=0)
        again = await client.call("await_activity", last_event_id=first.json["last_event_id"])
        assert (again.json["triggers"], types_of(again)) == ([{"type": "immediate"}], ["task_created"])
        from_unknown = await client.call("await_activity", last_event_id="01NOSUCHEVENT")
        assert types_of(from_unknown) == ["server_connected", "task_created"]
        assert not client.session.state.events.has_news


@requirement("T000-response-pending", "T001-event-once")
async def test_any_response_carries_what_is_new_and_what_waits(clock: FakeClock) -> None:
    async with running_hub({"demo": ScriptedServer({"ask": ask_name})}, clock=clock) as running:
        client = await quiet_client(await running.client())
        answer = await client.execute("demo", "ask")
        question = answer.pending["elicitations"][0]
        for tool in ("list_servers", "list_tasks", "get_elicitations", "get_logs"):
            again = await client.call(tool)
            assert again.events == []
            assert again.pending["elicitations"] == [question]


@requirement("T001-event-errors", "T001-event-any-response")
async def test_an_error_costs_the_client_none_of_its_events(clock: FakeClock) -> None:
    async with running_hub({"demo": ScriptedServer()}, clock=clock) as running:
        client = await running.client()
        await settle()
        failed = await client.call("get_task", task_id="nope")
        assert (failed.error_code, failed.event_types) == ("TASK_NOT_FOUND", ["server_connected"])


@requirement("T001-events-lost")
async def test_evicted_events_are_counted_beside_those_that_are_left(clock: FakeClock) -> None:
    settings = HubSettings(limits=SessionLimits(max_events=10))
    server = ScriptedServer()
    async with running_hub({"demo": server}, clock=clock, settings=settings) as running:
        client = await quiet_client(await running.client())
        for n in range(15):
            await server.notify("notifications/custom", {"n": n})
        await settle()
        activity = await client.call("await_activity")
        told = [event["data"]["params"]["n"] for event in activity.json["events"][0]["events"]]
        assert activity.json["events_lost"] + len(told) == 15
        assert told == list(range(15 - len(told), 15))
        assert "events_lost" not in (await client.call("await_activity", timeout_ms=0)).json


@requirement("T001-events-lost", "P001-race-eviction")
async def test_eviction_under_a_waiting_client_does_not_lose_count(clock: FakeClock) -> None:
    settings = HubSettings(limits=SessionLimits(max_events=10))
    server = ScriptedServer()
    async with running_hub({"demo": server}, clock=clock, settings=settings) as running:
        client = await quiet_client(await running.client())
        answers: list[Answer] = []

        async def wait() -> None:
            answers.append(await client.call("await_activity"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await settle()
            # All of these happen before the waiter, which the first one woke, gets to run.
            for n in range(25):
                client.session.state.events.append("notification", "demo", {"n": n})
        told = [event["data"]["n"] for event in answers[0].json["events"][0]["events"]]
        assert told[-1] == 24
        assert answers[0].json["events_lost"] + len(told) == 25


@requirement("T000-sec-isolation", "T001-event-session", "T001-session-own-links", "P001-int-isolation")
async def test_two_clients_hear_only_of_their_own(clock: FakeClock) -> None:
    gate = Gate()
    async with running_hub({"demo": ScriptedServer({"slow": gate, "echo": echo, "ask": ask_name})}, clock=clock) as hub:
        one, other = await quiet_client(await hub.client()), await quiet_client(await hub.client())
        task = (await one.execute("demo", "slow", timeout_ms=0)).task
        question = (await one.execute("demo", "ask", timeout_ms=0)).task
        await settle()
        assert (await other.call("await_activity", timeout_ms=0)).json["events"] == []
        assert (await other.call("list_tasks")).json == {"tasks": []}
        assert (await other.call("get_elicitations")).json == {"elicitations": []}
        for tool in ("get_task", "get_task_result", "cancel_task"):
            assert (await other.call(tool, task_id=task["task_id"])).error_code == "TASK_NOT_FOUND"
        pending = (await one.call("get_elicitations")).json["elicitations"]
        assert [entry["task_id"] for entry in pending] in ([question["task_id"]], [None])
        stolen = await other.call("respond_to_elicitation", request_id=pending[0]["request_id"], action="decline")
        assert stolen.error_code == "REQUEST_NOT_FOUND"


async def chatty(call: ScriptedCall) -> str:
    """A tool of a modern server, which logs for those who ask for it."""
    if (level := (call.params.get("_meta") or {}).get(LOG_LEVEL_META_KEY)) is not None:
        await call.peer.notify("notifications/message", {"level": level, "data": "psst"})
    return "done"


async def test_a_modern_server_is_asked_for_the_logs_that_get_logs_shows(clock: FakeClock) -> None:
    async with running_hub({"demo": ScriptedServer({"chatty": chatty}, modern=True)}, clock=clock) as running:
        client = await running.client()
        await client.execute("demo", "chatty")
        await settle()
        logs = (await client.call("get_logs")).json["logs"]
        assert [(entry["level"], entry["data"]) for entry in logs] == [("debug", "psst")]


async def test_behind_an_endpoint_the_client_itself_says_whether_it_wants_logs(clock: FakeClock) -> None:
    async with running_hub({"demo": ScriptedServer({"chatty": chatty}, modern=True)}, clock=clock) as running:
        client = HubClient(running.hub, await running.hub.open_session(Origin(endpoint="server/demo")))
        await client.execute("demo", "chatty")
        await settle()
        assert (await client.call("get_logs")).json["logs"] == []
