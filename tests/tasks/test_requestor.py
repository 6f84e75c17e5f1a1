"""Tasks that we have with a server: negotiation, following, the list, events. The server is scripted, in memory.

The same against servers that we did not write is in `test_library`, and servers that misbehave are in `test_bad_peers`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from emceepee.client import (
    ConnectionEvent,
    Error,
    Progress,
    QuestionArrivedEvent,
    QuestionSettledEvent,
    Result,
    ServerConnection,
    TaskCancelledEvent,
    TaskCompletedEvent,
    TaskCreated,
    TaskFailedEvent,
    TasksListedEvent,
    TaskStatus,
    Update,
    connect,
)
from emceepee.errors import PeerError, TaskRequired
from emceepee.testing import FakeClock, ScriptedCall, ScriptedServer, form, text_result
from tests.tasks.scripted import RELATED_TASK, TaskServer, eras, settle

pytestmark = pytest.mark.anyio
requirement = pytest.mark.requirement

LIMIT_S = 60


@asynccontextmanager
async def connected(server: ScriptedServer, clock: FakeClock) -> AsyncIterator[ServerConnection]:
    with anyio.fail_after(LIMIT_S):
        async with connect(server.transport(), clock=clock) as connection:
            await connection.list_tools()
            yield connection


class Stream:
    """A call that goes on beside the test; `updates` is what it told so far."""

    def __init__(self, server: ServerConnection, tasks: anyio.abc.TaskGroup, tool: str = "job", **options: Any) -> None:
        self.updates: list[Update] = []
        self._server = server
        tasks.start_soon(self._run, tool, options)

    async def _run(self, tool: str, options: dict[str, Any]) -> None:
        async for update in self._server.call_tool_stream(tool, **options):
            self.updates.append(update)

    @property
    def last(self) -> Update:
        return self.updates[-1]

    def told(self) -> list[object]:
        """The updates in short: statuses, results, errors."""
        return [_short(update) for update in self.updates]


def _short(update: Update) -> object:
    match update:
        case TaskCreated(task) | TaskStatus(task):
            return task.status
        case Result(result):
            return result
        case Error(PeerError() as error):
            return error.code
        case _:
            return update


# Negotiation


async def plain(_call: ScriptedCall) -> str:
    return "plain"


@requirement("002-unit-capability")
@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("support", ["required", "optional", "forbidden", "sometimes", None])
async def test_a_call_is_augmented_only_where_server_and_tool_allow_it(
    clock: FakeClock, declared: bool, support: str | None
) -> None:
    server = ScriptedServer(
        {"tool": plain},
        capabilities={"tools": {}, **({"tasks": {"requests": {"tools": {"call": {}}}}} if declared else {})},
        definitions={"tool": {"execution": {"taskSupport": support}} if support else {}},
    )
    async with connected(server, clock) as connection:
        allowed = declared and support in ("required", "optional")
        assert connection.task_support("tool") == (support if allowed else "forbidden")
        await connection.call_tool_task("tool", ttl_ms=7000)
        (params,) = [params for method, params in server.received if method == "tools/call"]
        assert params.get("task") == ({"ttl": 7000} if allowed else None)


@requirement("002-unit-capability")
async def test_a_tool_that_demands_a_task_is_not_called_without_one(clock: FakeClock) -> None:
    server = TaskServer()
    async with connected(server.scripted, clock) as connection:
        with pytest.raises(TaskRequired):
            await connection.call_tool("job")
        assert "tools/call" not in server.scripted.received_methods()


@requirement("002-unit-capability")
async def test_the_modern_era_declares_the_extension_with_every_request_about_tasks(clock: FakeClock) -> None:
    server = TaskServer(modern=True)
    async with connected(server.scripted, clock) as connection, anyio.create_task_group() as tasks:
        stream = Stream(connection, tasks)
        await settle()
        server.finish("done")
        await clock.advance(5)
        assert isinstance(stream.last, Result)
        for method, params in server.scripted.received:
            if method in ("tools/call", "tasks/get"):
                declared = params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
                assert declared["extensions"] == {"io.modelcontextprotocol/tasks": {}}
                assert "task" not in params


# Following


@requirement("002-unit-stream")
async def test_a_plain_result_is_the_only_update(clock: FakeClock) -> None:
    async with connected(ScriptedServer({"tool": plain}), clock) as connection:
        updates = [update async for update in connection.call_tool_stream("tool")]
    assert updates == [Result(text_result("plain"))]


@requirement("002-unit-stream")
@eras
async def test_the_updates_of_a_task_end_with_its_result(clock: FakeClock, modern: bool) -> None:
    server = TaskServer(modern=modern)
    async with connected(server.scripted, clock) as connection, anyio.create_task_group() as tasks:
        stream = Stream(connection, tasks)
        await settle()
        server.status(statusMessage="half way")
        await clock.advance(2)
        server.finish("done")
        await clock.advance(2)
        assert stream.told()[:2] == ["working", "working"]
        assert stream.told()[-1] == server.result


@requirement("002-unit-stream")
async def test_the_cache_knows_that_a_task_has_ended_as_soon_as_its_result_is_there(clock: FakeClock) -> None:
    server = TaskServer(poll_ms=60_000)
    async with connected(server.scripted, clock) as connection, anyio.create_task_group() as tasks:
        stream = Stream(connection, tasks)
        await settle()
        server.finish("done")
        await settle()
        assert stream.last == Result(server.result)
        assert connection.tasks[server.task_id].status == "completed"


@requirement("002-unit-stream")
@eras
async def test_the_servers_interval_is_kept_and_may_change(clock: FakeClock, modern: bool) -> None:
    server = TaskServer(modern=modern, poll_ms=10_000)
    async with connected(server.scripted, clock) as connection, anyio.create_task_group() as tasks:
        Stream(connection, tasks)
        await clock.advance(9.9)
        assert server.polls == 0
        server.status(poll_ms=1000)
        await clock.advance(0.2)
        assert server.polls == 1
        await clock.advance(2)
        assert server.polls == 3
        tasks.cancel_scope.cancel()


@requirement("002-unit-stream")
async def test_a_status_notification_is_not_waited_for_a_poll_to_be_believed(clock: FakeClock) -> None:
    server = TaskServer(poll_ms=60_000)
    async with connected(server.scripted, clock) as connection, anyio.create_task_group() as tasks:
        stream = Stream(connection, tasks)
        await settle()
        await server.announce(status="input_required")
        await settle()
        server.finish("done")
        await server.announce()
        await settle()
        assert stream.told() == ["working", "input_required", "completed", server.result]
        assert server.polls == 0


@requirement("002-unit-stream")
async def test_progress_goes_on_after_the_task_was_made(clock: FakeClock) -> None:
    server = TaskServer()
    async with connected(server.scripted, clock) as connection, anyio.create_task_group() as tasks:
        stream = Stream(connection, tasks)
        await settle()
        await server.call.progress(1, 2, "half")
        await settle()
        server.finish("done")
        await clock.advance(2)
        assert Progress(1, 2, "half") in stream.updates


@requirement("002-unit-stream")
async def test_what_the_server_wants_a_model_to_be_told_is_passed_on(clock: FakeClock) -> None:
    server = TaskServer(meta={"io.modelcontextprotocol/model-immediate-response": "on it"})
    async with connected(server.scripted, clock) as connection, anyio.create_task_group() as tasks:
        stream = Stream(connection, tasks)
        await settle()
        created = stream.updates[0]
        assert isinstance(created, TaskCreated)
        assert created.immediate_response == "on it"
        tasks.cancel_scope.cancel()


@eras
async def test_a_failed_task_is_an_error_with_the_servers_code(clock: FakeClock, modern: bool) -> None:
    server = TaskServer(modern=modern)
    async with connected(server.scripted, clock) as connection, anyio.create_task_group() as tasks:
        stream = Stream(connection, tasks)
        await settle()
        server.fail(-32050, "it broke")
        await clock.advance(2)
        assert stream.told()[-1] == -32050


@eras
async def test_a_tools_own_error_is_a_result(clock: FakeClock, modern: bool) -> None:
    server = TaskServer(modern=modern)
    async with connected(server.scripted, clock) as connection, anyio.create_task_group() as tasks:
        stream = Stream(connection, tasks)
        await settle()
        server.finish("no, thank you", is_error=True)
        await clock.advance(2)
        assert stream.last == Result(server.result)
        assert server.result["isError"] is True


# Questions inside a task


@requirement("002-unit-elicitation", "002-integration-resume")
async def test_a_question_inside_a_task_belongs_to_it_and_its_answer_resumes_the_task(clock: FakeClock) -> None:
    server, origin = TaskServer(), object()
    async with connected(server.scripted, clock) as connection, anyio.create_task_group() as tasks:
        stream = Stream(connection, tasks, origin=origin)
        other = Stream(connection, tasks, "wait")  # so that the question could be anybody's
        await settle()
        server.status(status="input_required")
        answers: list[dict[str, Any]] = []

        async def ask() -> None:
            meta = {RELATED_TASK: {"taskId": server.task_id}}
            question = {**form("Name?", name="string"), "_meta": meta}
            answers.append(await server.call.peer.request("elicitation/create", question))

        tasks.start_soon(ask)
        question = await anext(connection.questions())
        assert (question.belongs_to.call, question.belongs_to.certainty) == (origin, "exact")
        await clock.advance(2)
        assert connection.tasks[server.task_id].status == "input_required"
        await question.accept({"name": "Ada"})
        await settle()
        assert answers == [{"action": "accept", "content": {"name": "Ada"}}]
        server.finish("hello Ada")
        await clock.advance(2)
        assert stream.last == Result(server.result)
        assert other.updates == []
        tasks.cancel_scope.cancel()


@requirement("002-unit-elicitation", "002-integration-resume")
async def test_inputs_of_an_extension_task_are_asked_once_each_and_answered_by_key(clock: FakeClock) -> None:
    server = TaskServer(modern=True)
    first, second = form("First?", name="string"), form("Second?", name="string")
    async with connected(server.scripted, clock) as connection, anyio.create_task_group() as tasks:
        stream = Stream(connection, tasks)
        await settle()
        server.ask(one=first, two=second)
        await clock.advance(10)  # polled again and again with the same questions
        questions = connection.questions()
        asked = {question.message: question for question in [await anext(questions), await anext(questions)]}
        assert {question.arrival for question in asked.values()} == {"task_input"}
        await asked["Second?"].accept({"name": "B"})
        await settle()
        server.ask(one=first)
        await clock.advance(5)
        await asked["First?"].decline()
        await settle()
        server.finish("done")
        await clock.advance(5)
        assert stream.last == Result(server.result)
        assert server.answers == [
            {"two": {"action": "accept", "content": {"name": "B"}}},
            {"one": {"action": "decline"}},
        ]


# The methods


@requirement("002-unit-methods")
@eras
async def test_get_task_is_the_servers_word(clock: FakeClock, modern: bool) -> None:
    server = TaskServer(modern=modern)
    async with connected(server.scripted, clock) as connection:
        server.status(statusMessage="half way")
        task = await connection.get_task(server.task_id)
    assert (task.task_id, task.status, task.status_message) == (server.task_id, "working", "half way")
    assert (task.poll_interval_ms, task.raw["createdAt"]) == (1000, "2030-01-01T00:00:00Z")


@requirement("002-unit-methods")
async def test_list_tasks_goes_page_by_page(clock: FakeClock) -> None:
    async def page(params: Any) -> dict[str, Any]:
        number = int(params.get("cursor", 0))
        tasks = [{"taskId": f"{number}-{entry}", "status": "working", "ttl": None} for entry in range(2)]
        return {"tasks": tasks, **({"nextCursor": str(number + 1)} if number < 2 else {})}

    server = TaskServer(methods={"tasks/list": page})
    async with connected(server.scripted, clock) as connection:
        found, cursor = await connection.list_tasks()
        pages = [found]
        while cursor is not None:
            found, cursor = await connection.list_tasks(cursor)
            pages.append(found)
        assert [[task.task_id for task in found] for found in pages] == [
            ["0-0", "0-1"],
            ["1-0", "1-1"],
            ["2-0", "2-1"],
        ]
        assert set(connection.tasks) == {"0-0", "0-1", "1-0", "1-1", "2-0", "2-1"}


@requirement("002-unit-methods")
@eras
async def test_the_result_of_a_task_that_somebody_else_began_can_be_fetched(clock: FakeClock, modern: bool) -> None:
    server = TaskServer(modern=modern)
    results: list[dict[str, Any]] = []
    async with connected(server.scripted, clock) as connection, anyio.create_task_group() as tasks:

        async def fetch() -> None:
            results.append(await connection.get_task_result(server.task_id))

        tasks.start_soon(fetch)
        await clock.advance(3)
        assert results == []
        server.finish("done")
        await clock.advance(3)
        assert results == [server.result]


@requirement("002-unit-methods", "002-integration-cancel")
@eras
async def test_a_cancelled_task_is_cancelled_at_the_server(clock: FakeClock, modern: bool) -> None:
    server = TaskServer(modern=modern)
    async with connected(server.scripted, clock) as connection, anyio.create_task_group() as tasks:
        stream = Stream(connection, tasks)
        await settle()
        assert connection.can_cancel_tasks
        await connection.cancel_task(server.task_id)
        assert server.current["status"] == "cancelled"
        await clock.advance(2)
        assert isinstance(stream.last, Error)
        with pytest.raises(PeerError) as refused:
            await connection.cancel_task(server.task_id)
        assert refused.value.code == -32602


@requirement("002-unit-methods")
async def test_a_server_that_cannot_cancel_says_so(clock: FakeClock) -> None:
    server = TaskServer(capabilities={"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}})
    async with connected(server.scripted, clock) as connection:
        assert not connection.can_cancel_tasks


async def test_leaving_a_stream_leaves_the_task_alone(clock: FakeClock) -> None:
    server = TaskServer()
    async with connected(server.scripted, clock) as connection:
        stream = connection.call_tool_stream("job")
        assert isinstance(await anext(stream), TaskCreated)
        await stream.aclose()  # type: ignore[attr-defined]  # it is a generator
        await settle()
        assert "tasks/cancel" not in server.scripted.received_methods()
        assert (await connection.get_task(server.task_id)).status == "working"


# Events


@asynccontextmanager
async def heard(connection: ServerConnection) -> AsyncIterator[list[ConnectionEvent]]:
    """Every event while the body runs."""
    events: list[ConnectionEvent] = []
    with connection.events.subscribe() as feed:

        async def listen() -> None:
            async for event in feed:
                events.append(event)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            yield events
            await settle()
            tasks.cancel_scope.cancel()


def types_of(events: list[ConnectionEvent]) -> list[type]:
    """The kinds of events, without repeated ones."""
    types = [type(event) for event in events]
    return [kind for number, kind in enumerate(types) if number == 0 or types[number - 1] is not kind]


@requirement("002-unit-events")
@eras
async def test_a_task_that_completes_is_told_from_its_beginning_to_its_end(clock: FakeClock, modern: bool) -> None:
    server = TaskServer(modern=modern)
    async with (
        connected(server.scripted, clock) as connection,
        heard(connection) as events,
        anyio.create_task_group() as tasks,
    ):
        Stream(connection, tasks)
        await settle()
        server.finish("done")
        await clock.advance(2)
    assert types_of(events) in ([TaskCreated, TaskStatus, TaskCompletedEvent], [TaskCreated, TaskCompletedEvent])
    assert events[-1] == TaskCompletedEvent(server.task_id, server.result)


@requirement("002-unit-events")
@eras
async def test_a_task_that_fails_is_told(clock: FakeClock, modern: bool) -> None:
    server = TaskServer(modern=modern)
    async with (
        connected(server.scripted, clock) as connection,
        heard(connection) as events,
        anyio.create_task_group() as tasks,
    ):
        Stream(connection, tasks)
        await settle()
        server.fail(-32050, "it broke")
        await clock.advance(2)
    (failed,) = [event for event in events if isinstance(event, TaskFailedEvent)]
    assert isinstance(failed.error, PeerError)
    assert (failed.task_id, failed.error.code) == (server.task_id, -32050)


@requirement("002-unit-events")
@eras
async def test_a_task_that_is_cancelled_is_told_once(clock: FakeClock, modern: bool) -> None:
    server = TaskServer(modern=modern)
    async with (
        connected(server.scripted, clock) as connection,
        heard(connection) as events,
        anyio.create_task_group() as tasks,
    ):
        Stream(connection, tasks)
        await settle()
        await connection.cancel_task(server.task_id)
        await clock.advance(2)
    ends = [event for event in events if isinstance(event, TaskCompletedEvent | TaskFailedEvent | TaskCancelledEvent)]
    assert ends == [TaskCancelledEvent(server.task_id)]


@requirement("002-unit-events")
async def test_a_list_of_tasks_is_told(clock: FakeClock) -> None:
    async def page(_params: Any) -> dict[str, Any]:
        return {"tasks": [{"taskId": "a", "status": "working", "ttl": None}]}

    server = TaskServer(methods={"tasks/list": page})
    async with connected(server.scripted, clock) as connection, heard(connection) as events:
        found, _ = await connection.list_tasks()
        await settle()
    assert events == [TasksListedEvent(tuple(found))]


@requirement("002-unit-events")
async def test_questions_are_told_when_they_come_and_when_they_are_settled(clock: FakeClock) -> None:
    async def ask(call: ScriptedCall) -> str:
        return str((await call.elicit(form("Name?", name="string")))["action"])

    server = ScriptedServer({"ask": ask})
    async with (
        connected(server, clock) as connection,
        heard(connection) as events,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(connection.call_tool, "ask")
        question = await anext(connection.questions())
        await question.decline()
        await settle()
    assert events == [QuestionArrivedEvent(question), QuestionSettledEvent(question, "answered")]


@requirement("002-unit-events")
async def test_every_subscriber_hears_everything_and_one_that_left_hears_nothing(clock: FakeClock) -> None:
    server = TaskServer()
    async with connected(server.scripted, clock) as connection:
        async with heard(connection) as one, heard(connection) as two:
            await connection.get_task(server.task_id)
            await settle()
        await connection.get_task(server.task_id)
    assert len(one) == 1
    assert one == two
