"""Modern clients without the tasks extension: what a call asks comes back with the response, and a retry goes on."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from emceepee.config import HubSettings
from emceepee.core.state import SessionLimits
from emceepee.front.request_state import Continuation, NotOurState, RequestStates, digest_of
from emceepee.hub.spent_states import SpentStates
from emceepee.ids import secure_ids
from emceepee.store import MemoryStore
from emceepee.testing import Answer, FakeClock, ScriptedCall, ScriptedServer, form, settle
from tests.front.asgi import HttpExchange
from tests.front.clients import TASKS, Modern, front
from tests.interaction.gates import Gate, ask_name, echo

pytestmark = pytest.mark.anyio

CAN_ELICIT: dict[str, Any] = {"elicitation": {"form": {}}}
ASK: dict[str, Any] = {"name": "execute_tool", "arguments": {"server": "demo", "tool": "ask"}}
ADA = {"action": "accept", "content": {"name": "Ada"}}


async def asked(client: Modern, params: dict[str, Any] = ASK) -> dict[str, Any]:
    result = await client.request("tools/call", params).result()
    assert result["resultType"] == "input_required", result
    return result


def retry(
    client: Modern, before: dict[str, Any], answers: Any, params: dict[str, Any] = ASK, **changed: Any
) -> HttpExchange:
    again = {**params, "requestState": before["requestState"], "inputResponses": answers, **changed}
    return client.request("tools/call", {key: value for key, value in again.items() if value is not None})


def answers_to(result: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    return dict.fromkeys(result["inputRequests"], answer)


def server(**options: Any) -> ScriptedServer:
    return ScriptedServer({"ask": ask_name, "echo": echo}, **options)


@pytest.mark.parametrize("modern", [False, True])
async def test_a_retry_with_the_answer_continues_the_call_and_starts_no_second(clock: FakeClock, modern: bool) -> None:
    demo = server(modern=modern)
    async with front({"demo": demo}, clock=clock) as world:
        client = world.modern(CAN_ELICIT)
        first = await asked(client)
        ((key, request),) = first["inputRequests"].items()
        assert request == {"method": "elicitation/create", "params": form("Name?", name="string")}
        assert set(first) == {"resultType", "inputRequests", "requestState"}
        before = demo.received_methods().count("tools/call")
        assert before == 1
        result = await retry(client, first, {key: ADA}).result()
        assert (result["resultType"], result["content"][0]["text"]) == ("complete", "hello Ada")
        # A modern server is called again by its own protocol, with the answer.
        assert demo.received_methods().count("tools/call") == (2 if modern else 1)


@pytest.mark.parametrize("url", ["/mcp", "/mcp/server/demo"])
@pytest.mark.parametrize("knows_tasks", [False, True])
async def test_the_task_that_a_server_has_with_the_hub_is_no_part_of_the_question(
    clock: FakeClock, url: str, knows_tasks: bool
) -> None:
    async def ask(call: ScriptedCall) -> str:
        created = await call.peer.request(
            "elicitation/create", {**form("Name?", name="string"), "task": {"ttl": 60_000}}
        )
        answer = await call.peer.request("tasks/result", {"taskId": created["task"]["taskId"]})
        return f"hello {answer['content']['name']}"

    async with front({"demo": ScriptedServer({"ask": ask})}, clock=clock) as world:
        # With somebody there who has the tools, a server is told that it may have tasks with us.
        await world.handshake()
        client = world.modern({**CAN_ELICIT, **(TASKS if knows_tasks else {})}, url=url)
        params = ASK if url == "/mcp" else {"name": "ask", "arguments": {}}
        first = await client.request("tools/call", params).result()
        shown = await client.task(first["taskId"]) if knows_tasks else first
        (request,) = shown["inputRequests"].values()
        assert request == {"method": "elicitation/create", "params": form("Name?", name="string")}
        if knows_tasks:
            update = {"taskId": first["taskId"], "inputResponses": answers_to(shown, ADA)}
            await client.request("tasks/update", update).result()
            await settle()
            result = (await client.task(first["taskId"]))["result"]
        else:
            result = await retry(client, first, answers_to(shown, ADA), params).result()
        assert result["content"][0]["text"] == "hello Ada"


async def test_the_question_stands_in_the_list_meanwhile_and_the_first_answer_wins(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        client = world.modern(CAN_ELICIT)
        first = await asked(client)
        (question,) = (await client.call("get_elicitations")).json["elicitations"]
        assert list(first["inputRequests"]) == [question["request_id"]]
        await client.call("respond_to_elicitation", request_id=question["request_id"], **ADA)
        # Its answer comes too late, and its call has its result all the same.
        result = await retry(client, first, answers_to(first, {"action": "decline"})).result()
        assert result["content"][0]["text"] == "hello Ada"


async def test_a_second_question_is_asked_with_a_new_state(clock: FakeClock) -> None:
    async def ask(call: ScriptedCall) -> str:
        first = await call.elicit(form("First?", name="string"), key="a")
        second = await call.elicit(form("Second?", name="string"), key="b")
        return f"{first['content']['name']} {second['content']['name']}"

    for modern in (False, True):
        async with front({"demo": ScriptedServer({"ask": ask}, modern=modern)}, clock=clock) as world:
            client = world.modern(CAN_ELICIT)
            first = await asked(client)
            second = await retry(client, first, answers_to(first, ADA)).result()
            assert second["resultType"] == "input_required"
            assert second["requestState"] != first["requestState"]
            assert set(second["inputRequests"]).isdisjoint(first["inputRequests"])
            last = {"action": "accept", "content": {"name": "Lovelace"}}
            result = await retry(client, second, answers_to(second, last)).result()
            assert result["content"][0]["text"] == "Ada Lovelace"


async def test_of_several_questions_some_may_be_answered_first(clock: FakeClock) -> None:
    async def ask(call: ScriptedCall) -> str:
        answers: dict[str, str] = {}

        async def one(key: str) -> None:
            answers[key] = (await call.elicit(form(key, name="string")))["content"]["name"]

        async with anyio.create_task_group() as tasks:
            for key in ("A", "B"):
                tasks.start_soon(one, key)
        return f"{answers['A']} {answers['B']}"

    async with front({"demo": ScriptedServer({"ask": ask})}, clock=clock) as world:
        client = world.modern(CAN_ELICIT)
        first = await asked(client)
        if len(first["inputRequests"]) == 1:
            # The other came just after: it is asked with the next round.
            first = await retry(client, first, {}).result()
        keys = {request["params"]["message"]: key for key, request in first["inputRequests"].items()}
        assert set(keys) == {"A", "B"}
        second = await retry(client, first, {keys["B"]: ADA, "unknown": ADA}).result()
        assert list(second["inputRequests"]) == [keys["A"]]
        # Without any answer at all it is asked again, too.
        third = await retry(client, second, None).result()
        assert list(third["inputRequests"]) == [keys["A"]]
        result = await retry(client, third, {keys["A"]: {"action": "accept", "content": {"name": "x"}}}).result()
        assert result["content"][0]["text"] == "x Ada"


async def test_what_is_abandoned_is_a_task_whose_question_waits(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        client = world.modern(CAN_ELICIT)
        await asked(client)
        await clock.advance(500)
        listed = await client.call("list_tasks")
        (task,) = listed.json["tasks"]
        assert task["status"] == "working"
        assert "task_created" in listed.event_types
        (question,) = listed.pending["elicitations"]
        assert question["task_id"] == task["task_id"]
        await client.call("respond_to_elicitation", request_id=question["request_id"], **ADA)
        result = await client.call("get_task_result", task_id=task["task_id"])
        assert result.texts[0] == "hello Ada"


async def test_a_client_that_hangs_up_in_a_retry_loses_nothing(clock: FakeClock) -> None:
    gate = Gate()

    async def ask(call: ScriptedCall) -> str:
        await ask_name(call)
        return await gate(call)

    async with front({"demo": ScriptedServer({"ask": ask})}, clock=clock) as world:
        client = world.modern(CAN_ELICIT)
        first = await asked(client)
        again = retry(client, first, answers_to(first, ADA))
        await gate.reached.wait()
        again.drop()
        await settle()
        gate.opened.set()
        await settle()
        (task,) = (await client.call("list_tasks", include_completed=True)).json["tasks"]
        assert task["status"] == "completed"


async def test_a_retry_that_takes_longer_than_its_timeout_says_so(clock: FakeClock) -> None:
    gate = Gate()

    async def ask(call: ScriptedCall) -> str:
        await ask_name(call)
        return await gate(call)

    params = {"name": "execute_tool", "arguments": {"server": "demo", "tool": "ask", "timeout_ms": 3000}}
    async with front({"demo": ScriptedServer({"ask": ask})}, clock=clock) as world:
        client = world.modern(CAN_ELICIT)
        first = await asked(client, params)
        again = retry(client, first, answers_to(first, ADA), params)
        await gate.reached.wait()
        await clock.advance(3)
        answer = Answer(await again.result())
        assert not answer.is_error
        task = answer.part("task")
        assert task["status"] == "working"
        gate.opened.set()
        assert (await client.call("get_task_result", task_id=task["task_id"])).texts[0] == "done"


async def test_waiting_for_the_result_of_a_task_asks_back_as_well(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        client = world.modern(CAN_ELICIT)
        params = {"name": "execute_tool", "arguments": {"server": "demo", "tool": "ask", "timeout_ms": 0}}
        answer = Answer(await client.request("tools/call", params).result())
        await settle()
        waiting = {"name": "get_task_result", "arguments": {"task_id": answer.task["task_id"]}}
        first = await asked(client, waiting)
        result = await retry(client, first, answers_to(first, ADA), waiting).result()
        assert result["content"][0]["text"] == "hello Ada"


# Whom to ask what


async def sample(call: ScriptedCall) -> str:
    return str((await call.sample({"messages": [], "maxTokens": 1}))["model"])


@pytest.mark.parametrize(
    ("capabilities", "tool", "kind"),
    [
        ({}, "ask", "complete"),
        ({"elicitation": {"url": {}}}, "ask", "complete"),
        ({"elicitation": {}}, "ask", "input_required"),
        ({"sampling": {}}, "ask", "complete"),
        ({"sampling": {}}, "sample", "input_required"),
        ({**TASKS, "elicitation": {}}, "ask", "task"),
        (TASKS, "ask", "task"),
    ],
)
async def test_only_what_this_very_request_declared_is_asked_back(
    clock: FakeClock, capabilities: dict[str, Any], tool: str, kind: str
) -> None:
    async with front({"demo": ScriptedServer({"ask": ask_name, "sample": sample})}, clock=clock) as world:
        client = world.modern(capabilities)
        result = await client.execute("demo", tool).result()
        assert result["resultType"] == kind
        if kind == "complete":
            assert Answer(result).task["status"] == "working"


async def test_a_retry_that_declares_less_is_told_of_the_task(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        client = world.modern(CAN_ELICIT)
        first = await asked(client)
        client.capabilities = {}
        result = await retry(client, first, {}).result()
        assert result["resultType"] == "complete"
        assert Answer(result).part("questions")[0]["message"] == "Name?"


# States that cannot be taken


async def test_a_state_is_used_once(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        client = world.modern(CAN_ELICIT)
        first = await asked(client)
        await retry(client, first, answers_to(first, ADA)).result()
        assert await retry(client, first, answers_to(first, ADA)).failure() == (400, -32602)


async def test_an_answer_that_cannot_be_taken_costs_neither_the_state_nor_the_question(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        client = world.modern(CAN_ELICIT)
        first = await asked(client)
        wrong: list[Any] = [[], "x", answers_to(first, {"action": "maybe"}), dict.fromkeys(first["inputRequests"], 7)]
        for answers in wrong:
            assert await retry(client, first, answers).failure() == (400, -32602)
        result = await retry(client, first, answers_to(first, ADA)).result()
        assert result["content"][0]["text"] == "hello Ada"


async def test_a_state_that_was_tampered_with_is_refused(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        client = world.modern(CAN_ELICIT)
        first = await asked(client)
        state = first["requestState"]
        middle = len(state) // 2
        flipped = state[:middle] + ("A" if state[middle] != "A" else "B") + state[middle + 1 :]
        for wrong in (flipped, state[:-4], state + "AAAA", "emceepee:", "emceepee:x", "emceepee:\u00e9"):
            again = retry(client, {"requestState": wrong}, answers_to(first, ADA))
            assert await again.failure() == (400, -32602)
        # It says nothing to whoever reads it.
        (task,) = (await client.call("list_tasks")).json["tasks"]
        assert task["task_id"] not in state
        await retry(client, first, answers_to(first, ADA)).result()


async def test_a_state_is_of_its_principal_its_request_and_its_endpoint(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        client = world.modern(CAN_ELICIT)
        first = await asked(client)
        eve = world.modern(CAN_ELICIT, principal="eve")
        assert await retry(eve, first, answers_to(first, ADA)).failure() == (400, -32602)
        other = {"name": "execute_tool", "arguments": {"server": "demo", "tool": "echo"}}
        assert await retry(client, first, answers_to(first, ADA), other).failure() == (400, -32602)
        assert await retry(client, first, answers_to(first, ADA), name="list_tasks").failure() == (400, -32602)
        elsewhere = world.modern(CAN_ELICIT, url="/mcp/all")
        assert await retry(elsewhere, first, answers_to(first, ADA)).failure() == (400, -32602)
        # None of this has used it up.
        await retry(client, first, answers_to(first, ADA)).result()


async def test_a_state_gets_old(clock: FakeClock) -> None:
    settings = HubSettings(limits=SessionLimits(question_timeout_ms=60_000))
    async with front({"demo": server()}, clock=clock, settings=settings) as world:
        client = world.modern(CAN_ELICIT)
        first = await asked(client)
        await clock.advance(60)
        # The question has expired, and what came of the call is still to be had.
        result = await retry(client, first, answers_to(first, ADA)).result()
        assert result["isError"] is True
        second = await asked(client)
        await clock.advance(361)
        assert await retry(client, second, answers_to(second, ADA)).failure() == (400, -32602)


async def test_a_state_outlives_the_hub_that_issued_it(clock: FakeClock) -> None:
    store = MemoryStore()
    demo = server(modern=True)
    async with front({"demo": demo}, clock=clock, store=store) as world:
        first = await asked(world.modern(CAN_ELICIT))
    async with front({"demo": demo}, clock=clock, store=store) as world:
        client = world.modern(CAN_ELICIT)
        result = await retry(client, first, answers_to(first, ADA)).result()
        assert result["content"][0]["text"] == "hello Ada"


async def test_a_state_that_was_used_stays_so_over_a_restart(clock: FakeClock) -> None:
    store = MemoryStore()
    demo = server(modern=True)
    async with front({"demo": demo}, clock=clock, store=store) as world:
        client = world.modern(CAN_ELICIT)
        first = await asked(client)
        second = await retry(client, first, {}).result()
        assert second["resultType"] == "input_required"
    async with front({"demo": demo}, clock=clock, store=store) as world:
        client = world.modern(CAN_ELICIT)
        assert await retry(client, first, answers_to(first, ADA)).failure() == (400, -32602)
        result = await retry(client, second, answers_to(second, ADA)).result()
        assert result["content"][0]["text"] == "hello Ada"


async def test_the_call_that_asked_may_be_gone(clock: FakeClock) -> None:
    settings = HubSettings(session_idle_ms=1000, limits=SessionLimits(question_timeout_ms=1000))
    async with front({"demo": server()}, clock=clock, settings=settings) as world:
        client = world.modern(CAN_ELICIT)
        first = await asked(client)
        (session,) = world.hub.sessions.values()
        session.close()
        await settle()
        assert await retry(client, first, answers_to(first, ADA)).failure() == (400, -32602)


async def test_a_state_that_is_not_ours_goes_to_the_tool_like_anything_else(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        client = world.modern(CAN_ELICIT)
        params = {"name": "list_tasks", "arguments": {}, "requestState": "somebody's", "inputResponses": {}}
        assert (await client.request("tools/call", params).result())["resultType"] == "complete"


async def test_a_hub_behind_a_hub_goes_on_with_its_own_calls(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as inner:
        at_inner = inner.modern(CAN_ELICIT, url="/mcp/server/demo")

        async def ask(call: ScriptedCall) -> dict[str, Any]:
            """Whatever the inner hub answers to what it is sent."""
            return await at_inner.request("tools/call", dict(call.params)).result()

        outer_server = ScriptedServer({"ask": ask}, modern=True)
        async with front({"inner": outer_server}, clock=clock) as outer:
            client = outer.modern(CAN_ELICIT, url="/mcp/server/inner")
            params = {"name": "ask", "arguments": {}}
            first = await asked(client, params)
            result = await retry(client, first, answers_to(first, ADA), params).result()
            assert result["content"][0]["text"] == "hello Ada"


async def test_a_state_of_another_hub_starts_no_call_where_no_server_can_have_issued_it(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        first = await asked(world.modern(CAN_ELICIT, url="/mcp/server/demo"), {"name": "ask", "arguments": {}})
    demo = server()
    async with front({"demo": demo}, clock=clock) as world:
        for url, name in (("/mcp/server/demo", "ask"), ("/mcp/all", "demo__ask"), ("/mcp", "execute_tool")):
            again = retry(world.modern(CAN_ELICIT, url=url), first, answers_to(first, ADA), {**ASK, "name": name})
            assert await again.failure() == (400, -32602)
        assert "tools/call" not in demo.received_methods()


def test_what_is_spent_is_forgotten_when_it_has_expired() -> None:
    saved: dict[str, float | None] = {}
    spent = SpentStates(saved.__setitem__)
    spent.add("a", 10.0, now=0.0)
    spent.add("b", 20.0, now=10.0)
    assert ("a" in spent, "b" in spent) == (True, True)
    spent.add("c", 30.0, now=10.5)
    assert ("a" in spent, "b" in spent, "c" in spent) == (False, True, True)
    assert saved == {"a": None, "b": 20.0, "c": 30.0}


def test_a_state_is_opened_by_the_key_that_sealed_it() -> None:
    clock = FakeClock()
    states = RequestStates(b"k" * 32, clock, secure_ids(clock), lifetime=10)
    state = states.issue("ada", Continuation("s", "t", "r"))
    assert states.open("ada", state).continuation == Continuation("s", "t", "r")
    other = RequestStates(b"o" * 32, clock, secure_ids(clock), lifetime=10)
    with pytest.raises(NotOurState):
        other.open("ada", states.issue("ada", Continuation("s", "t")))


def test_a_digest_is_of_what_stays_the_same() -> None:
    one = {"name": "x", "arguments": {"a": 1, "b": 2}, "_meta": {"progressToken": 1}}
    two = {"arguments": {"b": 2, "a": 1}, "name": "x", "requestState": "s", "inputResponses": {}, "_meta": {}}
    assert digest_of("", "tools/call", one) == digest_of("", "tools/call", two)
    others = [
        digest_of("all", "tools/call", one),
        digest_of("", "prompts/get", one),
        digest_of("", "tools/call", {**one, "name": "y"}),
    ]
    assert len({digest_of("", "tools/call", one), *others}) == 4
