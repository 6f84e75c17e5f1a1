"""Links come back, and what can be proven alive lives on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from emceepee.errors import PeerError
from emceepee.hub.link import PREPARATION_SECONDS, PROGRAM_RESTARTS
from emceepee.hub.news import ANSWER_SECONDS
from emceepee.testing import FakeClock, HubClient, ScriptedCall, ScriptedServer, form, running_hub, settle, text_result
from tests.interaction.gates import Gate, ask_name, echo
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


def events_of(client: HubClient) -> list[dict[str, Any]]:
    return [event.as_json() for event in client.session.state.events.read_new().events]


class TaskServer(ScriptedServer):
    """A server of 2025-11-25 whose only tool is a task; it remembers its tasks over a lost connection."""

    def __init__(self) -> None:
        self.finished = anyio.Event()
        self.knows_task = True
        task = {"taskId": "server-1", "createdAt": "x", "lastUpdatedAt": "x", "ttl": None, "pollInterval": 1000}

        async def call(params: Mapping[str, Any]) -> dict[str, Any]:
            assert "task" in params
            return {"task": {**task, "status": "working"}}

        async def get(_params: Mapping[str, Any]) -> dict[str, Any]:
            if not self.knows_task:
                raise PeerError(-32602, "Task not found")
            return {**task, "status": "completed" if self.finished.is_set() else "working"}

        async def result(_params: Mapping[str, Any]) -> dict[str, Any]:
            await self.finished.wait()
            return {**text_result("native"), "_meta": {"io.modelcontextprotocol/related-task": {"taskId": "server-1"}}}

        super().__init__(
            tools={"job": echo},
            definitions={"job": {"execution": {"taskSupport": "required"}}},
            capabilities={"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}},
            methods={"tools/call": call, "tasks/get": get, "tasks/result": result},
        )


@requirement("T001-reconnect", "T001-reconnect-told")
async def test_a_lost_server_is_connected_again_after_a_second(clock: FakeClock) -> None:
    server = ScriptedServer({"echo": echo})
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        await server.die()
        await settle()
        assert [event["type"] for event in events_of(client)] == ["server_disconnected", "server_reconnecting"]
        assert client.session.link("demo").status == "reconnecting"
        await clock.advance(1.2)
        (event,) = events_of(client)
        assert event["type"] == "server_reconnected"
        assert event["data"] == {
            "name": "demo",
            "kind": "network_blip",
            "refreshed": {"tools": 1},
            "changed": [],
            "tasks_kept": 0,
            "tasks_lost": 0,
            "questions_kept": 0,
        }


async def test_a_request_does_not_wait_for_the_next_try(clock: FakeClock) -> None:
    server = ScriptedServer({"echo": echo})
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        await server.die()
        await settle()
        assert (await client.execute("demo", "echo", {"text": "at once"})).texts[0] == "at once"


@requirement("T001-list-changed")
async def test_a_list_that_changed_over_a_reconnect_is_told(clock: FakeClock) -> None:
    server = ScriptedServer({"echo": echo})
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        server.tools = {"fresh": echo}
        await server.die()
        await settle()
        events_of(client)
        await clock.advance(1.2)
        reconnected, changed = events_of(client)
        assert reconnected["data"]["changed"] == ["tools"]
        assert changed["data"] == {"method": "notifications/tools/list_changed", "params": {}}


async def test_a_server_that_cannot_be_reached_is_tried_again_and_again(clock: FakeClock) -> None:
    tries = 0

    async def refuse(_params: Mapping[str, Any]) -> dict[str, Any]:
        nonlocal tries
        tries += 1
        raise PeerError(-32603, "not today")

    server = ScriptedServer(methods={"initialize": refuse})
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await running.client()
        await settle()
        assert (tries, client.session.link("demo").status) == (1, "error")
        await clock.advance(1.2)
        assert tries == 2
        await clock.advance(2.3)
        assert tries == 3
        server.methods = {}
        await clock.advance(4.5)
        assert client.session.link("demo").status == "connected"


async def test_a_failure_is_logged_once_and_its_repeats_quietly(clock: FakeClock) -> None:
    async def refuse(_params: Mapping[str, Any]) -> dict[str, Any]:
        raise PeerError(-32000, "closed on Mondays")

    with capture_logs() as logged:
        async with running_hub({"demo": ScriptedServer(methods={"initialize": refuse})}, clock=clock) as running:
            await running.client()
            await clock.advance(600)
    failures = [entry for entry in logged if entry["event"] == "server_connect_failed"]
    assert len(failures) > 5
    assert [(entry["log_level"], entry.get("count")) for entry in failures] == [
        ("warning", None),
        *(("debug", count) for count in range(2, len(failures) + 1)),
    ]
    assert [entry["attempt"] for entry in logged if entry["event"] == "server_reconnecting"][:2] == [1, 2]


async def test_what_ends_with_the_hub_is_not_logged_as_a_closed_session(clock: FakeClock) -> None:
    gate = Gate()
    with capture_logs() as logged:
        async with running_hub({"demo": ScriptedServer({"work": gate})}, clock=clock) as running:
            client = await running.client()
            await client.execute("demo", "work", timeout_ms=0)
    assert [entry["error"] for entry in logged if entry["event"] == "task_failed"] == ["The hub is stopping."]


@requirement("T001-reconcile")
async def test_a_native_task_lives_on_over_a_lost_connection(clock: FakeClock) -> None:
    server = TaskServer()
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        task = (await client.execute("demo", "job", timeout_ms=0)).task
        await settle()
        await server.die()
        await settle()
        away = (await client.call("get_task", task_id=task["task_id"])).json["task"]
        assert (away["status"], away["origin"]) == ("working", "native")
        assert away["status_message"].startswith("demo is away")
        await clock.advance(1.2)
        reconnected = [event for event in events_of(client) if event["type"] == "server_reconnected"]
        assert reconnected[0]["data"]["tasks_kept"] == 1
        server.finished.set()
        result = await client.call("get_task_result", task_id=task["task_id"])
        assert result.texts[0] == "native"
        assert "server-1" not in str(result.raw)


async def test_a_server_that_does_not_answer_for_its_tasks_is_back_all_the_same(clock: FakeClock) -> None:
    server = TaskServer()

    async def hang(_params: Mapping[str, Any]) -> dict[str, Any]:
        await anyio.sleep_forever()
        return {}

    async with running_hub({"demo": server}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        await client.execute("demo", "job", timeout_ms=0)
        await settle()
        server.methods = {**server.methods, "tasks/get": hang, "tasks/result": hang}
        await server.die()
        await settle()
        await clock.advance(1.2)
        assert "server_reconnected" not in [event["type"] for event in events_of(client)]
        await clock.advance(ANSWER_SECONDS)
        (event,) = [event for event in events_of(client) if event["type"] == "server_reconnected"]
        assert (event["data"]["tasks_kept"], event["data"]["tasks_lost"]) == (1, 0)


async def test_a_server_that_is_not_quite_back_has_lost_no_task(clock: FakeClock) -> None:
    server = TaskServer()

    async def refuse(_params: Mapping[str, Any]) -> dict[str, Any]:
        raise PeerError(-32603, "Internal error")

    async with running_hub({"demo": server}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        task = (await client.execute("demo", "job", timeout_ms=0)).task
        await settle()
        good = server.methods
        server.methods = {**good, "tasks/get": refuse, "tasks/result": refuse}
        await server.die()
        await settle()
        await clock.advance(1.2)
        (event,) = [event for event in events_of(client) if event["type"] == "server_reconnected"]
        assert (event["data"]["tasks_kept"], event["data"]["tasks_lost"]) == (1, 0)
        server.methods = good
        await clock.advance(10)
        assert client.session.state.tasks.get(task["task_id"]).status == "working"


@requirement("T001-reconcile", "P001-unit-reconciliation")
async def test_a_native_task_that_the_server_forgot_fails_after_the_reconnect(clock: FakeClock) -> None:
    server = TaskServer()
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        task = (await client.execute("demo", "job", timeout_ms=0)).task
        await settle()
        server.knows_task = False
        await server.die()
        await settle()
        await clock.advance(1.2)
        failed = await client.call("get_task_result", task_id=task["task_id"])
        assert failed.error_code == "TASK_FAILED"
        assert len(client.session.calls) == 0


async def test_a_question_that_does_not_live_on_the_connection_is_answered_on_the_next_one(clock: FakeClock) -> None:
    server = ScriptedServer({"ask": ask_name}, modern=True)
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        answer = await client.execute("demo", "ask")
        await server.die()
        await settle()
        task_id = answer.task["task_id"]
        away = (await client.call("get_task", task_id=task_id)).json["task"]
        assert away["status_message"].startswith("demo is away: ")
        await clock.advance(1.2)
        back = (await client.call("get_task", task_id=task_id)).json["task"]
        assert back["status_message"] == "demo is back"
        question = (await client.call("get_elicitations")).json["elicitations"][0]
        assert question["request_id"] == answer.pending["elicitations"][0]["request_id"]
        await client.call(
            "respond_to_elicitation", request_id=question["request_id"], action="accept", content={"name": "Ada"}
        )
        result = await client.call("get_task_result", task_id=answer.task["task_id"])
        assert result.texts[0] == "hello Ada"


async def test_an_answer_that_comes_while_the_server_is_away_waits_for_it(clock: FakeClock) -> None:
    server = ScriptedServer({"ask": ask_name}, modern=True)
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        answer = await client.execute("demo", "ask")
        question = answer.pending["elicitations"][0]
        await server.die()
        await settle()
        await client.call(
            "respond_to_elicitation", request_id=question["request_id"], action="accept", content={"name": "Ada"}
        )
        assert (await client.call("list_tasks")).json["tasks"][0]["status"] == "working"
        await clock.advance(1.2)
        assert (await client.call("get_task_result", task_id=answer.task["task_id"])).texts[0] == "hello Ada"


async def test_a_forced_reconnect_fails_plain_calls_and_keeps_native_tasks(clock: FakeClock) -> None:
    gate = Gate()

    async def never(call: ScriptedCall) -> str:
        return await gate(call) + str(form(""))

    plain, native = ScriptedServer({"slow": never}), TaskServer()
    async with running_hub({"plain": plain, "native": native}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        slow = (await client.execute("plain", "slow", timeout_ms=0)).task
        job = (await client.execute("native", "job", timeout_ms=0)).task
        await settle()
        for name in ("plain", "native"):
            with anyio.fail_after(30):
                again = await client.call("reconnect_server", name=name)
            assert again.json["server"]["status"] == "connected"
        assert (await client.call("get_task_result", task_id=slow["task_id"])).error_code == "TASK_FAILED"
        native.finished.set()
        assert (await client.call("get_task_result", task_id=job["task_id"])).texts[0] == "native"


class Hesitating(ScriptedServer):
    """It does not say which tools it has until it is told to."""

    def __init__(self) -> None:
        self.hesitates = True

        async def tools(_params: Mapping[str, Any]) -> dict[str, Any]:
            if self.hesitates:
                await anyio.sleep_forever()
            return {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}

        super().__init__({"echo": echo}, methods={"tools/list": tools})


async def test_a_new_connection_can_be_asked_for_while_the_server_hesitates(clock: FakeClock) -> None:
    server = Hesitating()
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await running.client()
        await settle()
        link = client.session.link("demo")
        assert link.status == "connecting"
        server.hesitates = False
        again = await client.call("reconnect_server", name="demo")
        assert again.json["server"]["status"] == "connected"
        assert link.life.last_error is None


async def test_whoever_waits_for_a_link_gets_the_new_connection_that_somebody_asked_for(clock: FakeClock) -> None:
    server = Hesitating()
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await running.client()
        texts = []

        async def call() -> None:
            texts.append((await client.execute("demo", "echo", {"text": "hi"})).texts[0])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await settle()
            server.hesitates = False
            client.session.link("demo").reconnect()
        assert texts == ["hi"]


async def test_a_server_that_does_not_say_which_tools_it_has_is_given_up_after_a_while(clock: FakeClock) -> None:
    server = Hesitating()
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await running.client()
        await settle()
        await clock.advance(PREPARATION_SECONDS)
        link = client.session.link("demo")
        assert (link.status, link.life.last_error) == ("error", "it did not say within 60 s which tools it has")
        server.hesitates = False
        await clock.advance(1.2)
        assert link.status == "connected"


async def test_a_new_connection_that_was_asked_for_is_no_failure_of_the_server(clock: FakeClock) -> None:
    async with running_hub({"demo": ScriptedServer({"echo": echo})}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        link = client.session.link("demo")
        for _ in range(PROGRAM_RESTARTS + 1):
            await client.call("reconnect_server", name="demo")
        assert (link.status, link.life._failures) == ("connected", 0)


async def test_a_server_that_is_away_is_told_of_a_cancellation_when_it_is_back(clock: FakeClock) -> None:
    server = TaskServer()

    async def cancel(_params: Mapping[str, Any]) -> dict[str, Any]:
        return {"taskId": "server-1", "status": "cancelled", "createdAt": "x", "lastUpdatedAt": "x", "ttl": None}

    server.methods = {**server.methods, "tasks/cancel": cancel}
    server.capabilities = {"tools": {}, "tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}}
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        task = (await client.execute("demo", "job", timeout_ms=0)).task
        await settle()
        await server.die()
        await settle()
        cancelled = (await client.call("cancel_task", task_id=task["task_id"])).json
        assert cancelled["message"].endswith("and demo will be told to stop when it is back.")
        assert "tasks/cancel" not in server.received_methods()
        await clock.advance(1.2)
        assert server.received_methods().count("tasks/cancel") == 1
        assert (await client.call("get_task", task_id=task["task_id"])).json["task"]["status"] == "cancelled"
