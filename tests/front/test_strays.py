"""Questions of unknown belonging: several calls are in flight, and the server does not say which of them asks."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from emceepee.testing import Answer, FakeClock, ScriptedServer, running_hub, settle
from tests.front.clients import TASKS, front
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
