"""Servers that get tasks wrong: errors are clear, nothing hangs, and nothing is left over."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc
import pytest

from emceepee.client import ServerConnection, connect
from emceepee.client.following import RESULT_GRACE
from emceepee.client.liveness import watch_liveness
from emceepee.client.tasks import ANSWER_SECONDS
from emceepee.errors import PeerError
from emceepee.testing import FakeClock, HubClient, form, running_hub, text_result
from emceepee.wire.transport import HTTP_STATUS
from tests.tasks.scripted import TaskServer, eras, settle

pytestmark = pytest.mark.anyio

LIMIT_S = 60
JsonObject = dict[str, Any]


class Calling:
    """A call of `job` that goes on beside the test."""

    def __init__(self, server: ServerConnection, tasks: anyio.abc.TaskGroup) -> None:
        self.server = server
        self.result: JsonObject | None = None
        self.error: PeerError | None = None
        tasks.start_soon(self._run)

    async def _run(self) -> None:
        try:
            self.result = await self.server.call_tool_task("job")
        except PeerError as error:
            self.error = error

    @property
    def is_over(self) -> bool:
        return self.result is not None or self.error is not None


@asynccontextmanager
async def calling(server: TaskServer, clock: FakeClock) -> AsyncIterator[Calling]:
    """A call to a bad server by the library; afterwards nothing of it may be left."""
    with anyio.fail_after(LIMIT_S):
        async with connect(server.scripted.transport(), clock=clock) as connection:
            await connection.list_tools()
            async with anyio.create_task_group() as tasks:
                call = Calling(connection, tasks)
                await settle()
                yield call
                tasks.cancel_scope.cancel()
            await settle()
            assert_nothing_left(connection)


def assert_nothing_left(connection: ServerConnection) -> None:
    inbound = connection._inbound
    assert inbound.origins._in_flight == {}
    assert inbound.origins._tasks == {}
    assert inbound.origins._late_progress == {}
    assert inbound._open == set()
    assert inbound.watch._followed == {}
    assert inbound._followed == {}


@asynccontextmanager
async def hub_with(server: TaskServer, clock: FakeClock) -> AsyncIterator[HubClient]:
    """The same server behind a hub; afterwards the session has nothing left of it."""
    with anyio.fail_after(LIMIT_S):
        async with running_hub({"bad": server.scripted}, clock=clock) as running:
            client = await running.client()
            await settle()
            yield client
            await settle()
            assert len(client.session.calls) == 0
            assert len(client.session.questions) == 0
            assert client.session.state.tasks.live_count == 0
            (link,) = client.session.links.values()
            assert link.server is not None
            assert_nothing_left(link.server)


async def promoted(client: HubClient, **options: Any) -> str:
    answer = await client.execute("bad", "job", timeout_ms=0, **options)
    await settle()
    task_id: str = answer.task["task_id"]
    return task_id


async def status_of(client: HubClient, task_id: str) -> str:
    status: str = (await client.call("get_task", task_id=task_id)).json["task"]["status"]
    return status


def refusing(code: int, message: str, data: object = None) -> Callable[[Mapping[str, Any]], Any]:
    async def refuse(_params: Mapping[str, Any]) -> JsonObject:
        raise PeerError(code, message, data)

    return refuse


def answering(*answers: JsonObject) -> Callable[[Mapping[str, Any]], Any]:
    """Gives one answer after the other; the last one is for good."""
    left = list(answers)

    async def answer(_params: Mapping[str, Any]) -> JsonObject:
        return left.pop(0) if len(left) > 1 else left[0]

    return answer


class Gateway:
    """Stands before a server that is well, and answers in its place while it `is_down`."""

    def __init__(self, server: TaskServer) -> None:
        self.is_down = True
        self.refused = 0
        self._methods = dict(server.scripted.methods)
        server.scripted.methods = {method: self._passing(method) for method in self._methods}

    def _passing(self, method: str) -> Callable[[Mapping[str, Any]], Any]:
        async def answer(params: Mapping[str, Any]) -> JsonObject:
            if self.is_down:
                self.refused += 1
                raise PeerError(-32000, "the server answered HTTP 503", {"http_status": 503})
            answered: JsonObject = await self._methods[method](params)
            return answered

        return answer


async def never(_params: Mapping[str, Any]) -> JsonObject:
    await anyio.sleep_forever()
    raise AssertionError("unreachable")


# Its gateway is down for a while


@eras
async def test_a_task_outlives_an_outage_of_the_gateway_before_its_server(clock: FakeClock, modern: bool) -> None:
    server = TaskServer(modern=modern)
    gateway = Gateway(server)
    async with calling(server, clock) as call:
        await clock.advance(60)
        assert not call.is_over
        assert gateway.refused < 20, "the longer it is down, the more rarely it is asked"
        gateway.is_down = False
        server.finish("done")
        await clock.advance(30)
        assert call.result == server.result


@eras
async def test_a_task_outlives_an_outage_that_begins_while_it_runs(clock: FakeClock, modern: bool) -> None:
    server = TaskServer(modern=modern)
    gateway = Gateway(server)
    gateway.is_down = False
    async with hub_with(server, clock) as client:
        task_id = await promoted(client)
        gateway.is_down = True
        await clock.advance(10)
        assert await status_of(client, task_id) == "working"
        server.finish("done")
        gateway.is_down = False
        await clock.advance(30)
        assert (await client.call("get_task_result", task_id=task_id)).texts[0] == "done"


async def test_a_result_that_the_gateway_holds_back_is_fetched_when_it_is_up_again(clock: FakeClock) -> None:
    results = Gateway(server := TaskServer())
    polls = {"tasks/get": server._get}
    server.scripted.methods = {**server.scripted.methods, **polls}
    async with calling(server, clock) as call:
        server.finish("done")
        await clock.advance(2 * RESULT_GRACE)
        assert not call.is_over
        results.is_down = False
        await clock.advance(30)
        assert call.result == server.result


async def test_an_answer_that_the_gateway_refuses_is_given_again(clock: FakeClock) -> None:
    server = TaskServer(modern=True)
    updates = Gateway(server)
    server.scripted.methods = {**server.scripted.methods, "tasks/get": server._get}
    server.ask(name=form("Who?", name="string"))
    async with calling(server, clock) as call:
        await clock.advance(2)
        question = await anext(aiter(call.server.questions()))
        await question.accept({"name": "Ada"})
        await clock.advance(5)
        assert (updates.refused > 1, call.is_over) == (True, False)
        updates.is_down = False
        await clock.advance(2)
        assert server.answers == [{"name": {"action": "accept", "content": {"name": "Ada"}}}]
        server.finish("done")
        await clock.advance(2)
        assert call.result == server.result


# Its connection has gone silent


class Silence:
    """The first answer to each of `methods` never comes, as on a TCP connection that a NAT has forgotten."""

    def __init__(self, server: TaskServer, *methods: str) -> None:
        self.asked = dict.fromkeys(methods, 0)
        known = server.scripted.methods
        server.scripted.methods = {**known, **{method: self._later(method, known[method]) for method in methods}}

    def _later(self, method: str, answer: Callable[[Mapping[str, Any]], Any]) -> Callable[[Mapping[str, Any]], Any]:
        async def answer_later(params: Mapping[str, Any]) -> JsonObject:
            self.asked[method] += 1
            answered: JsonObject = await (never(params) if self.asked[method] == 1 else answer(params))
            return answered

        return answer_later


@eras
async def test_a_poll_that_is_not_answered_is_made_again(clock: FakeClock, modern: bool) -> None:
    server = TaskServer(modern=modern)
    silence = Silence(server, "tasks/get", *(() if modern else ("tasks/result",)))
    async with calling(server, clock) as call:
        server.finish("done")
        await clock.advance(1 + ANSWER_SECONDS + 2)
        assert call.result == server.result
        assert set(silence.asked.values()) == {2}
        assert "notifications/cancelled" not in server.scripted.received_methods()


async def test_a_result_that_was_asked_for_on_a_silent_connection_is_asked_for_again(clock: FakeClock) -> None:
    server = TaskServer(poll_ms=20_000)
    silence = Silence(server, "tasks/result")
    async with calling(server, clock) as call:
        server.finish("done")
        await clock.advance(20)
        assert not call.is_over
        await clock.advance(RESULT_GRACE)
        assert (call.result, silence.asked) == (server.result, {"tasks/result": 2})


async def test_an_answer_that_is_not_acknowledged_is_given_again(clock: FakeClock) -> None:
    server = TaskServer(modern=True)
    Silence(server, "tasks/update")
    server.ask(name=form("Who?", name="string"))
    async with calling(server, clock) as call:
        await clock.advance(2)
        question = await anext(aiter(call.server.questions()))
        await question.accept({"name": "Ada"})
        await clock.advance(ANSWER_SECONDS + 2)
        assert server.answers == [{"name": {"action": "accept", "content": {"name": "Ada"}}}]
        server.finish("done")
        await clock.advance(2)
        assert call.result == server.result


@eras
async def test_a_server_that_only_has_a_task_of_ours_is_asked_whether_it_is_still_there(
    clock: FakeClock, modern: bool
) -> None:
    server = TaskServer(modern=modern, poll_ms=60_000)
    ping = "server/discover" if modern else "ping"
    async with calling(server, clock) as call, anyio.create_task_group() as tasks:
        before = server.scripted.received_methods().count(ping)
        tasks.start_soon(watch_liveness, call.server._peer, call.server, clock, 30.0)
        await clock.advance(31)
        assert server.scripted.received_methods().count(ping) == before + 1
        tasks.cancel_scope.cancel()


# It never finishes


@eras
async def test_a_task_that_never_ends_is_bounded_by_its_ttl_and_cancelled(clock: FakeClock, modern: bool) -> None:
    server = TaskServer(modern=modern, poll_ms=20_000)
    async with hub_with(server, clock) as client:
        task_id = await promoted(client, task_ttl_ms=60_000)
        await clock.advance(59)
        assert await status_of(client, task_id) == "working"
        await clock.advance(2)
        assert await status_of(client, task_id) == "expired"
        assert (await client.call("get_task_result", task_id=task_id)).error_code == "TASK_EXPIRED"
        assert server.current["status"] == "cancelled"
        polls = server.polls
        await clock.advance(60)
        assert server.polls == polls


@eras
async def test_a_server_that_does_not_answer_at_all_is_bounded_by_the_ttl_too(clock: FakeClock, modern: bool) -> None:
    methods = dict.fromkeys(["tasks/get", "tasks/result", "tasks/cancel"], never)
    server = TaskServer(modern=modern, methods=methods)
    async with hub_with(server, clock) as client:
        task_id = await promoted(client, task_ttl_ms=60_000)
        await clock.advance(61)
        assert await status_of(client, task_id) == "expired"
        await clock.advance(20)


@eras
async def test_cancelling_at_a_server_that_does_not_answer_comes_back(clock: FakeClock, modern: bool) -> None:
    server = TaskServer(modern=modern, methods={"tasks/cancel": never})
    async with hub_with(server, clock) as client:
        task_id = await promoted(client)
        async with anyio.create_task_group() as tasks:

            async def cancel() -> None:
                assert (await client.call("cancel_task", task_id=task_id)).json["success"] is True

            tasks.start_soon(cancel)
            await clock.advance(11)
        assert await status_of(client, task_id) == "cancelled"


@eras
async def test_a_server_that_refuses_to_cancel_a_finished_task_has_its_result_fetched(
    clock: FakeClock, modern: bool
) -> None:
    server = TaskServer(modern=modern)
    async with hub_with(server, clock) as client:
        task_id = await promoted(client)
        server.finish("done after all")
        cancelled = await client.call("cancel_task", task_id=task_id)
        await clock.advance(2)
        result = await client.call("get_task_result", task_id=task_id)
        assert result.texts[0] == "done after all"
        assert cancelled.json["success"] is False or await status_of(client, task_id) == "completed"


async def test_a_server_that_cannot_cancel_is_left_alone(clock: FakeClock) -> None:
    server = TaskServer(capabilities={"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}})
    async with hub_with(server, clock) as client:
        task_id = await promoted(client)
        assert (await client.call("cancel_task", task_id=task_id)).json["success"] is True
        assert await status_of(client, task_id) == "cancelled"
        assert "tasks/cancel" not in server.scripted.received_methods()


# It does not bear to be interrupted


async def test_a_cancelled_task_is_ended_by_name_and_by_nothing_else(clock: FakeClock) -> None:
    """A server on the 1.x Python SDK ends if `notifications/cancelled` crosses its answer to `tasks/result`."""
    server = TaskServer(methods={"tasks/result": never})
    async with hub_with(server, clock) as client:
        await client.call("cancel_task", task_id=await promoted(client))
        await settle()
        assert "tasks/cancel" in server.scripted.received_methods()
        assert "notifications/cancelled" not in server.scripted.received_methods()


async def test_a_poll_that_is_not_needed_any_more_is_not_taken_back(clock: FakeClock) -> None:
    server = TaskServer(methods={"tasks/get": never})
    async with calling(server, clock) as call:
        await clock.advance(1.5)
        assert "tasks/get" in server.scripted.received_methods()
        server.finish("done")
        await settle()
        assert call.result == server.result
        assert "notifications/cancelled" not in server.scripted.received_methods()


# It forgets, or talks nonsense


@eras
async def test_a_task_that_its_server_forgot_fails(clock: FakeClock, modern: bool) -> None:
    gone = refusing(-32602, "Failed to retrieve task: Task not found")
    server = TaskServer(modern=modern, methods={"tasks/get": gone, "tasks/result": gone})
    async with calling(server, clock) as call:
        await clock.advance(2)
        assert call.error is not None
        assert (call.error.code, "not found" in str(call.error)) == (-32602, True)


@eras
async def test_a_forgotten_task_fails_in_the_hub(clock: FakeClock, modern: bool) -> None:
    gone = refusing(-32602, "Task task-1 not found")
    server = TaskServer(modern=modern, methods={"tasks/get": gone, "tasks/result": gone})
    async with hub_with(server, clock) as client:
        task_id = await promoted(client)
        await clock.advance(2)
        assert await status_of(client, task_id) == "failed"
        assert (await client.call("get_task_result", task_id=task_id)).error_code == "TASK_FAILED"


@eras
async def test_the_error_of_a_forgotten_task_does_not_show_the_servers_id(clock: FakeClock, modern: bool) -> None:
    gone = refusing(-32602, "Task task-1 not found")
    server = TaskServer(modern=modern, methods={"tasks/get": gone, "tasks/result": gone})
    async with hub_with(server, clock) as client:
        task_id = await promoted(client)
        await clock.advance(2)
        told = await client.call("get_task_result", task_id=task_id)
        assert "task-1" not in "".join(told.texts)


@eras
@pytest.mark.parametrize("status", [None, 202, 302, 401, 403, 410, 503])
async def test_a_page_in_place_of_an_answer_says_nothing_of_the_task(
    clock: FakeClock, modern: bool, status: int | None
) -> None:
    """What a gateway or a login page answers carries no JSON-RPC; the transport says so with an error of its own."""
    server = TaskServer(modern=modern)
    good = server.scripted.methods
    page = refusing(-32000, "the server answered with a page", {HTTP_STATUS: status})
    if status is None:
        page = refusing(-32700, "the server's answer is not JSON-RPC")
    async with calling(server, clock) as call:
        server.scripted.methods = {**good, "tasks/get": page, "tasks/result": page}
        await clock.advance(300)
        assert not call.is_over
        server.scripted.methods = good
        server.finish("done")
        await clock.advance(60)
        assert call.result == server.result


@eras
async def test_an_error_that_is_not_about_the_task_is_borne_a_few_times(clock: FakeClock, modern: bool) -> None:
    server = TaskServer(modern=modern)
    good = server.scripted.methods
    broken = refusing(-32603, "Internal error")
    async with calling(server, clock) as call:
        server.scripted.methods = {**good, "tasks/get": broken, "tasks/result": broken}
        await clock.advance(5)
        assert not call.is_over
        server.scripted.methods = good
        await clock.advance(10)
        server.scripted.methods = {**good, "tasks/get": broken, "tasks/result": broken}
        await clock.advance(30)
        assert call.error is not None
        assert (call.error.code, "lost the task" in call.error.message) == (-32603, True)


GARBAGE: list[Any] = [
    {},
    {"hello": "world"},
    {"taskId": "task-1", "status": "dancing"},
    {"taskId": 7, "status": "working"},
    {"taskId": "", "status": "working"},
    {"taskId": "task-1", "status": ["working"]},
    {"taskId": "somebody else's", "status": "completed", "result": text_result("not yours")},
]


@eras
@pytest.mark.parametrize("garbage", GARBAGE, ids=str)
async def test_a_server_that_answers_with_something_else_is_given_up(
    clock: FakeClock, modern: bool, garbage: JsonObject
) -> None:
    server = TaskServer(modern=modern, methods={"tasks/get": answering(garbage)})
    async with calling(server, clock) as call:
        await clock.advance(30)
        assert call.error is not None
        assert call.error.code == -32603


@eras
async def test_one_bad_answer_does_not_cost_the_task(clock: FakeClock, modern: bool) -> None:
    server = TaskServer(modern=modern)
    bad = dict(server.scripted.methods)
    good = bad["tasks/get"]
    count = 0

    async def sometimes(params: Mapping[str, Any]) -> JsonObject:
        nonlocal count
        count += 1
        return {"nonsense": count} if count % 3 else await good(params)

    bad["tasks/get"] = sometimes
    server.scripted.methods = bad
    async with calling(server, clock) as call:
        await clock.advance(10)
        server.finish("done")
        await clock.advance(10)
        assert call.result == server.result


@pytest.mark.parametrize(
    "created",
    [{"task": {}}, {"task": {"taskId": 7, "status": "working"}}, {"task": {"taskId": "a", "status": "odd"}}],
    ids=str,
)
async def test_a_task_that_is_none_is_an_error(clock: FakeClock, created: JsonObject) -> None:
    server = TaskServer(methods={"tools/call": answering(created)})
    async with calling(server, clock) as call:
        assert call.error is not None
        assert call.error.code == -32603


@eras
async def test_news_of_no_known_status_breaks_nothing(clock: FakeClock, modern: bool) -> None:
    server = TaskServer(modern=modern)
    async with calling(server, clock) as call:
        await server.announce(status=["working"])
        await settle()
        server.finish("done")
        await clock.advance(2)
        assert not call.server.closed.is_set()
        assert call.result == server.result


async def test_asking_for_one_task_and_getting_another_is_an_error(clock: FakeClock) -> None:
    server = TaskServer(methods={"tasks/get": answering({"taskId": "other", "status": "working", "ttl": None})})
    with anyio.fail_after(LIMIT_S):
        async with connect(server.scripted.transport(), clock=clock) as connection:
            with pytest.raises(PeerError):
                await connection.get_task("task-1")


@eras
async def test_a_server_that_answers_with_the_result_itself_has_that_taken(clock: FakeClock, modern: bool) -> None:
    server = TaskServer(modern=modern, methods={"tools/call": answering(text_result("at once"))})
    async with calling(server, clock) as call:
        assert call.result == text_result("at once")


# Its states


@pytest.mark.parametrize(
    "modern",
    [
        False,
        True,
    ],
)
async def test_a_terminal_status_never_changes(clock: FakeClock, modern: bool) -> None:
    server = TaskServer(modern=modern)
    async with calling(server, clock) as call:
        server.finish("done")
        await clock.advance(2)
        await server.announce(status="working")
        await settle()
        await call.server.get_task(server.task_id)
        await server.announce(status="failed")
        await settle()
        assert call.result == server.result
        assert call.server.tasks[server.task_id].status == "completed"


@eras
async def test_a_terminal_task_of_the_hub_never_changes(clock: FakeClock, modern: bool) -> None:
    server = TaskServer(modern=modern)
    async with hub_with(server, clock) as client:
        task_id = await promoted(client)
        server.finish("done")
        await clock.advance(2)
        await server.announce(status="working")
        await clock.advance(2)
        assert await status_of(client, task_id) == "completed"
        assert (await client.call("get_task_result", task_id=task_id)).texts[0] == "done"


@eras
async def test_news_of_a_task_that_is_not_ours_is_dropped(clock: FakeClock, modern: bool) -> None:
    server = TaskServer(modern=modern)
    method = "notifications/tasks" if modern else "notifications/tasks/status"
    async with hub_with(server, clock) as client:
        task_id = await promoted(client)
        for news in ({"taskId": "not ours", "status": "completed"}, {"taskId": 7}, {}, {"status": "failed"}):
            await server.scripted.notify(method, news)
        await settle()
        told = await client.call("await_activity", timeout_ms=0)
        assert [event["type"] for entry in told.json["events"] for event in entry["events"]] == []
        assert (await client.call("get_notifications")).json == {"notifications": []}
        assert await status_of(client, task_id) == "working"
        server.finish("done")
        await clock.advance(2)
        assert await status_of(client, task_id) == "completed"


@eras
async def test_news_that_comes_before_the_task_itself_is_harmless(clock: FakeClock, modern: bool) -> None:
    server = TaskServer(modern=modern)
    create = server.scripted.tools["job"]

    async def hasty(call: Any) -> JsonObject:
        await server.announce(statusMessage="here already")
        created: JsonObject = await create(call)
        return created

    server.scripted.tools = {**server.scripted.tools, "job": hasty}
    async with calling(server, clock) as call:
        server.finish("done")
        await clock.advance(2)
        assert call.result == server.result


@eras
async def test_a_task_that_has_ended_when_it_is_created_gives_its_result(clock: FakeClock, modern: bool) -> None:
    server = TaskServer(modern=modern)
    server.finish("done before you asked")
    async with calling(server, clock) as call:
        await clock.advance(2)
        assert call.result == server.result


# What it leaves out, and how it names things


@eras
async def test_a_task_without_ttl_and_interval_is_polled_every_second(clock: FakeClock, modern: bool) -> None:
    server = TaskServer(modern=modern)
    server.omit("ttl", "ttlMs", "pollInterval", "pollIntervalMs", "createdAt", "lastUpdatedAt")
    async with calling(server, clock) as call:
        await clock.advance(5.5)
        assert server.polls == 5
        server.finish("done")
        await clock.advance(1)
        assert call.result == server.result
        assert call.server.tasks[server.task_id].ttl_ms is None


@eras
@pytest.mark.parametrize(("interval", "polls"), [(0, 20), (-5, 1), ("soon", 1), (None, 1), (True, 1), (10**12, 0)])
async def test_no_interval_makes_us_flood_the_server_or_sleep_for_ever(
    clock: FakeClock, modern: bool, interval: object, polls: int
) -> None:
    server = TaskServer(modern=modern, poll_ms=interval)
    async with calling(server, clock) as call:
        await clock.advance(1.01)
        assert abs(server.polls - polls) <= 1
        server.finish("done")
        await clock.advance(60)
        assert call.result == server.result


@eras
@pytest.mark.parametrize("task_id", ["a:b c", " ", "ünïcode ✓", "x" * 4096])
async def test_any_text_is_good_as_an_id(clock: FakeClock, modern: bool, task_id: str) -> None:
    server = TaskServer(modern=modern, task_id=task_id)
    async with hub_with(server, clock) as client:
        ours = await promoted(client)
        await clock.advance(2)
        server.finish("done")
        await clock.advance(2)
        assert (await client.call("get_task_result", task_id=ours)).texts[0] == "done"
        asked = {params["taskId"] for method, params in server.scripted.received if method.startswith("tasks/")}
        assert asked == {task_id}


# tasks/result


async def test_an_error_from_tasks_result_while_the_task_works_is_not_its_end(clock: FakeClock) -> None:
    server = TaskServer()
    result = server.scripted.methods["tasks/result"]

    async def hasty(params: Mapping[str, Any]) -> JsonObject:
        if server.current["status"] != "completed":
            raise PeerError(-32603, "not ready yet")
        return await result(params)

    server.scripted.methods = {**server.scripted.methods, "tasks/result": hasty}
    async with calling(server, clock) as call:
        await clock.advance(10)
        assert not call.is_over
        server.finish("done")
        await clock.advance(3)
        assert call.result == server.result


async def test_a_result_that_never_comes_after_completion_is_given_up(clock: FakeClock) -> None:
    server = TaskServer(methods={"tasks/result": never})
    async with calling(server, clock) as call:
        server.finish("done")
        await clock.advance(RESULT_GRACE - 1)
        assert not call.is_over
        await clock.advance(3)
        assert call.error is not None
        assert call.error.code == -32603


@pytest.mark.parametrize("status", ["failed", "cancelled"])
async def test_an_empty_result_of_a_task_that_did_not_complete_is_an_error(clock: FakeClock, status: str) -> None:
    server = TaskServer(methods={"tasks/result": answering({})})
    server.status(status=status, statusMessage="it broke")
    async with calling(server, clock) as call:
        await clock.advance(2)
        assert call.error is not None
        assert "it broke" in str(call.error)


async def test_an_empty_result_that_overtakes_the_answer_to_a_cancellation_completes_nothing(clock: FakeClock) -> None:
    cancelled, fetched = anyio.Event(), anyio.Event()

    async def result(_params: Mapping[str, Any]) -> JsonObject:
        await cancelled.wait()
        fetched.set()
        return {}

    async def cancel(_params: Mapping[str, Any]) -> JsonObject:
        server.status(status="cancelled")
        cancelled.set()
        await fetched.wait()
        await settle()
        return server.current

    server = TaskServer(methods={"tasks/result": result, "tasks/cancel": cancel})
    async with hub_with(server, clock) as client:
        task_id = await promoted(client)
        await client.call("cancel_task", task_id=task_id)
        await settle()
        assert await status_of(client, task_id) == "cancelled"


# Inputs of extension tasks


async def test_a_key_that_is_used_for_a_second_question_ends_the_call(clock: FakeClock) -> None:
    server = TaskServer(modern=True)
    async with calling(server, clock) as call:
        server.ask(name=form("First?", name="string"))
        await clock.advance(2)
        await (await anext(call.server.questions())).accept({"name": "Ada"})
        await settle()
        server.ask(name=form("Second?", name="string"))
        await clock.advance(2)
        assert call.error is not None
        assert (call.error.code, "name" in call.error.message) == (-32603, True)


async def test_a_question_that_is_still_shown_after_its_answer_is_not_asked_again(clock: FakeClock) -> None:
    server = TaskServer(modern=True)
    async with calling(server, clock) as call:
        server.ask(name=form("First?", name="string"))
        await clock.advance(2)
        await (await anext(call.server.questions())).accept({"name": "Ada"})
        await clock.advance(10)
        server.finish("done")
        await clock.advance(2)
        assert call.result == server.result
        assert len(server.answers) == 1


@pytest.mark.parametrize(
    "requests",
    [{"a": {"method": "tools/call", "params": {}}}, {"a": "what?"}, {"a": {}}, {"a": None}],
    ids=str,
)
async def test_an_input_that_nobody_can_give_ends_the_call(clock: FakeClock, requests: JsonObject) -> None:
    server = TaskServer(modern=True)
    async with calling(server, clock) as call:
        server.status(status="input_required", inputRequests=requests)
        await clock.advance(5)
        assert call.error is not None
        assert call.error.code == -32603


@pytest.mark.parametrize("requests", [None, [], "what?", {}], ids=str)
async def test_a_task_that_waits_for_nothing_is_polled_on(clock: FakeClock, requests: object) -> None:
    server = TaskServer(modern=True)
    async with calling(server, clock) as call:
        server.status(status="input_required", inputRequests=requests)
        await clock.advance(5)
        assert not call.is_over
        server.finish("done")
        await clock.advance(2)
        assert call.result == server.result


async def test_an_answer_that_is_refused_ends_the_call(clock: FakeClock) -> None:
    server = TaskServer(modern=True, methods={"tasks/update": refusing(-32602, "no such task")})
    async with calling(server, clock) as call:
        server.ask(name=form("First?", name="string"))
        await clock.advance(2)
        await (await anext(call.server.questions())).accept({"name": "Ada"})
        await settle()
        assert call.error is not None
        assert call.error.code == -32602


async def test_questions_of_a_task_that_ended_are_taken_back(clock: FakeClock) -> None:
    server = TaskServer(modern=True)
    async with hub_with(server, clock) as client:
        task_id = await promoted(client)
        server.ask(name=form("First?", name="string"))
        await clock.advance(2)
        assert len((await client.call("get_elicitations")).json["elicitations"]) == 1
        server.finish("done without you")
        await clock.advance(2)
        assert (await client.call("get_elicitations")).json == {"elicitations": []}
        assert (await client.call("get_task_result", task_id=task_id)).texts[0] == "done without you"


@pytest.mark.parametrize(
    "ending",
    [
        {"status": "completed"},
        {"status": "completed", "result": "text"},
        {"status": "failed"},
        {"status": "failed", "error": "text"},
        {"status": "failed", "error": {"code": "x"}},
    ],
    ids=str,
)
async def test_an_end_without_its_payload_is_an_error(clock: FakeClock, ending: JsonObject) -> None:
    server = TaskServer(modern=True)
    async with calling(server, clock) as call:
        server.status(**ending)
        await clock.advance(2)
        assert call.error is not None
        assert call.error.code == -32603


# It has too many


async def test_the_cache_of_tasks_is_bounded(clock: FakeClock) -> None:
    tasks = [{"taskId": f"task-{number}", "status": "completed", "ttl": None} for number in range(5000)]
    server = TaskServer(methods={"tasks/list": answering({"tasks": tasks})})
    with anyio.fail_after(LIMIT_S):
        async with connect(server.scripted.transport(), clock=clock) as connection:
            found, _ = await connection.list_tasks()
            assert len(found) == 5000
            assert len(connection.tasks) <= 1000
