"""Questions to a client of a server's own endpoint: its principal can answer them with the tools as well."""

from __future__ import annotations

from typing import Any

import pytest

from emceepee.config import HubSettings
from emceepee.core.state import SessionLimits
from emceepee.store import MemoryStore
from emceepee.testing import FakeClock, ScriptedCall, ScriptedServer, form, settle, text_result
from tests.front.clients import front
from tests.interaction.gates import Gate, ask_name

pytestmark = pytest.mark.anyio

CALL_ASK = {"name": "ask", "arguments": {}}


async def sample(call: ScriptedCall) -> str:
    answer = await call.sample({"messages": [], "maxTokens": 5})
    return str(answer["content"]["text"])


def server(**options: Any) -> ScriptedServer:
    return ScriptedServer({"ask": ask_name, "sample": sample}, **options)


@pytest.mark.parametrize("modern", [False, True])
async def test_a_question_that_the_client_cannot_be_asked_is_answered_with_the_tools_of_another(
    clock: FakeClock, modern: bool
) -> None:
    async with front({"demo": server(modern=modern)}, clock=clock) as world:
        tools = await world.handshake()
        await tools.call("list_tools")
        plain = await world.handshake(url="/mcp/server/demo")
        waiting = tools.tool("await_activity", timeout_ms=60_000)
        await settle()
        asked = plain.request("tools/call", CALL_ASK)
        woken = (await (waiting).result())["content"][0]["text"]
        assert '"event_type":"elicitation_request"' in woken
        listed = await tools.call("get_elicitations")
        (question,) = listed.json["elicitations"]
        assert (question["server"], question["message"], question["task_id"]) == ("demo", "Name?", None)
        assert listed.pending["elicitations"] == [question]
        answered = await tools.call(
            "respond_to_elicitation", request_id=question["request_id"], action="accept", content={"name": "Ada"}
        )
        assert answered.json["success"] is True
        assert answered.json["task_id"] is None
        assert await asked.result() == text_result("hello Ada")
        after = await tools.call("get_elicitations")
        assert after.json == {"elicitations": []}
        assert after.event_types == []


async def test_sampling_is_posted_and_rejected_likewise(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        tools = await world.handshake()
        plain = await world.handshake(url="/mcp/all")
        for reject in (False, True):
            asked = plain.request("tools/call", {"name": "demo__sample", "arguments": {}})
            await settle()
            (question,) = (await tools.call("get_sampling_requests")).json["sampling_requests"]
            if reject:
                await tools.call("respond_to_sampling", request_id=question["request_id"], reject="no")
                assert (await asked.response())["error"]["code"] == -1
            else:
                await tools.call("respond_to_sampling", request_id=question["request_id"], content="hi")
                assert await asked.result() == text_result("hi")


async def test_a_client_of_the_modern_era_has_it_in_every_workspace(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        one, two = world.modern(url="/mcp?workspace=one"), world.modern(url="/mcp?workspace=two")
        await one.call("list_tasks")
        plain = await world.handshake(url="/mcp/server/demo")
        asked = plain.request("tools/call", CALL_ASK)
        await settle()
        first, second = await one.call("get_elicitations"), await two.call("get_elicitations")
        assert first.json == second.json
        assert "elicitation_request" in first.event_types
        # The workspace was opened after the question came, and is told all the same.
        assert "elicitation_request" in second.event_types
        (question,) = first.json["elicitations"]
        await two.call("respond_to_elicitation", request_id=question["request_id"], action="decline")
        assert await asked.result() == text_result("hello decline")
        told = await one.call("get_elicitations")
        assert told.json == {"elicitations": []}
        assert [(event["type"], event["data"]) for event in told.events] == [
            ("question_withdrawn", {"request_id": question["request_id"], "reason": "it was answered elsewhere"})
        ]
        assert "question_withdrawn" not in (await two.call("get_elicitations")).event_types


async def test_a_modern_client_that_cannot_be_asked_has_its_question_posted_for_the_others(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        tools = await world.handshake()
        plain = world.modern(url="/mcp/server/demo")
        asked = plain.request("tools/call", CALL_ASK)
        await settle()
        (question,) = (await tools.call("get_elicitations")).json["elicitations"]
        # Its own workspace is one among others.
        same = await world.modern().call("get_elicitations")
        assert same.json == {"elicitations": [question]}
        assert same.event_types.count("elicitation_request") == 1
        await tools.call("respond_to_elicitation", request_id=question["request_id"], action="cancel")
        assert (await asked.result())["content"] == text_result("hello cancel")["content"]


async def test_what_the_client_is_asked_itself_is_posted_as_well_and_the_first_answer_wins(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        tools = await world.handshake()
        natively = await world.handshake({"elicitation": {}}, url="/mcp/server/demo")
        back = world.modern({"elicitation": {"form": {}}}, url="/mcp/server/demo")
        first = natively.request("tools/call", CALL_ASK)
        second = back.request("tools/call", CALL_ASK)
        await settle()
        asked = await second.result()
        assert asked["resultType"] == "input_required"
        one, two = (await tools.call("get_elicitations")).json["elicitations"]
        assert list(asked["inputRequests"]) == [two["request_id"]]
        await natively.answer(first.messages[0], {"action": "accept", "content": {"name": "Ada"}})
        assert await first.result() == text_result("hello Ada")
        answered = await tools.call("get_elicitations")
        assert answered.json == {"elicitations": [two]}
        assert [event["data"]["request_id"] for event in answered.events] == [one["request_id"]]
        await tools.call("respond_to_elicitation", request_id=two["request_id"], action="decline")
        again = {**CALL_ASK, "requestState": asked["requestState"], "inputResponses": {}}
        result = await back.request("tools/call", again).result()
        assert result["content"] == text_result("hello decline")["content"]


async def test_a_question_that_was_asked_natively_is_withdrawn_when_the_tools_answer_it(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        tools = await world.handshake()
        natively = await world.handshake({"elicitation": {}}, url="/mcp/server/demo")
        exchange = natively.request("tools/call", CALL_ASK)
        await settle()
        (question,) = (await tools.call("get_elicitations")).json["elicitations"]
        await tools.call("respond_to_elicitation", request_id=question["request_id"], action="decline")
        assert await exchange.result() == text_result("hello decline")
        asked, withdrawn, _ = exchange.messages
        assert (withdrawn["method"], withdrawn["params"]["requestId"]) == ("notifications/cancelled", asked["id"])


async def test_a_question_is_posted_when_the_client_that_was_asked_is_gone(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        tools = await world.handshake()
        natively = await world.handshake({"elicitation": {}}, url="/mcp/server/demo")
        asked = natively.request("tools/call", CALL_ASK)
        await settle()
        asked.drop()
        await clock.advance(60)
        (question,) = (await tools.call("get_elicitations")).json["elicitations"]
        assert question["task_id"] is None
        await natively.delete().done.wait()
        await settle()
        gone = await tools.call("get_elicitations")
        assert gone.json == {"elicitations": []}
        assert gone.event_types == ["elicitation_expired"]


async def test_an_end_without_an_answer_is_told_to_all_and_a_late_answer_is_refused(clock: FakeClock) -> None:
    settings = HubSettings(limits=SessionLimits(question_timeout_ms=5000))
    async with front({"demo": server()}, clock=clock, settings=settings) as world:
        tools = await world.handshake()
        plain = await world.handshake(url="/mcp/server/demo")
        asked = plain.request("tools/call", CALL_ASK)
        await settle()
        (question,) = (await tools.call("get_elicitations")).json["elicitations"]
        refused = await tools.call(
            "respond_to_elicitation", request_id=question["request_id"], action="accept", content={"name": 7}
        )
        assert refused.error_code == "INVALID_ARGUMENTS"
        await clock.advance(5)
        assert (await asked.response())["error"]["code"] != 0
        late = await tools.call("respond_to_elicitation", request_id=question["request_id"], action="decline")
        assert late.error_code == "REQUEST_NOT_FOUND"
        assert "expired" in late.json["error"]["message"]
        assert late.event_types == ["elicitation_expired"]
        wrong = await tools.call("respond_to_sampling", request_id=question["request_id"], content="x")
        assert wrong.error_code == "REQUEST_NOT_FOUND"


async def test_a_call_that_is_cancelled_takes_its_question_off_the_board(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        tools = await world.handshake()
        plain = await world.handshake(url="/mcp/server/demo")
        asked = plain.request("tools/call", CALL_ASK, request_id="c")
        await settle()
        assert len((await tools.call("get_elicitations")).json["elicitations"]) == 1
        await plain.notify("notifications/cancelled", {"requestId": "c", "reason": "changed my mind"})
        await asked.done.wait()
        after = await tools.call("get_elicitations")
        assert after.json == {"elicitations": []}
        assert after.event_types == ["question_withdrawn"]


async def test_nobody_but_the_principal_sees_or_answers_it(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        stranger = await world.handshake(principal="eve")
        friend = await world.handshake(principal="ada")
        plain = await world.handshake(url="/mcp/server/demo", principal="ada")
        plain.request("tools/call", CALL_ASK)
        await settle()
        (question,) = (await friend.call("get_elicitations")).json["elicitations"]
        seen = await stranger.call("get_elicitations")
        assert seen.json == {"elicitations": []}
        assert "elicitation_request" not in seen.event_types
        denied = await stranger.call("respond_to_elicitation", request_id=question["request_id"], action="decline")
        assert denied.error_code == "REQUEST_NOT_FOUND"


async def test_no_answer_carries_an_id_of_the_session_that_asked(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        tools = await world.handshake()
        plain = await world.handshake(url="/mcp/server/demo")
        plain.request("tools/call", CALL_ASK)
        await settle()
        (task,) = plain.session.state.tasks.live()
        (question,) = (await tools.call("get_elicitations")).json["elicitations"]
        await tools.call("respond_to_elicitation", request_id=question["request_id"], action="decline")
        await tools.call("await_activity", timeout_ms=0)
        said = b"".join(exchange.body for exchange in world.web.exchanges if exchange.status == 200)
        assert task.task_id.encode() not in said
        ids = [exchange.headers.get("mcp-session-id") for exchange in world.web.exchanges]
        assert sorted(one for one in ids if one) == sorted([tools.session_id, plain.session_id])
        assert plain.session_id.encode() not in said


async def test_it_stands_with_the_tasks_of_its_server_too(clock: FakeClock) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"ask": ask_name, "slow": gate})}, clock=clock) as world:
        tools = await world.handshake()
        plain = await world.handshake(url="/mcp/server/demo")
        plain.request("tools/call", CALL_ASK)
        await settle()
        started = await tools.call("execute_tool", server="demo", tool="slow", timeout_ms=0)
        (question,) = started.part("pending_on_server")["elicitations_for_server"]
        assert question["message"] == "Name?"
        shown = await tools.call("get_task", task_id=started.task["task_id"])
        assert shown.json["pending_elicitations_for_server"] == [question]
        (listed,) = (await tools.call("list_servers")).json["servers"]
        assert listed["pending_questions"] == 1
        gate.opened.set()


async def test_a_question_that_outlives_the_hub_is_on_the_board_again_and_not_told_twice(clock: FakeClock) -> None:
    store, demo = MemoryStore(), server(modern=True)
    async with front({"demo": demo}, clock=clock, store=store) as world:
        tools = await world.handshake()
        plain = await world.handshake(url="/mcp/server/demo")
        plain.request("tools/call", CALL_ASK)
        await settle()
        before = await tools.call("get_elicitations")
        assert "elicitation_request" in before.event_types
        (question,) = before.json["elicitations"]
    async with front({"demo": demo}, clock=clock, store=store) as world:
        tools.world = plain.world = world
        after = await tools.call("get_elicitations")
        assert after.json["elicitations"] == [question]
        assert "elicitation_request" not in after.event_types
        answered = await tools.call(
            "respond_to_elicitation", request_id=question["request_id"], action="accept", content={"name": "Ada"}
        )
        assert answered.json["success"] is True
        await settle()
        (task,) = plain.session.state.tasks.find(terminal=True)
        assert (task.status, task.result) == ("completed", text_result("hello Ada"))


async def test_a_question_that_comes_of_no_call_is_posted(clock: FakeClock) -> None:
    answers: list[Any] = []
    demo = server()
    async with front({"demo": demo}, clock=clock) as world:
        tools = await world.handshake()
        plain = await world.handshake(url="/mcp/server/demo")
        await plain.request("tools/list").result()
        *_, (_, peer) = demo._channels

        async def ask() -> None:
            answers.append(await peer.request("elicitation/create", form("Out of the blue?", x="string")))

        plain.session.spawn(ask)
        await settle()
        (question,) = (await tools.call("get_elicitations")).json["elicitations"]
        await tools.call("respond_to_elicitation", request_id=question["request_id"], action="decline")
        await settle()
        assert answers == [{"action": "decline"}]
