"""The tasks extension of 2026-07-28 at the front, whatever the server behind it is."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from emceepee.config import HubSettings
from emceepee.core.state import SessionLimits
from emceepee.core.tasks import TaskLimits
from emceepee.errors import PeerError
from emceepee.testing import FakeClock, ScriptedCall, ScriptedServer, form, settle, text_result
from tests.front.asgi import HttpExchange
from tests.front.clients import TASKS, Modern, front
from tests.interaction.gates import Gate, ask_name

pytestmark = pytest.mark.anyio

CAN_ALL: dict[str, Any] = {**TASKS, "elicitation": {"form": {}, "url": {}}, "sampling": {}}


async def begun(client: Modern, tool: str, **options: Any) -> dict[str, Any]:
    return await client.execute("demo", tool, timeout_ms=0, **options).result()


def told_in(exchange: HttpExchange) -> list[tuple[str, str]]:
    return [
        (message["params"]["taskId"], message["params"]["status"])
        for message in exchange.messages
        if message.get("method") == "notifications/tasks"
    ]


@pytest.mark.parametrize("modern", [False, True])
async def test_a_promoted_call_is_a_task_of_the_protocol(clock: FakeClock, modern: bool) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate}, modern=modern)}, clock=clock) as world:
        client = world.modern(CAN_ALL)
        exchange = client.execute("demo", "slow", timeout_ms=2000, task_ttl_ms=90_000)
        await gate.reached.wait()
        await clock.advance(2)
        created = await exchange.result()
        task_id = created["taskId"]
        assert created["resultType"] == "task"
        assert (created["status"], created["ttlMs"], created["pollIntervalMs"]) == ("working", 90_000, 1000)
        assert {"createdAt", "lastUpdatedAt"} <= set(created)
        assert "result" not in created
        assert len(task_id) >= 26
        got = await client.task(task_id)
        assert got == {**created, "resultType": "complete"}
        gate.opened.set()
        await settle()
        done = await client.task(task_id)
        assert done["status"] == "completed"
        assert done["result"] == {"resultType": "complete", **text_result("done")}
        # The tools see it as well: it is one and the same.
        shown = await client.call("get_task", task_id=task_id)
        assert shown.json["task"]["status"] == "completed"


async def test_without_the_extension_it_is_a_task_of_the_tools_only(clock: FakeClock) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate})}, clock=clock) as world:
        result = await begun(world.modern(), "slow")
        assert result["resultType"] == "complete"
        assert "proxy_task" in result["content"][1]["text"]
        gate.opened.set()


async def test_a_fast_call_is_no_task(clock: FakeClock) -> None:
    gate = Gate()
    gate.opened.set()
    async with front({"demo": ScriptedServer({"fast": gate})}, clock=clock) as world:
        result = await world.modern(TASKS).execute("demo", "fast").result()
        assert result["resultType"] == "complete"


@pytest.mark.parametrize("modern", [False, True])
async def test_its_questions_are_answered_with_an_update(clock: FakeClock, modern: bool) -> None:
    async def ask(call: ScriptedCall) -> str:
        first = await call.elicit(form("First?", a="string"), key="one")
        second = await call.elicit(form("Second?", b="string"), key="two")
        return f"{first['content']['a']} {second['content']['b']}"

    async with front({"demo": ScriptedServer({"ask": ask}, modern=modern)}, clock=clock) as world:
        client = world.modern(CAN_ALL)
        created = await client.execute("demo", "ask").result()
        assert (created["resultType"], created["status"]) == ("task", "input_required")
        task_id = created["taskId"]
        for message, key in (("First?", "a"), ("Second?", "b")):
            await settle()
            task = await client.task(task_id)
            assert task["status"] == "input_required"
            ((name, request),) = task["inputRequests"].items()
            assert (request["method"], request["params"]["message"]) == ("elicitation/create", message)
            answer = {name: {"action": "accept", "content": {key: key.upper()}}, "unknown": {"action": "accept"}}
            params = {"taskId": task_id, "inputResponses": answer}
            assert await client.request("tasks/update", params).result() == {"resultType": "complete"}
            # It may come twice.
            assert await client.request("tasks/update", params).result() == {"resultType": "complete"}
        await settle()
        done = await client.task(task_id)
        assert (done["status"], done["result"]["content"]) == ("completed", text_result("A B")["content"])


@pytest.mark.parametrize(
    "responses",
    [None, [], "x", {"KEY": None}, {"KEY": "accept"}, {"KEY": {}}, {"KEY": {"action": "maybe"}}],
)
async def test_an_answer_that_is_none_is_refused_and_the_question_stays(clock: FakeClock, responses: Any) -> None:
    async with front({"demo": ScriptedServer({"ask": ask_name})}, clock=clock) as world:
        client = world.modern(CAN_ALL)
        task_id = (await client.execute("demo", "ask").result())["taskId"]
        ((name, _),) = (await client.task(task_id))["inputRequests"].items()
        if isinstance(responses, dict):
            responses = {name: next(iter(responses.values()))}
        params = {"taskId": task_id, "inputResponses": responses}
        assert await client.request("tasks/update", params).failure() == (400, -32602)
        assert name in (await client.task(task_id))["inputRequests"]


async def test_only_what_the_asking_client_declared_is_in_its_input_requests(clock: FakeClock) -> None:
    async def ask(call: ScriptedCall) -> str:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call.elicit, form("Name?", name="string"))
            tasks.start_soon(call.sample, {"messages": [], "maxTokens": 1})
        return "done"

    async with front({"demo": ScriptedServer({"ask": ask})}, clock=clock) as world:
        all_of_it, one, none = (
            world.modern(capabilities) for capabilities in (CAN_ALL, {**TASKS, "sampling": {}}, TASKS)
        )
        task_id = (await begun(all_of_it, "ask"))["taskId"]
        await settle()
        assert len((await all_of_it.task(task_id))["inputRequests"]) == 2
        seen = await one.task(task_id)
        assert [request["method"] for request in seen["inputRequests"].values()] == ["sampling/createMessage"]
        unseen = await none.task(task_id)
        assert "inputRequests" not in unseen
        assert unseen["status"] == "working"
        assert unseen["statusMessage"]


# Every end


async def test_an_error_result_is_a_completed_task(clock: FakeClock) -> None:
    async def fail(_call: ScriptedCall) -> dict[str, Any]:
        return {**text_result("no"), "isError": True}

    async with front({"demo": ScriptedServer({"fail": fail})}, clock=clock) as world:
        client = world.modern(TASKS)
        task_id = (await begun(client, "fail"))["taskId"]
        await settle()
        done = await client.task(task_id)
        assert (done["status"], done["result"]["isError"]) == ("completed", True)


async def test_a_protocol_error_is_a_failed_task_with_that_error(clock: FakeClock) -> None:
    async def fail(_call: ScriptedCall) -> str:
        raise PeerError(-32050, "broken", {"part": 7})

    async with front({"demo": ScriptedServer({"fail": fail})}, clock=clock) as world:
        client = world.modern(TASKS)
        task_id = (await begun(client, "fail"))["taskId"]
        await settle()
        done = await client.task(task_id)
        assert done["status"] == "failed"
        assert done["error"] == {"code": -32050, "message": "broken", "data": {"part": 7}}
        assert "result" not in done


async def test_a_cancelled_task_is_acknowledged_and_stays_cancelled(clock: FakeClock) -> None:
    gate = Gate()
    demo = ScriptedServer({"slow": gate})
    async with front({"demo": demo}, clock=clock) as world:
        client = world.modern(TASKS)
        task_id = (await begun(client, "slow"))["taskId"]
        await gate.reached.wait()
        for _ in range(2):
            cancelled = await client.request("tasks/cancel", {"taskId": task_id}).result()
            assert cancelled == {"resultType": "complete"}
            assert (await client.task(task_id))["status"] == "cancelled"
        await settle()
        assert demo.cancelled == ["slow"]


async def test_an_expired_task_has_failed_and_is_then_unknown(clock: FakeClock) -> None:
    limits = SessionLimits(tasks=TaskLimits(retention_ms=30_000))
    gate = Gate()
    async with front(
        {"demo": ScriptedServer({"slow": gate})}, clock=clock, settings=HubSettings(limits=limits)
    ) as world:
        client = world.modern(TASKS)
        task_id = (await begun(client, "slow", task_ttl_ms=5000))["taskId"]
        listening = client.request("subscriptions/listen", {"notifications": {"taskIds": [task_id]}})
        await clock.advance(5)
        expired = await client.task(task_id)
        assert (expired["status"], expired["error"]["code"]) == ("failed", -32603)
        await clock.advance(31)
        assert await client.request("tasks/get", {"taskId": task_id}).failure() == (400, -32602)
        # Whoever listens for it is not harmed by its end.
        assert told_in(listening) == [(task_id, "working"), (task_id, "failed")]
        assert not listening.done.is_set()


async def test_the_loss_of_the_server_fails_the_task(clock: FakeClock) -> None:
    demo = ScriptedServer({"slow": Gate()})
    async with front({"demo": demo}, clock=clock) as world:
        client = world.modern(TASKS)
        task_id = (await begun(client, "slow"))["taskId"]
        await settle()
        await demo.die()
        await settle()
        done = await client.task(task_id)
        assert (done["status"], done["error"]["code"]) == ("failed", -32603)


@pytest.mark.parametrize("task_id", ["nonsense", "", 7, None, ["x"]])
async def test_an_unknown_task_is_an_invalid_parameter(clock: FakeClock, task_id: Any) -> None:
    async with front({"demo": ScriptedServer({})}, clock=clock) as world:
        exchange = world.modern(TASKS).request("tasks/get", {"taskId": task_id}, headers={"mcp-name": None})
        assert await exchange.failure() == (400, -32602)


async def test_a_task_is_found_by_its_id_from_any_workspace_but_not_across_the_eras(clock: FakeClock) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate})}, clock=clock) as world:
        client = world.modern(TASKS, url="/mcp?workspace=w")
        task_id = (await begun(client, "slow"))["taskId"]
        assert (await world.modern(TASKS).task(task_id))["status"] == "working"
        older = await world.handshake()
        assert await older.request("tasks/get", {"taskId": task_id}).failure() == (200, -32602)
        params = {
            "name": "execute_tool",
            "arguments": {"server": "demo", "tool": "slow"},
            "task": {},
        }
        theirs = (await older.request("tools/call", params).result())["task"]["taskId"]
        assert await client.request("tasks/get", {"taskId": theirs}).failure() == (400, -32602)
        gate.opened.set()


# Being told


async def test_who_listens_is_told_of_every_change_with_what_tasks_get_would_say(clock: FakeClock) -> None:
    async with front({"demo": ScriptedServer({"ask": ask_name})}, clock=clock) as world:
        client = world.modern(CAN_ALL)
        task_id = (await begun(client, "ask"))["taskId"]
        await settle()
        wanted = {"taskIds": [task_id, "unknown", 7], "toolsListChanged": True}
        listening = client.request("subscriptions/listen", {"notifications": wanted}, request_id="sub")
        await settle()
        acknowledged = listening.messages[0]
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert acknowledged["params"]["notifications"]["taskIds"] == [task_id]
        subscription = {"io.modelcontextprotocol/subscriptionId": "sub"}
        assert all(message["params"]["_meta"] == subscription for message in listening.messages)
        task = await client.task(task_id)
        told = dict(listening.messages[-1]["params"])
        told.pop("_meta")
        assert {"resultType": "complete", **told} == task
        ((name, _),) = task["inputRequests"].items()
        answer = {"taskId": task_id, "inputResponses": {name: {"action": "decline"}}}
        await client.request("tasks/update", answer).result()
        await settle()
        assert [status for _, status in told_in(listening)] == ["input_required", "working", "completed"]
        listening.drop()
        await settle()
        assert listening.done.is_set()


async def test_nobody_is_told_of_a_task_of_another_principal_nor_without_the_extension(clock: FakeClock) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate})}, clock=clock) as world:
        ada = world.modern(TASKS, principal="ada")
        task_id = (await begun(ada, "slow"))["taskId"]
        wanted = {"notifications": {"taskIds": [task_id]}}
        listeners = [
            world.modern(TASKS, principal="eve").request("subscriptions/listen", wanted),
            world.modern(principal="ada").request("subscriptions/listen", wanted),
        ]
        gate.opened.set()
        await settle()
        for listening in listeners:
            (acknowledged,) = listening.messages
            assert "taskIds" not in acknowledged["params"]["notifications"]


async def test_only_what_will_be_told_is_acknowledged_and_the_end_of_the_hub_ends_it_properly(clock: FakeClock) -> None:
    async with front({"demo": ScriptedServer({})}, clock=clock) as world:
        wanted = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["emceepee://status"]}}
        own = world.modern().request("subscriptions/listen", wanted, request_id="own")
        server = world.modern(url="/mcp/server/demo").request(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}, request_id="server"
        )
        await clock.advance(6)
        # The hub's own tools and resources do not change.
        assert own.messages[0]["params"]["notifications"] == {}
        assert server.messages[0]["params"]["notifications"] == {"toolsListChanged": True}
        world.app.stop()
        for exchange, request_id in ((own, "own"), (server, "server")):
            meta = {"io.modelcontextprotocol/subscriptionId": request_id}
            assert await exchange.result() == {"resultType": "complete", "_meta": meta}


@pytest.mark.parametrize("wanted", [None, [], "x"])
async def test_a_subscription_has_to_say_what_for(clock: FakeClock, wanted: Any) -> None:
    async with front({"demo": ScriptedServer({})}, clock=clock) as world:
        exchange = world.modern().request("subscriptions/listen", {"notifications": wanted})
        assert await exchange.failure() == (400, -32602)


async def test_a_task_was_updated_when_the_status_that_is_shown_changed(clock: FakeClock) -> None:
    ask_now, go_on = anyio.Event(), anyio.Event()

    async def ask(call: ScriptedCall) -> str:
        await ask_now.wait()
        await call.elicit(form("Name?", name="string"))
        await go_on.wait()
        return "done"

    async with front({"demo": ScriptedServer({"ask": ask})}, clock=clock) as world:
        client = world.modern({**TASKS, "elicitation": {}})
        made = await client.execute("demo", "ask", timeout_ms=0).result()
        shown = [made]
        await clock.advance(3)
        ask_now.set()
        await settle()
        shown.append(await client.task(made["taskId"]))
        await clock.advance(3)
        answers = {key: {"action": "decline"} for key in shown[-1]["inputRequests"]}
        await client.request("tasks/update", {"taskId": made["taskId"], "inputResponses": answers}).result()
        shown.append(await client.task(made["taskId"]))
        assert [task["status"] for task in shown] == ["working", "input_required", "working"]
        assert len({task["lastUpdatedAt"] for task in shown}) == 3
        go_on.set()


@pytest.mark.parametrize("kinds", [("elicitation",), ("sampling",), ("elicitation", "sampling")])
async def test_a_task_that_waits_for_others_says_where_they_find_it(clock: FakeClock, kinds: tuple[str, ...]) -> None:
    async def ask(call: ScriptedCall) -> str:
        async with anyio.create_task_group() as tasks:
            if "elicitation" in kinds:
                tasks.start_soon(call.elicit, form("Name?", name="string"))
            if "sampling" in kinds:
                tasks.start_soon(call.sample, {"messages": [], "maxTokens": 1})
        return "done"

    async with front({"demo": ScriptedServer({"ask": ask})}, clock=clock) as world:
        client = world.modern(TASKS)
        made = await client.execute("demo", "ask", timeout_ms=0).result()
        await settle()
        message = (await client.task(made["taskId"]))["statusMessage"]
        assert ("get_elicitations" in message) is ("elicitation" in kinds)
        assert ("get_sampling_requests" in message) is ("sampling" in kinds)
