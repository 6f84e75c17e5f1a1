"""Handshake clients that can be asked are asked on their call's own stream, and wherever else they look."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from emceepee.config import HubSettings
from emceepee.core.state import SessionLimits
from emceepee.errors import PeerError
from emceepee.front.client import ClientFacts
from emceepee.testing import Answer, FakeClock, ScriptedCall, ScriptedServer, form, settle
from tests.front.asgi import HttpExchange
from tests.front.clients import Handshake, World, front
from tests.interaction.gates import Gate, ask_name

pytestmark = pytest.mark.anyio

CAN_ELICIT: dict[str, Any] = {"elicitation": {}}
ADA = {"action": "accept", "content": {"name": "Ada"}}


def asked_in(exchange: HttpExchange) -> list[dict[str, Any]]:
    return [message for message in exchange.messages if "method" in message and "id" in message]


def withdrawn_in(exchange: HttpExchange) -> list[str]:
    return [
        message["params"]["requestId"]
        for message in exchange.messages
        if message.get("method") == "notifications/cancelled"
    ]


async def asked(world: World, client: Handshake, **options: Any) -> tuple[HttpExchange, dict[str, Any]]:
    """A call that is open, and what its client was asked on its stream."""
    await client.call("list_tools")
    exchange = client.execute("demo", "ask", **options)
    await settle()
    (question,) = asked_in(exchange)
    return exchange, question


def server() -> ScriptedServer:
    return ScriptedServer({"ask": ask_name})


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18"])
async def test_the_answer_goes_to_the_server_and_the_result_to_the_call(
    clock: FakeClock, modern: bool, version: str
) -> None:
    demo = ScriptedServer({"ask": ask_name}, modern=modern)
    async with front({"demo": demo}, clock=clock) as world:
        client = await world.handshake(CAN_ELICIT, version=version)
        exchange, question = await asked(world, client)
        assert question["method"] == "elicitation/create"
        assert question["params"] == form("Name?", name="string")
        # It stands in the list as well, and is of no task, for there is none.
        listed = (await client.call("get_elicitations")).json["elicitations"]
        assert [(one["message"], one["task_id"]) for one in listed] == [("Name?", None)]
        await client.answer(question, ADA)
        assert (await exchange.result())["content"][0]["text"] == "hello Ada"
        assert withdrawn_in(exchange) == []
        assert (await client.call("list_tasks", include_completed=True)).json == {"tasks": []}


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_no_is_an_answer(clock: FakeClock, action: str) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        client = await world.handshake(CAN_ELICIT)
        exchange, question = await asked(world, client)
        await client.answer(question, {"action": action})
        assert (await exchange.result())["content"][0]["text"] == f"hello {action}"


async def test_an_answer_by_tool_withdraws_what_was_asked_natively(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        client = await world.handshake(CAN_ELICIT)
        exchange, question = await asked(world, client)
        (listed,) = (await client.call("get_elicitations")).json["elicitations"]
        await client.call("respond_to_elicitation", request_id=listed["request_id"], **ADA)
        assert (await exchange.result())["content"][0]["text"] == "hello Ada"
        assert withdrawn_in(exchange) == [question["id"]]
        # One that comes after all is dropped.
        await client.answer(question, {"action": "decline"})


@pytest.mark.parametrize("native_first", [True, False])
async def test_of_two_answers_at_once_the_first_wins_and_the_other_is_told_or_dropped(
    clock: FakeClock, native_first: bool
) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        client = await world.handshake(CAN_ELICIT)
        exchange, question = await asked(world, client)
        (listed,) = (await client.call("get_elicitations")).json["elicitations"]
        native = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}
        by_tool = {"request_id": listed["request_id"], "action": "cancel"}
        open_questions = client.session.state.questions
        if native_first:
            first, second = client.post(native), client.tool("respond_to_elicitation", **by_tool)
        else:
            second = client.tool("respond_to_elicitation", **by_tool)
            while len(open_questions):
                await checkpoint()
            first = client.post(native)
        # The one has been taken, or is about to be, and nobody knows it yet.
        assert not exchange.is_complete
        assert not second.is_complete
        answer = Answer(await second.result())
        await first.done.wait()
        assert first.status == 202
        text = (await exchange.result())["content"][0]["text"]
        if native_first:
            assert (text, answer.error_code) == ("hello decline", "REQUEST_NOT_FOUND")
            assert withdrawn_in(exchange) == []
        else:
            assert (text, answer.is_error) == ("hello cancel", False)
            assert withdrawn_in(exchange) == [question["id"]]


async def test_an_error_as_an_answer_reaches_the_server_with_its_code(clock: FakeClock) -> None:
    errors: list[PeerError] = []

    async def ask(call: ScriptedCall) -> str:
        try:
            await call.elicit(form("Name?", name="string"))
        except PeerError as error:
            errors.append(error)
        return "went on"

    async with front({"demo": ScriptedServer({"ask": ask})}, clock=clock) as world:
        client = await world.handshake(CAN_ELICIT)
        exchange, question = await asked(world, client)
        await client.refuse(question, -32042, "not today", data={"until": "tomorrow"})
        assert (await exchange.result())["content"][0]["text"] == "went on"
        (refused,) = errors
        assert (refused.code, refused.message, refused.data) == (-32042, "not today", {"until": "tomorrow"})
        exchange, question = await asked(world, client)
        await client.answer(question, {"content": {"name": "Ada"}})
        assert (await exchange.result())["content"][0]["text"] == "went on"
        assert errors[1].code == -32603


async def test_at_promotion_the_question_is_withdrawn_before_the_response_and_stays_in_the_list(
    clock: FakeClock,
) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        client = await world.handshake(CAN_ELICIT)
        exchange, question = await asked(world, client, timeout_ms=5000)
        await clock.advance(5)
        answer = Answer(await exchange.result())
        assert [message.get("method") for message in exchange.messages] == [
            "elicitation/create",
            "notifications/cancelled",
            None,
        ]
        assert withdrawn_in(exchange) == [question["id"]]
        (listed,) = answer.pending["elicitations"]
        assert listed["task_id"] == answer.task["task_id"]
        # Too late, by this way.
        await client.answer(question, {"action": "decline"})
        await client.call("respond_to_elicitation", request_id=listed["request_id"], **ADA)
        result = await client.call("get_task_result", task_id=answer.task["task_id"])
        assert result.texts[0] == "hello Ada"


async def test_a_client_that_is_cut_off_finds_the_question_on_the_stream_that_it_resumes(clock: FakeClock) -> None:
    go_on = anyio.Event()

    async def ask(call: ScriptedCall) -> str:
        await go_on.wait()
        return await ask_name(call)

    async with front({"demo": ScriptedServer({"ask": ask})}, clock=clock) as world:
        client = await world.handshake(CAN_ELICIT)
        await client.call("list_tools")
        exchange = client.execute("demo", "ask")
        await clock.advance(1.1)
        exchange.drop()
        await settle()
        go_on.set()
        await settle()
        resumed = client.get(exchange.last_event_id)
        await settle()
        (question,) = asked_in(resumed)
        await client.answer(question, ADA)
        assert (await resumed.result())["content"][0]["text"] == "hello Ada"


async def test_the_question_of_a_client_that_is_gone_waits_with_the_task(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        client = await world.handshake(CAN_ELICIT)
        exchange, question = await asked(world, client)
        exchange.drop()
        await clock.advance(11)
        listed = await client.call("get_elicitations")
        (waiting,) = listed.json["elicitations"]
        (task,) = client.session.state.tasks.live()
        assert waiting["task_id"] == task.task_id
        await client.answer(question, {"action": "decline"})
        await client.call("respond_to_elicitation", request_id=waiting["request_id"], **ADA)
        assert (await client.call("get_task_result", task_id=task.task_id)).texts[0] == "hello Ada"


async def test_what_the_server_takes_back_or_gives_up_is_withdrawn(clock: FakeClock) -> None:
    async def impatient(call: ScriptedCall) -> str:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call.elicit, form("Name?", name="string"))
            await given_up.wait()
            tasks.cancel_scope.cancel()
        return "without you"

    given_up = anyio.Event()
    async with front({"demo": ScriptedServer({"ask": impatient})}, clock=clock) as world:
        client = await world.handshake(CAN_ELICIT)
        exchange, question = await asked(world, client)
        given_up.set()
        result = Answer(await exchange.result())
        assert result.texts[0] == "without you"
        assert withdrawn_in(exchange) == [question["id"]]
        assert "question_withdrawn" in result.event_types


async def test_a_question_that_nobody_answers_in_time_is_withdrawn(clock: FakeClock) -> None:
    settings = HubSettings(limits=SessionLimits(question_timeout_ms=3000))
    async with front({"demo": server()}, clock=clock, settings=settings) as world:
        client = await world.handshake(CAN_ELICIT)
        exchange, question = await asked(world, client)
        await clock.advance(3)
        await exchange.result()
        assert withdrawn_in(exchange) == [question["id"]]


async def test_a_cancelled_call_takes_its_question_along(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        client = await world.handshake(CAN_ELICIT)
        await client.call("list_tools")
        exchange = client.request(
            "tools/call",
            {"name": "execute_tool", "arguments": {"server": "demo", "tool": "ask"}},
            request_id="x",
        )
        await settle()
        assert len(asked_in(exchange)) == 1
        await client.notify("notifications/cancelled", {"requestId": "x"})
        await settle()
        assert exchange.done.is_set()
        assert (await client.call("get_elicitations")).json == {"elicitations": []}
        await client.notify("notifications/cancelled", {"requestId": True})
        await client.notify("notifications/cancelled", {})


async def test_of_several_calls_each_is_asked_what_is_its_own(clock: FakeClock) -> None:
    async def ask(call: ScriptedCall) -> str:
        answer = await call.elicit(form(f"Number {call.arguments['n']}?", n="integer"))
        return str(answer["content"]["n"])

    async with front({"demo": ScriptedServer({"ask": ask}, modern=True)}, clock=clock) as world:
        client = await world.handshake(CAN_ELICIT)
        await client.call("list_tools")
        exchanges = [client.execute("demo", "ask", {"n": number}) for number in range(4)]
        await settle()
        for number, exchange in reversed(list(enumerate(exchanges))):
            (question,) = asked_in(exchange)
            assert question["params"]["message"] == f"Number {number}?"
            await client.answer(question, {"action": "accept", "content": {"n": number * 10}})
        for number, exchange in enumerate(exchanges):
            assert (await exchange.result())["content"][0]["text"] == str(number * 10)


async def test_a_question_of_nobody_knows_which_call_moves_on_when_its_stream_ends(clock: FakeClock) -> None:
    gates = [Gate(), Gate()]
    demo = ScriptedServer({"a": gates[0], "b": gates[1]})
    answers: list[Any] = []
    async with front({"demo": demo}, clock=clock) as world:
        client = await world.handshake(CAN_ELICIT)
        await client.call("list_tools")
        first = client.execute("demo", "a")
        await gates[0].reached.wait()
        second = client.execute("demo", "b")
        await gates[1].reached.wait()
        ((_, peer),) = demo._channels

        async def ask() -> None:
            answers.append(await peer.request("elicitation/create", form("Who?", name="string")))

        client.session.spawn(ask)
        await settle()
        (question,) = asked_in(first)
        assert asked_in(second) == []
        gates[0].opened.set()
        await first.result()
        await settle()
        assert withdrawn_in(first) == [question["id"]]
        (moved,) = asked_in(second)
        await client.answer(question, {"action": "decline"})
        await client.answer(moved, ADA)
        await settle()
        assert answers == [ADA]
        gates[1].opened.set()
        await second.result()


async def test_only_the_session_that_was_asked_can_answer(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        client, other = await world.handshake(CAN_ELICIT), await world.handshake(CAN_ELICIT)
        exchange, question = await asked(world, client)
        await other.answer(question, {"action": "decline"})
        await settle()
        assert not exchange.done.is_set()
        await client.answer(question, ADA)
        await exchange.result()


# Capabilities


async def elicit_url(call: ScriptedCall) -> str:
    params = {"mode": "url", "message": "Go", "url": "https://example.com", "elicitationId": "1"}
    return str((await call.elicit(params))["action"])


async def elicit_oddly(call: ScriptedCall) -> str:
    return str((await call.elicit({"mode": ["form"], "message": "?"}))["action"])


async def sample(call: ScriptedCall) -> str:
    return str((await call.sample({"messages": [], "maxTokens": 1}))["model"])


async def sample_with_tools(call: ScriptedCall) -> str:
    tools = [{"name": "t", "inputSchema": {"type": "object"}}]
    return str((await call.sample({"messages": [], "maxTokens": 1, "tools": tools}))["model"])


ASKING = {"form": ask_name, "url": elicit_url, "odd": elicit_oddly, "sample": sample, "tools": sample_with_tools}


@pytest.mark.parametrize(
    ("capabilities", "can"),
    [
        ({}, set()),
        ({"elicitation": {}}, {"form"}),
        ({"elicitation": {"form": {}}}, {"form"}),
        ({"elicitation": {"url": {}}}, {"url"}),
        ({"elicitation": {"form": {}, "url": {}}}, {"form", "url"}),
        ({"elicitation": None}, set()),
        ({"sampling": {}}, {"sample"}),
        ({"sampling": {"tools": {}}}, {"sample", "tools"}),
        ({"sampling": True}, set()),
    ],
)
async def test_a_client_is_never_asked_what_it_has_not_declared(
    clock: FakeClock, capabilities: dict[str, Any], can: set[str]
) -> None:
    async with front({"demo": ScriptedServer(ASKING)}, clock=clock) as world:
        client = await world.handshake(capabilities)
        await client.call("list_tools")
        asked_natively = set()
        for tool in ASKING:
            exchange = client.execute("demo", tool)
            await settle()
            if exchange.done.is_set():
                # It was promoted instead, and the question waits in the list.
                answer = Answer(await exchange.result())
                assert answer.task["status"] == "working"
                assert asked_in(exchange) == []
                await client.call("cancel_task", task_id=answer.task["task_id"])
            else:
                asked_natively.add(tool)
                await client.refuse(asked_in(exchange)[0], -1, "no")
                await exchange.result()
        assert asked_natively == can


def test_what_a_client_can_be_asked_is_what_it_said() -> None:
    facts = ClientFacts("modern", "2026-07-28", {"elicitation": {"url": {}}, "sampling": {}})
    assert facts.can_be_asked("elicitation", {"mode": "url"})
    assert not facts.can_be_asked("elicitation", {})
    assert not facts.can_be_asked("elicitation", {"mode": None})
    assert facts.can_be_asked("sampling", {"tools": []})
    assert not facts.can_be_asked("sampling", {"toolChoice": {"mode": "auto"}})


# Waiting for a task's result


async def test_whoever_waits_for_the_result_of_its_task_is_asked_there(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        client = await world.handshake(CAN_ELICIT)
        params = {"name": "execute_tool", "arguments": {"server": "demo", "tool": "ask"}, "task": {}}
        task = (await client.request("tools/call", params).result())["task"]
        await settle()
        assert (await client.request("tasks/get", {"taskId": task["taskId"]}).result())["status"] == "input_required"
        first = client.request("tasks/result", {"taskId": task["taskId"]})
        await settle()
        (question,) = asked_in(first)
        related = question["params"]["_meta"]["io.modelcontextprotocol/related-task"]
        assert related == {"taskId": task["taskId"]}
        # A second one takes the question over, and the end of the first does not take it away again.
        second = client.request("tasks/result", {"taskId": task["taskId"]})
        await settle()
        assert withdrawn_in(first) == [question["id"]]
        (again,) = asked_in(second)
        first.drop()
        await clock.advance(15)
        assert withdrawn_in(second) == []
        await client.answer(again, ADA)
        result = await second.result()
        assert result["content"][0]["text"] == "hello Ada"


async def test_a_client_that_stops_waiting_for_the_result_leaves_the_question_in_the_list(clock: FakeClock) -> None:
    async with front({"demo": server()}, clock=clock) as world:
        client = await world.handshake(CAN_ELICIT)
        params = {"name": "execute_tool", "arguments": {"server": "demo", "tool": "ask"}, "task": {}}
        task = (await client.request("tools/call", params).result())["task"]
        waiting = client.request("tasks/result", {"taskId": task["taskId"]}, request_id="w")
        await settle()
        (question,) = asked_in(waiting)
        await client.notify("notifications/cancelled", {"requestId": "w"})
        await settle()
        assert withdrawn_in(waiting) == [question["id"]]
        (listed,) = (await client.call("get_elicitations")).json["elicitations"]
        await client.call("respond_to_elicitation", request_id=listed["request_id"], **ADA)
        result = await client.request("tasks/result", {"taskId": task["taskId"]}).result()
        assert result["content"][0]["text"] == "hello Ada"
