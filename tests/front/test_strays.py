"""Questions of unknown belonging: several calls are in flight, and the server does not say which of them asks."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from emceepee.protocol import RELATED_TASK_META_KEY
from emceepee.testing import Answer, FakeClock, ScriptedServer, running_hub, settle
from tests.front.clients import TASKS, Handshake, front
from tests.front.test_asking import asked_in, withdrawn_in
from tests.interaction.gates import Gate, ask_name

pytestmark = pytest.mark.anyio

CAN_ELICIT: dict[str, Any] = {"elicitation": {"form": {}}}
ADA = {"action": "accept", "content": {"name": "Ada"}}
URL = "/mcp/server/demo"


def text_of(result: dict[str, Any]) -> str:
    text: str = result["content"][0]["text"]
    return text


async def test_a_modern_client_is_asked_while_another_call_runs(clock: FakeClock) -> None:
    slow = Gate()
    async with front({"demo": ScriptedServer({"slow": slow, "ask": ask_name})}, clock=clock) as world:
        client = world.modern(CAN_ELICIT, url=URL)
        other = client.request("tools/call", {"name": "slow"})
        await slow.reached.wait()
        ask = client.request("tools/call", {"name": "ask"})
        await settle()
        # Either of the two may ask it: its answer reaches the server all the same.
        first = await (other if other.is_complete else ask).result()
        name = "slow" if other.is_complete else "ask"
        assert first["resultType"] == "input_required"
        answers = dict.fromkeys(first["inputRequests"], ADA)
        retry = client.request(
            "tools/call", {"name": name, "requestState": first["requestState"], "inputResponses": answers}
        )
        await settle()
        slow.opened.set()
        ends = [await retry.result(), await (ask if name == "slow" else other).result()]
        assert sorted(map(text_of, ends)) == ["done", "hello Ada"]


async def test_two_calls_that_both_ask_are_both_answered(clock: FakeClock) -> None:
    async with front({"demo": ScriptedServer({"ask": ask_name})}, clock=clock) as world:
        client = world.modern(CAN_ELICIT, url=URL)
        calls = [client.request("tools/call", {"name": "ask"}) for _ in range(2)]
        results = []

        async def see_through(call: Any) -> None:
            result = await call.result()
            while result["resultType"] == "input_required":
                answers = dict.fromkeys(result["inputRequests"], ADA)
                again = {"name": "ask", "requestState": result["requestState"], "inputResponses": answers}
                result = await client.request("tools/call", again).result()
            results.append(text_of(result))

        async with anyio.create_task_group() as tasks:
            for call in calls:
                tasks.start_soon(see_through, call)
        assert results == ["hello Ada", "hello Ada"]


async def test_a_client_with_the_tasks_extension_finds_the_question_in_a_task(clock: FakeClock) -> None:
    slow = Gate()
    async with front({"demo": ScriptedServer({"slow": slow, "ask": ask_name})}, clock=clock) as world:
        client = world.modern({**CAN_ELICIT, **TASKS}, url=URL)
        other = client.request("tools/call", {"name": "slow"})
        await slow.reached.wait()
        ask = client.request("tools/call", {"name": "ask"})
        await settle()
        created = await (other if other.is_complete else ask).result()
        assert created["resultType"] == "task"
        task = await client.request("tasks/get", {"taskId": created["taskId"]}).result()
        ((key, request),) = task["inputRequests"].items()
        assert request["params"]["message"] == "Name?"
        await client.request("tasks/update", {"taskId": created["taskId"], "inputResponses": {key: ADA}}).result()
        slow.opened.set()
        await settle()
        task = await client.request("tasks/get", {"taskId": created["taskId"]}).result()
        assert (task["status"], "inputRequests" in task) == ("completed", False)


async def test_the_call_that_is_left_is_the_one_that_asks(clock: FakeClock) -> None:
    """A client of the tools need not wait for the timeout once it is clear whose question it is."""
    slow = Gate()
    async with running_hub({"demo": ScriptedServer({"slow": slow, "ask": ask_name})}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        answers: dict[str, Answer] = {}

        async def execute(tool: str) -> None:
            answers[tool] = await client.execute("demo", tool)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(execute, "slow")
            await slow.reached.wait()
            tasks.start_soon(execute, "ask")
            await settle()
            assert answers == {}
            slow.opened.set()
        assert answers["slow"].texts[0] == "done"
        task_id = answers["ask"].task["task_id"]
        (question,) = answers["ask"].pending["elicitations"]
        assert (question["task_id"], question["certainty"]) == (task_id, "unknown")
        await client.call("respond_to_elicitation", request_id=question["request_id"], **ADA)
        assert (await client.call("get_task_result", task_id=task_id)).texts[0] == "hello Ada"


async def test_a_question_outlives_the_call_that_it_is_shown_with(clock: FakeClock) -> None:
    first, second = Gate(), Gate()
    server = ScriptedServer({"first": first, "second": second, "ask": ask_name})
    async with front({"demo": server}, clock=clock) as world:
        client = world.modern({**CAN_ELICIT, **TASKS}, url=URL)
        calls = [client.request("tools/call", {"name": "first"})]
        await first.reached.wait()
        calls.append(client.request("tools/call", {"name": "second"}))
        await second.reached.wait()
        calls.append(client.request("tools/call", {"name": "ask"}))
        await settle()
        # The oldest call lends itself, and ends.
        first_task = (await calls[0].result())["taskId"]
        first.opened.set()
        await settle()
        ended = await client.request("tasks/get", {"taskId": first_task}).result()
        assert ended["status"] == "completed"
        second_task = (await calls[1].result())["taskId"]
        task = await client.request("tasks/get", {"taskId": second_task}).result()
        ((key, _),) = task["inputRequests"].items()
        await client.request("tasks/update", {"taskId": second_task, "inputResponses": {key: ADA}}).result()
        assert text_of(await calls[2].result()) == "hello Ada"
        second.opened.set()


async def test_a_call_that_was_abandoned_with_its_question_does_not_take_the_next_ones_question(
    clock: FakeClock,
) -> None:
    async with front({"demo": ScriptedServer({"ask": ask_name})}, clock=clock) as world:
        client = world.modern(CAN_ELICIT, url=URL)
        abandoned = await client.request("tools/call", {"name": "ask"}).result()
        assert abandoned["resultType"] == "input_required"
        second = await client.request("tools/call", {"name": "ask"}).result()
        assert second["resultType"] == "input_required"
        answers = dict.fromkeys(second["inputRequests"], ADA)
        retry = {"name": "ask", "requestState": second["requestState"], "inputResponses": answers}
        assert text_of(await client.request("tools/call", retry).result()) == "hello Ada"


async def test_of_two_tasks_that_ask_each_has_a_question(clock: FakeClock) -> None:
    async with front({"demo": ScriptedServer({"ask": ask_name})}, clock=clock) as world:
        client = world.modern({**CAN_ELICIT, **TASKS}, url=URL)
        ids = [(await client.request("tools/call", {"name": "ask"}).result())["taskId"] for _ in range(3)]
        asked = [list((await client.task(task_id))["inputRequests"]) for task_id in ids]
        assert [len(keys) for keys in asked] == [1, 1, 1]


CALL_AS_TASK = [
    pytest.param(URL, {"name": "ask", "task": {}}, id="transparent"),
    pytest.param(
        "/mcp", {"name": "execute_tool", "arguments": {"server": "demo", "tool": "ask"}, "task": {}}, id="tools"
    ),
]


async def two_tasks(client: Handshake, params: dict[str, Any]) -> list[str]:
    tasks = [(await client.request("tools/call", params).result())["task"] for _ in range(2)]
    await settle()
    return [task["taskId"] for task in tasks]


@pytest.mark.parametrize(("url", "params"), CALL_AS_TASK)
async def test_two_tasks_of_a_handshake_client_both_ask_on_their_streams(
    clock: FakeClock, url: str, params: dict[str, Any]
) -> None:
    async with front({"demo": ScriptedServer({"ask": ask_name})}, clock=clock) as world:
        client = await world.handshake(CAN_ELICIT, url=url)
        ids = await two_tasks(client, params)
        for task_id in ids:
            assert (await client.request("tasks/get", {"taskId": task_id}).result())["status"] == "input_required"
        streams = [client.request("tasks/result", {"taskId": task_id}) for task_id in ids]
        await settle()
        for stream, task_id in zip(streams, ids, strict=True):
            (question,) = asked_in(stream)
            assert question["params"]["_meta"][RELATED_TASK_META_KEY] == {"taskId": task_id}
            await client.answer(question, ADA)
        assert [text_of(await stream.result()) for stream in streams] == ["hello Ada", "hello Ada"]


@pytest.mark.parametrize(("url", "params"), CALL_AS_TASK)
async def test_a_client_that_waits_for_one_of_two_tasks_is_asked_all_that_it_may_wait_for(
    clock: FakeClock, url: str, params: dict[str, Any]
) -> None:
    async with front({"demo": ScriptedServer({"ask": ask_name})}, clock=clock) as world:
        client = await world.handshake(CAN_ELICIT, url=url)
        _, waited_for = await two_tasks(client, params)
        stream = client.request("tasks/result", {"taskId": waited_for})
        await settle()
        for question in asked_in(stream):
            await client.answer(question, ADA)
        assert text_of(await stream.result()) == "hello Ada"


async def test_a_question_moves_to_the_stream_of_the_task_that_is_left(clock: FakeClock) -> None:
    async with front({"demo": ScriptedServer({"ask": ask_name})}, clock=clock) as world:
        client = await world.handshake(CAN_ELICIT, url=URL)
        ids = await two_tasks(client, {"name": "ask", "task": {}})
        streams = [client.request("tasks/result", {"taskId": task_id}) for task_id in ids]
        await settle()
        (question,) = asked_in(streams[1])
        await client.request("tasks/cancel", {"taskId": ids[0]}).result()
        await settle()
        asked = [message for message in asked_in(streams[1]) if message["id"] not in withdrawn_in(streams[1])]
        for question in asked:
            await client.answer(question, ADA)
        assert text_of(await streams[1].result()) == "hello Ada"


async def test_a_client_is_asked_where_it_waits_though_the_question_is_shown_with_another_task(
    clock: FakeClock,
) -> None:
    slow = Gate()
    async with front({"demo": ScriptedServer({"slow": slow, "ask": ask_name})}, clock=clock) as world:
        client = await world.handshake(CAN_ELICIT, url=URL)
        first, second = [
            (await client.request("tools/call", {"name": name, "task": {}}).result())["task"]["taskId"]
            for name in ("slow", "ask")
        ]
        await settle()
        assert (await client.request("tasks/get", {"taskId": first}).result())["status"] == "input_required"
        stream = client.request("tasks/result", {"taskId": second})
        await settle()
        (question,) = asked_in(stream)
        assert question["params"]["_meta"][RELATED_TASK_META_KEY] == {"taskId": second}
        assert (await client.request("tasks/get", {"taskId": first}).result())["status"] == "working"
        await client.answer(question, ADA)
        assert text_of(await stream.result()) == "hello Ada"
        slow.opened.set()
        assert text_of(await client.request("tasks/result", {"taskId": first}).result()) == "done"


async def test_a_client_that_waits_for_one_task_is_asked_one_question_after_the_other(clock: FakeClock) -> None:
    async with front({"demo": ScriptedServer({"ask": ask_name})}, clock=clock) as world:
        client = await world.handshake(CAN_ELICIT, url=URL)
        call = {"name": "ask", "task": {}}
        ids = [(await client.request("tools/call", call).result())["task"]["taskId"] for _ in range(3)]
        await settle()
        stream = client.request("tasks/result", {"taskId": ids[2]})
        await settle()
        answered: set[str] = set()
        while open_now := [question for question in asked_in(stream) if question["id"] not in answered]:
            (question,) = open_now
            answered.add(question["id"])
            await client.answer(question, ADA)
            await settle()
        assert text_of(await stream.result()) == "hello Ada"
