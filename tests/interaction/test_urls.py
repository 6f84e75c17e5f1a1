"""A server's error that names URLs to be opened first is a question; the call goes out again when it is answered."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import pytest

from emceepee.client import ClientOptions, Question, ServerConnection, connect
from emceepee.errors import PeerError
from emceepee.testing import FakeClock, ScriptedCall, ScriptedServer, running_hub, settle, text_result
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

COMPLETE = "notifications/elicitation/complete"


def url(elicitation_id: str = "one") -> dict[str, Any]:
    return {
        "mode": "url",
        "elicitationId": elicitation_id,
        "url": f"https://example.invalid/{elicitation_id}",
        "message": "Log in first",
    }


def required(*elicitations: object) -> PeerError:
    return PeerError(-32042, "URL elicitation required", {"elicitations": list(elicitations)})


class UrlServer(ScriptedServer):
    """Its tool refuses one call after the other as the list says, and does its work then."""

    def __init__(self, *refusals: PeerError) -> None:
        self.refusals = list(refusals)
        self.calls = 0

        async def act(_call: ScriptedCall) -> str:
            self.calls += 1
            if self.refusals:
                raise self.refusals.pop(0)
            return "acted"

        super().__init__({"act": act})


def connected(
    server: ScriptedServer, clock: FakeClock, **options: Any
) -> AbstractAsyncContextManager[ServerConnection]:
    return connect(server.transport(), clock=clock, options=ClientOptions(**options))


class Acting:
    """One call of `act`, while somebody else answers: its result, or its error."""

    def __init__(self, server: ServerConnection) -> None:
        self._server = server
        self.outcome: dict[str, Any] | PeerError | None = None

    async def __call__(self) -> None:
        try:
            self.outcome = await self._server.call_tool("act")
        except PeerError as error:
            self.outcome = error


async def next_question(server: ServerConnection) -> Question:
    return await anext(server.questions())


@requirement("D010-url-required")
async def test_a_call_that_wants_a_url_opened_first_is_sent_again_when_the_user_agrees(clock: FakeClock) -> None:
    scripted = UrlServer(required(url()))
    async with connected(scripted, clock) as server, anyio.create_task_group() as tasks:
        acting = Acting(server)
        tasks.start_soon(acting)
        question = await next_question(server)
        assert (question.kind, question.params, question.arrival) == ("elicitation", url(), "input_required")
        assert question.belongs_to.certainty == "exact"
        await question.accept()
        await settle()
        assert acting.outcome == text_result("acted")
        assert scripted.calls == 2


@requirement("D010-url-required")
@pytest.mark.parametrize("answer", ["decline", "cancel", "reject"])
async def test_who_does_not_open_the_url_gets_the_servers_own_error(clock: FakeClock, answer: str) -> None:
    scripted = UrlServer(required(url()))
    async with connected(scripted, clock) as server, anyio.create_task_group() as tasks:
        acting = Acting(server)
        tasks.start_soon(acting)
        await getattr(await next_question(server), answer)()
        await settle()
        assert isinstance(acting.outcome, PeerError)
        assert (acting.outcome.code, acting.outcome.data) == (-32042, {"elicitations": [url()]})
        assert scripted.calls == 1


async def test_all_of_several_urls_have_to_be_agreed_to(clock: FakeClock) -> None:
    scripted = UrlServer(required(url("one"), url("two")))
    async with connected(scripted, clock) as server, anyio.create_task_group() as tasks:
        acting = Acting(server)
        tasks.start_soon(acting)
        questions = server.questions()
        asked = [await anext(questions), await anext(questions)]
        assert {question.params["elicitationId"] for question in asked} == {"one", "two"}
        await asked[0].accept()
        await settle()
        assert scripted.calls == 1
        await asked[1].accept()
        await settle()
        assert acting.outcome == text_result("acted")


async def test_a_user_who_is_done_at_the_url_need_not_agree_any_more(clock: FakeClock) -> None:
    scripted = UrlServer(required(url()))
    async with connected(scripted, clock) as server, anyio.create_task_group() as tasks:
        acting = Acting(server)
        tasks.start_soon(acting)
        settled: list[str] = []
        (await next_question(server)).on_settled(lambda how, _reason: settled.append(how))
        await scripted.notify(COMPLETE, {"elicitationId": "another"})
        await settle()
        assert settled == []
        await scripted.notify(COMPLETE, {"elicitationId": "one"})
        await settle()
        assert settled == ["withdrawn"]
        assert acting.outcome == text_result("acted")


async def test_a_url_that_was_agreed_to_is_not_asked_for_again_while_the_user_is_there(clock: FakeClock) -> None:
    scripted = UrlServer(required(url()), required(url()))
    async with connected(scripted, clock) as server, anyio.create_task_group() as tasks:
        acting = Acting(server)
        tasks.start_soon(acting)
        await (await next_question(server)).accept()
        await settle()
        assert (scripted.calls, acting.outcome) == (2, None)
        await scripted.notify(COMPLETE, {"elicitationId": "one"})
        await settle()
        assert (scripted.calls, acting.outcome) == (3, text_result("acted"))


async def test_a_server_that_never_tells_that_the_user_is_done_is_asked_again(clock: FakeClock) -> None:
    scripted = UrlServer(required(url()), required(url()))
    async with connected(scripted, clock) as server, anyio.create_task_group() as tasks:
        acting = Acting(server)
        tasks.start_soon(acting)
        await (await next_question(server)).accept()
        await clock.advance(4)
        assert scripted.calls == 2
        await clock.advance(2)
        assert acting.outcome == text_result("acted")


@pytest.mark.parametrize(
    "error",
    [
        required(),
        required("one"),
        required({"mode": "form", "message": "?", "elicitationId": "one", "url": "x"}),
        required({"mode": "url", "url": "https://example.invalid"}),
        required(url(), {"mode": "url", "elicitationId": "two"}),
        PeerError(-32042, "no data"),
        PeerError(-32042, "not an object", [url()]),
        PeerError(-32000, "another", {"elicitations": [url()]}),
    ],
)
async def test_an_error_that_names_no_urls_is_just_an_error(clock: FakeClock, error: PeerError) -> None:
    async with connected(UrlServer(error), clock) as server:
        with pytest.raises(PeerError) as raised:
            await server.call_tool("act")
        assert (raised.value.code, raised.value.data) == (error.code, error.data)


async def test_who_cannot_be_asked_gets_the_error(clock: FakeClock) -> None:
    async with connected(UrlServer(required(url())), clock, elicitation=False) as server:
        with pytest.raises(PeerError) as raised:
            await server.call_tool("act")
        assert raised.value.code == -32042


async def test_who_sees_to_the_urls_itself_gets_the_error(clock: FakeClock) -> None:
    async with connected(UrlServer(required(url())), clock) as server:
        with pytest.raises(PeerError) as raised:
            await server.forward("tools/call", {"name": "act"}, passes_urls=True)
        assert raised.value.data == {"elicitations": [url()]}


# Through the hub


@requirement("D010-url-required")
async def test_a_client_of_tools_alone_answers_with_a_tool(clock: FakeClock) -> None:
    async with running_hub({"demo": UrlServer(required(url()))}, clock=clock) as running:
        client = await running.client()
        promoted = await client.execute("demo", "act")
        (question,) = promoted.pending["elicitations"]
        assert (question["params"], question["task_id"]) == (url(), promoted.task["task_id"])
        await client.call("respond_to_elicitation", request_id=question["request_id"], action="accept")
        fetched = await client.call("get_task_result", task_id=promoted.task["task_id"])
        assert fetched.texts[0] == "acted"


async def test_a_declined_url_fails_the_task_with_the_servers_error(clock: FakeClock) -> None:
    async with running_hub({"demo": UrlServer(required(url()))}, clock=clock) as running:
        client = await running.client()
        promoted = await client.execute("demo", "act")
        (question,) = promoted.pending["elicitations"]
        await client.call("respond_to_elicitation", request_id=question["request_id"], action="decline")
        await settle()
        task = client.session.state.tasks.get(promoted.task["task_id"])
        assert task.status == "failed"
        assert task.peer_error == {
            "code": -32042,
            "message": "URL elicitation required",
            "data": {"elicitations": [url()]},
        }


async def test_a_url_question_outlives_the_connection_that_it_came_over(clock: FakeClock) -> None:
    server = UrlServer(required(url()))
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await running.client()
        promoted = await client.execute("demo", "act")
        (question,) = promoted.pending["elicitations"]
        await server.die()
        await clock.advance(5)
        await client.call("respond_to_elicitation", request_id=question["request_id"], action="accept")
        fetched = await client.call("get_task_result", task_id=promoted.task["task_id"])
        assert fetched.texts[0] == "acted"
