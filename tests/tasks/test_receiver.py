"""Tasks that a server has with us: its questions with `params.task`, and its `tasks/*` requests about them.

The server's side is scripted, request by request; the same against servers that we did not write is in `test_library`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from emceepee.client import ClientOptions, Question, ServerConnection, connect
from emceepee.clock import isoformat
from emceepee.core.deadlines import DeadlineQueue
from emceepee.core.receiver import MAX_TASKS, PAGE_SIZE, TERMINAL, TRANSITIONS, ReceiverTable
from emceepee.errors import ImpossibleTransition, PeerError
from emceepee.ids import secure_ids
from emceepee.testing import FakeClock, ScriptedCall, ScriptedServer, form
from emceepee.wire.peer import Peer
from tests.tasks.scripted import RELATED_TASK, settle

pytestmark = pytest.mark.anyio
requirement = pytest.mark.requirement

LIMIT_S = 60
SAMPLING = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}
ANSWER = {"role": "assistant", "content": {"type": "text", "text": "word"}, "model": "m"}
QUESTIONS: dict[str, dict[str, Any]] = {
    "sampling/createMessage": SAMPLING,
    "elicitation/create": form("Name?", name="string"),
}
ANSWERS: dict[str, dict[str, Any]] = {
    "sampling/createMessage": ANSWER,
    "elicitation/create": {"action": "accept", "content": {"name": "Ada"}},
}
kinds = pytest.mark.parametrize("method", QUESTIONS)

JsonObject = dict[str, Any]


@dataclass
class Pair:
    """Both ends of a connection: the library, and the server's own peer to send requests with."""

    client: ServerConnection
    server: ScriptedServer
    peer: Peer
    questions: AsyncIterator[Question]
    clock: FakeClock

    async def ask(self, method: str = "sampling/createMessage", ttl: object = 60_000) -> JsonObject:
        """Ask with a task; the task that was made of it."""
        params = {**QUESTIONS[method], "task": {} if ttl is None else {"ttl": ttl}}
        created = await self.peer.request(method, params)
        assert list(created) == ["task"]
        task: JsonObject = created["task"]
        return task

    async def question(self) -> Question:
        return await anext(self.questions)

    async def get(self, task: Mapping[str, Any]) -> JsonObject:
        return await self.peer.request("tasks/get", {"taskId": task["taskId"]})

    async def result(self, task: Mapping[str, Any]) -> JsonObject:
        return await self.peer.request("tasks/result", {"taskId": task["taskId"]})

    async def cancel(self, task: Mapping[str, Any]) -> JsonObject:
        return await self.peer.request("tasks/cancel", {"taskId": task["taskId"]})

    async def announced(self, task: Mapping[str, Any]) -> list[str]:
        """The statuses that the server was told of, in their order."""
        await settle()
        news = [params for method, params in self.server.received if method == "notifications/tasks/status"]
        return [params["status"] for params in news if params["taskId"] == task["taskId"]]


@asynccontextmanager
async def pair(clock: FakeClock, **options: Any) -> AsyncIterator[Pair]:
    """A server that has the library at the other end of the line, with receiver tasks unless told otherwise."""
    with anyio.fail_after(LIMIT_S):
        peers: list[Peer] = []

        async def hello(call: ScriptedCall) -> str:
            peers.append(call.peer)
            return "hello"

        server = ScriptedServer({"hello": hello})
        async with connect(
            server.transport(), options=ClientOptions(**{"receiver_tasks": True, **options}), clock=clock
        ) as client:
            await client.call_tool("hello")
            yield Pair(client, server, peers[0], client.questions(), clock)


def declared(server: ScriptedServer) -> JsonObject:
    """What the client said that it can do."""
    (params,) = [params for method, params in server.received if method == "initialize"]
    capabilities: JsonObject = params["capabilities"]
    return capabilities


async def code_of(request: Awaitable[object]) -> int:
    """The code of the error that a request is answered with."""
    with pytest.raises(PeerError) as refused:
        await request
    return refused.value.code


# What is declared


@requirement("003-FR-1", "003-FR-2")
async def test_the_client_declares_that_it_takes_questions_as_tasks(clock: FakeClock) -> None:
    async with pair(clock) as both:
        assert declared(both.server)["tasks"] == {
            "list": {},
            "cancel": {},
            "requests": {"sampling": {"createMessage": {}}, "elicitation": {"create": {}}},
        }


@requirement("004-options")
@kinds
async def test_without_receiver_tasks_nothing_is_declared_and_a_task_is_ignored(clock: FakeClock, method: str) -> None:
    async with pair(clock, receiver_tasks=False) as both, anyio.create_task_group() as tasks:
        assert "tasks" not in declared(both.server)
        answered: list[JsonObject] = []

        async def ask() -> None:
            answered.append(await both.peer.request(method, {**QUESTIONS[method], "task": {"ttl": 1}}))

        tasks.start_soon(ask)
        await (await both.question()).respond(ANSWERS[method])
        await settle()
        assert answered == [ANSWERS[method]]
        assert await code_of(both.peer.request("tasks/list", {})) == -32601


# The way of a task


@requirement("003-FR-3", "003-FR-5", "003-FR-6", "003-IT-1")
@kinds
async def test_a_question_with_a_task_is_answered_at_once_with_a_working_task(clock: FakeClock, method: str) -> None:
    async with pair(clock) as both:
        task = await both.ask(method)
        now = isoformat(clock.now())
        assert task == {
            "taskId": task["taskId"],
            "status": "working",
            "createdAt": now,
            "lastUpdatedAt": now,
            "ttl": 60_000,
            "pollInterval": 2000,
        }
        question = await both.question()
        assert (question.arrival, question.settled) == ("receiver_task", None)
        assert question.params == {**QUESTIONS[method], "task": {"ttl": 60_000}}


@requirement("003-FR-3")
async def test_a_question_without_a_task_is_answered_when_its_answer_is_there(clock: FakeClock) -> None:
    async with pair(clock) as both, anyio.create_task_group() as tasks:
        answered: list[JsonObject] = []

        async def ask() -> None:
            answered.append(await both.peer.request("sampling/createMessage", SAMPLING))

        tasks.start_soon(ask)
        question = await both.question()
        await settle()
        assert (question.arrival, answered) == ("request", [])
        await question.respond(ANSWER)
        await settle()
        assert answered == [ANSWER]
        assert await both.peer.request("tasks/list", {}) == {"tasks": []}


@requirement("003-FR-7", "003-FR-8", "003-FR-12", "003-IT-2")
async def test_a_task_is_working_then_waits_for_input_then_is_completed(clock: FakeClock) -> None:
    async with pair(clock) as both:
        task = await both.ask()
        question = await both.question()
        assert await both.announced(task) == ["input_required"]
        waiting = await both.get(task)
        assert waiting == {**task, "status": "input_required", "statusMessage": waiting["statusMessage"]}

        await clock.advance(1.5)
        await question.respond(ANSWER)
        assert await both.announced(task) == ["input_required", "completed"]
        ended = await both.get(task)
        assert ended == {**task, "status": "completed", "lastUpdatedAt": isoformat(clock.now())}
        assert ended["createdAt"] < ended["lastUpdatedAt"]


@requirement("003-FR-9", "003-FR-13", "003-UT-3", "003-IT-3")
@kinds
async def test_tasks_result_waits_for_the_answer_and_names_its_task(clock: FakeClock, method: str) -> None:
    async with pair(clock) as both, anyio.create_task_group() as tasks:
        task = await both.ask(method)
        results: list[JsonObject] = []

        async def fetch() -> None:
            results.append(await both.result(task))

        tasks.start_soon(fetch)
        question = await both.question()
        await settle()
        assert results == []
        await question.respond(ANSWERS[method])
        await settle()
        expected = {**ANSWERS[method], "_meta": {RELATED_TASK: {"taskId": task["taskId"]}}}
        assert results == [expected]
        assert await both.result(task) == expected  # and again, for as long as the task lives


@requirement("003-FR-13")
async def test_metadata_of_an_answer_is_kept_beside_the_related_task(clock: FakeClock) -> None:
    async with pair(clock) as both:
        task = await both.ask()
        await (await both.question()).respond({**ANSWER, "_meta": {"mine": 1}})
        assert (await both.result(task))["_meta"] == {"mine": 1, RELATED_TASK: {"taskId": task["taskId"]}}


@requirement("004-decline")
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_an_elicitation_that_is_not_accepted_completes_its_task(clock: FakeClock, action: str) -> None:
    async with pair(clock) as both:
        task = await both.ask("elicitation/create")
        await (await both.question()).respond({"action": action})
        assert (await both.result(task))["action"] == action
        assert (await both.get(task))["status"] == "completed"


@requirement("003-FR-7", "004-decline")
@kinds
async def test_a_question_that_is_rejected_fails_its_task(clock: FakeClock, method: str) -> None:
    async with pair(clock) as both:
        task = await both.ask(method)
        await (await both.question()).reject("not today")
        assert await both.announced(task) == ["input_required", "failed"]
        failed = await both.get(task)
        assert (failed["status"], failed["statusMessage"]) == ("failed", "not today")
        assert await code_of(both.result(task)) == -1


# Cancelling


@requirement("003-FR-11", "003-FR-12", "003-UT-4", "003-IT-4")
async def test_cancelling_a_task_takes_its_question_back(clock: FakeClock) -> None:
    async with pair(clock) as both, anyio.create_task_group() as tasks:
        task = await both.ask()
        question = await both.question()
        told: list[str] = []
        question.on_settled(lambda how, _reason: told.append(how))
        codes: list[int] = []

        async def fetch() -> None:
            codes.append(await code_of(both.result(task)))

        tasks.start_soon(fetch)
        await settle()
        cancelled = await both.cancel(task)
        await settle()
        assert (cancelled["taskId"], cancelled["status"]) == (task["taskId"], "cancelled")
        assert (question.settled, told) == ("withdrawn", ["withdrawn"])
        assert await both.announced(task) == ["input_required", "cancelled"]
        assert len(codes) == 1


@requirement("003-FR-15", "003-UT-5")
async def test_a_task_that_has_ended_cannot_be_cancelled(clock: FakeClock) -> None:
    async with pair(clock) as both:
        answered, rejected, cancelled = [await both.ask() for _ in range(3)]
        await (await both.question()).respond(ANSWER)
        await (await both.question()).reject("no")
        await both.cancel(cancelled)
        await settle()
        for task, status in ((answered, "completed"), (rejected, "failed"), (cancelled, "cancelled")):
            assert await code_of(both.cancel(task)) == -32602
            assert (await both.get(task))["status"] == status


@requirement("003-FR-8", "003-FR-9", "003-FR-11")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
@pytest.mark.parametrize("params", [{"taskId": "none such"}, {"taskId": 7}, {}])
async def test_a_task_that_does_not_exist_is_invalid(clock: FakeClock, method: str, params: JsonObject) -> None:
    async with pair(clock) as both:
        assert await code_of(both.peer.request(method, params)) == -32602


# The list


@requirement("003-FR-10")
async def test_the_list_of_tasks_comes_in_pages(clock: FakeClock) -> None:
    async with pair(clock) as both:
        made = [(await both.ask())["taskId"] for _ in range(PAGE_SIZE + 7)]
        first = await both.peer.request("tasks/list", {})
        second = await both.peer.request("tasks/list", {"cursor": first["nextCursor"]})
        assert [task["taskId"] for task in [*first["tasks"], *second["tasks"]]] == made
        assert (len(first["tasks"]), "nextCursor" in second) == (PAGE_SIZE, False)
        assert await code_of(both.peer.request("tasks/list", {"cursor": "made up"})) == -32602


# Time


@requirement("003-FR-14", "003-NFR-3", "003-UT-6")
async def test_a_task_is_forgotten_when_its_time_is_over(clock: FakeClock) -> None:
    async with pair(clock) as both, anyio.create_task_group() as tasks:
        task = await both.ask(ttl=5000)
        question = await both.question()
        codes: list[int] = []

        async def fetch() -> None:
            codes.append(await code_of(both.result(task)))

        tasks.start_soon(fetch)
        await clock.advance(4.9)
        assert (await both.get(task))["status"] == "input_required"
        await clock.advance(0.2)
        assert await code_of(both.get(task)) == -32602
        assert await both.peer.request("tasks/list", {}) == {"tasks": []}
        assert (question.settled, codes) == ("withdrawn", [-32602])


@requirement("003-FR-14")
async def test_a_result_is_kept_until_the_time_of_its_task_is_over(clock: FakeClock) -> None:
    async with pair(clock) as both:
        task = await both.ask(ttl=5000)
        await (await both.question()).respond(ANSWER)
        await clock.advance(4.9)
        assert (await both.result(task))["model"] == "m"
        await clock.advance(0.2)
        assert await code_of(both.result(task)) == -32602


@requirement("004-ttl")
@pytest.mark.parametrize("setting", [7000, lambda: 7000])
async def test_a_task_without_a_ttl_gets_that_of_the_settings(
    clock: FakeClock, setting: int | Callable[[], int]
) -> None:
    async with pair(clock, receiver_task_ttl_ms=setting) as both:
        assert (await both.ask(ttl=None))["ttl"] == 7000
        assert (await both.ask(ttl=9000))["ttl"] == 9000


@requirement("004-ttl")
async def test_a_function_for_the_ttl_is_asked_for_each_task(clock: FakeClock) -> None:
    ttls = iter([1000, 2000])
    async with pair(clock, receiver_task_ttl_ms=lambda: next(ttls)) as both:
        assert [(await both.ask(ttl=None))["ttl"] for _ in range(2)] == [1000, 2000]


@requirement("004-ttl")
@pytest.mark.parametrize("wish", [0, -1, True, "long", None])
async def test_a_ttl_that_is_none_is_ignored(clock: FakeClock, wish: object) -> None:
    async with pair(clock) as both:
        assert (await both.ask(ttl=wish))["ttl"] == 60_000


# Identity and isolation


@requirement("003-FR-4", "003-UT-1", "003-NFR-1")
def test_a_thousand_tasks_have_a_thousand_ids_that_tell_nothing_of_each_other(clock: FakeClock) -> None:
    table = ReceiverTable(clock, secure_ids(clock), DeadlineQueue(lambda: None))
    ids = [table.create(60_000).task_id for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert all(re.fullmatch("[0-9A-HJKMNP-TV-Z]{26}", task_id) for task_id in ids)
    # 80 random bits follow the time: within one moment no id is next to another.
    randomness = sorted(task_id[10:] for task_id in ids)
    assert len({task_id[:10] for task_id in randomness}) == 1000


@requirement("003-NFR-2")
async def test_one_servers_tasks_are_unknown_to_another(clock: FakeClock) -> None:
    async with pair(clock) as one, pair(clock) as other:
        task = await one.ask()
        await (await one.question()).respond(ANSWER)
        assert await other.peer.request("tasks/list", {}) == {"tasks": []}
        for request in (other.get, other.result, other.cancel):
            assert await code_of(request(task)) == -32602


@requirement("003-NFR-3")
async def test_no_server_can_have_more_tasks_than_the_limit(clock: FakeClock) -> None:
    table = ReceiverTable(clock, secure_ids(clock), DeadlineQueue(lambda: None))
    for _ in range(MAX_TASKS):
        table.create(1000)
    with pytest.raises(PeerError):
        table.create(1000)
    assert len(table) == MAX_TASKS


@requirement("003-FR-7", "003-UT-2")
@pytest.mark.parametrize(
    ("before", "after"),
    [(before, after) for before in TRANSITIONS for after in TRANSITIONS if after not in TRANSITIONS[before]],
)
def test_a_transition_that_does_not_exist_is_refused(clock: FakeClock, before: Any, after: Any) -> None:
    table = ReceiverTable(clock, secure_ids(clock), DeadlineQueue(lambda: None))
    task_id = table.create(60_000).task_id
    if before != "working":
        table.move(task_id, before)
    with pytest.raises(ImpossibleTransition):
        table.move(task_id, after)
    assert table.get(task_id).status == before
    assert table.get(task_id).is_terminal == (before in TERMINAL)


# The end of the line


@requirement("004-disconnect", "003-NFR-3")
@kinds
async def test_the_loss_of_the_connection_ends_its_tasks(clock: FakeClock, method: str) -> None:
    async with pair(clock) as both:
        await both.ask(method)
        question = await both.question()
        await both.server.die()
        await settle()
        assert question.settled == "lost"
        await both.client.closed.wait()
        with pytest.raises(StopAsyncIteration):
            await both.question()


@requirement("004-notify")
async def test_an_answer_that_cannot_be_announced_breaks_nothing(clock: FakeClock) -> None:
    async with pair(clock) as both:
        await both.ask()
        question = await both.question()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(both.server.die)
            await question.respond(ANSWER)
        await both.client.closed.wait()
        assert question.settled == "answered"


@requirement("004-disconnect", "003-NFR-3")
@kinds
async def test_leaving_the_connection_ends_its_tasks(clock: FakeClock, method: str) -> None:
    async with pair(clock) as both:
        await both.ask(method)
        question = await both.question()
    assert question.settled == "lost"
    with pytest.raises(StopAsyncIteration):
        await both.question()


# From end to end


async def ask_and_poll(call: ScriptedCall, method: str) -> str:
    """A tool that asks with a task, polls until it has ended, and tells how."""
    created = await call.peer.request(method, {**QUESTIONS[method], "task": {"ttl": 5000}})
    task = created["task"]
    while (task := await call.peer.request("tasks/get", {"taskId": task["taskId"]}))["status"] not in TERMINAL:
        await settle()
    try:
        result = await call.peer.request("tasks/result", {"taskId": task["taskId"]})
    except PeerError as error:
        return f"{task['status']} {error.code}"
    return f"{task['status']} {result.get('action', result.get('model'))}"


async def outcome_of(method: str, answer: Callable[[Question], Awaitable[None]]) -> str:
    """What a tool gives back whose question with a task is answered by `answer`."""

    async def ask(call: ScriptedCall) -> str:
        return await ask_and_poll(call, method)

    results: list[JsonObject] = []
    with anyio.fail_after(LIMIT_S):
        transport = ScriptedServer({"ask": ask}).transport()
        async with (
            connect(transport, options=ClientOptions(receiver_tasks=True)) as client,
            anyio.create_task_group() as tasks,
        ):

            async def call() -> None:
                results.append(await client.call_tool("ask"))

            tasks.start_soon(call)
            await answer(await anext(client.questions()))
    text: str = results[0]["content"][0]["text"]
    return text


@requirement("004-e2e-sampling")
async def test_a_server_that_polls_for_a_sampling_gets_its_answer() -> None:
    assert await outcome_of("sampling/createMessage", lambda question: question.respond(ANSWER)) == "completed m"
    assert await outcome_of("sampling/createMessage", lambda question: question.reject("no")) == "failed -1"


@requirement("004-e2e-elicitation")
async def test_a_server_that_polls_for_an_elicitation_gets_its_answer() -> None:
    method = "elicitation/create"
    assert await outcome_of(method, lambda question: question.accept({"name": "Ada"})) == "completed accept"
    assert await outcome_of(method, lambda question: question.decline()) == "completed decline"
    assert await outcome_of(method, lambda question: question.reject("no")) == "failed -1"
