"""A client's own request to a server as it is: what the server asks back, before and after the call became a task."""

from __future__ import annotations

import pytest

from emceepee.client import OnBehalfOf
from emceepee.hub import Forwarded
from emceepee.testing import FakeClock, ScriptedCall, ScriptedServer, form, running_hub, settle, text_result
from tests.interaction.gates import Gate

pytestmark = pytest.mark.anyio

CLIENT = OnBehalfOf({"elicitation": {"form": {}}})


def request(**params: object) -> Forwarded:
    return Forwarded("tools/call", {"name": "ask", "arguments": {}, **params}, client=CLIENT)


class Asking(Gate):
    """Waits at the gate, and asks then."""

    async def __call__(self, call: ScriptedCall) -> str:
        await super().__call__(call)
        answer = await call.elicit(form("Name?", name="string"), "name")
        return f"hello {answer['content']['name']}"


async def test_a_client_that_waits_is_asked_in_the_servers_own_answer(clock: FakeClock) -> None:
    asking = Asking()
    asking.opened.set()
    async with running_hub({"demo": ScriptedServer({"ask": asking}, modern=True)}, clock=clock) as running:
        session = (await running.client()).session
        call = session.calls.start(session.link("demo"), request(), timeout_ms=None)
        await call.turned.wait()
        assert call.result is not None
        assert call.result["resultType"] == "input_required"
        assert list(call.result["inputRequests"]) == ["name"]


async def test_a_client_that_has_a_task_by_then_is_asked_by_the_task(clock: FakeClock) -> None:
    asking = Asking()
    async with running_hub({"demo": ScriptedServer({"ask": asking}, modern=True)}, clock=clock) as running:
        session = (await running.client()).session
        call = session.calls.start(session.link("demo"), request(), timeout_ms=300)
        await asking.reached.wait()
        await clock.advance(0.3)
        assert call.task_id is not None
        asking.opened.set()
        await settle()
        (question,) = session.state.questions.pending(task_id=call.task_id)
        await session.questions.answer(question.request_id, {"action": "accept", "content": {"name": "Ada"}})
        await settle()
        assert session.state.tasks.get(call.task_id).result == text_result("hello Ada")


async def test_a_round_that_the_client_began_is_not_mixed_with_the_next(clock: FakeClock) -> None:
    asking = Asking()
    server = ScriptedServer({"ask": asking}, modern=True)
    async with running_hub({"demo": server}, clock=clock) as running:
        session = (await running.client()).session
        begun = request(inputResponses={"other": {"action": "accept"}}, requestState='{"before": 1}')
        call = session.calls.start(session.link("demo"), begun, timeout_ms=300)
        await asking.reached.wait()
        await clock.advance(0.3)
        asking.opened.set()
        await settle()
        (question,) = session.state.questions.pending(task_id=call.task_id)
        await session.questions.answer(question.request_id, {"action": "accept", "content": {"name": "Ada"}})
        await settle()
        sent = [params for method, params in server.received if method == "tools/call"]
        assert [sorted(params["inputResponses"]) for params in sent] == [["other"], ["name"]]
