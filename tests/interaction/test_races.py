"""Two things at the same moment, in either order: what comes first decides, the other finds it decided.

No test here relies on luck. `JumpingClock.jump` moves time without letting anybody run, and a `GatedWork` goes on when
its gate is opened; whichever a test does first is first in the event loop's queue, with nothing between them.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc
import pytest
from anyio.lowlevel import checkpoint
from structlog.testing import capture_logs

from emceepee.client import Question
from emceepee.config import HubSettings
from emceepee.core.questions import Belonging
from emceepee.core.state import SessionLimits
from emceepee.errors import ConnectionLost, EmceepeeError, PeerError, ToolError
from emceepee.hub import Call, Link, Session
from emceepee.hub.work import Observer
from emceepee.observe import Metrics
from emceepee.testing import (
    Answer,
    FakeClock,
    HubClient,
    RunningHub,
    ScriptedCall,
    ScriptedServer,
    form,
    running_hub,
    settle,
    text_result,
)
from emceepee.tools import Caller
from emceepee.tools.calling import respond_with
from emceepee.tools.reply import complete, error_reply
from tests.interaction.gates import Gate, ask_name, echo
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

ORDERS = pytest.mark.parametrize("first", [True, False])
RETENTION = 300
"""Seconds for which an ended task is kept, and for which it may run."""
PATIENCE = 60
"""Seconds of real time after which something hangs."""


class JumpingClock(FakeClock):
    def jump(self, seconds: float) -> None:
        """Move time and wake whoever waited for it, but let nobody run yet."""
        self._elapsed += seconds
        while self._scopes and self._scopes[0][0] <= self._elapsed:
            heapq.heappop(self._scopes)[2].cancel()


class GatedWork:
    """Work at a server that ends in the very moment in which its gate is opened."""

    method = "tools/call"
    tool = "work"
    args: Mapping[str, Any] = {}

    def __init__(self, error: EmceepeeError | None = None) -> None:
        self.error = error
        self.reached = anyio.Event()
        self.opened = anyio.Event()
        self.call: Call

    async def run(self, link: Link, call: Observer) -> dict[str, Any]:
        assert isinstance(call, Call)
        self.call = call
        self.reached.set()
        await self.opened.wait()
        if self.error is not None:
            raise self.error
        return text_result("done")


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock()


@pytest.fixture(autouse=True)
async def no_task_is_left() -> AsyncIterator[None]:
    before = len(anyio.get_running_tasks())
    yield
    await settle()
    assert len(anyio.get_running_tasks()) <= before


@asynccontextmanager
async def hub_of(
    configured: Mapping[str, ScriptedServer],
    *,
    clock: FakeClock,
    servers: Mapping[str, ScriptedServer] | None = None,
    settings: HubSettings | None = None,
) -> AsyncIterator[RunningHub]:
    """A hub that has to be done with everything in time."""
    with anyio.fail_after(PATIENCE):
        async with running_hub(configured, servers=servers, clock=clock, settings=settings) as running:
            yield running


def beside(tasks: anyio.abc.TaskGroup, run: Callable[[], Awaitable[Answer]]) -> list[Answer]:
    """Have `run` run beside the test; its answer will be in the list."""
    answers: list[Answer] = []

    async def keep() -> None:
        answers.append(await run())

    tasks.start_soon(keep)
    return answers


async def do(client: HubClient, work: GatedWork, timeout_ms: int = 5000) -> Answer:
    """What a client is told that has the hub do `work`."""
    caller = Caller(client.hub, client.session)
    try:
        reply = await respond_with(caller, "demo", work, timeout_ms=timeout_ms)
    except ToolError as error:
        reply = error_reply(error)
    return Answer(complete(reply, caller))


async def quiet(client: HubClient) -> HubClient:
    """A client that has heard of its servers' connecting."""
    await client.call("list_tools")
    return client


async def only_task(client: HubClient) -> dict[str, Any]:
    """The one task there is, live or ended."""
    tasks: list[dict[str, Any]] = (await client.call("list_tasks", include_completed=True)).json["tasks"]
    assert len(tasks) == 1
    return tasks[0]


async def types_told(client: HubClient) -> list[str]:
    return (await client.call("list_servers")).event_types


async def assert_nothing_is_left(session: Session, clock: FakeClock) -> None:
    """No call, question or waiter; and, when the finished tasks are forgotten too, no timer but the idle one."""
    assert (len(session.calls), len(session.questions), session.state.questions.pending()) == (0, 0, [])
    assert session.state.events.waiters == 0
    assert len(session.state.deadlines) == 1 + len(session.state.tasks)
    await clock.advance(RETENTION)
    assert (len(session.state.tasks), len(session.state.deadlines)) == (0, 1)


# Response against timeout


@requirement("T001-race-response-timeout")
@ORDERS
async def test_a_response_and_the_timeout_in_one_tick_give_one_outcome(clock: JumpingClock, first: bool) -> None:
    async with hub_of({"demo": ScriptedServer()}, clock=clock) as running:
        client = await quiet(await running.client())
        work = GatedWork()
        async with anyio.create_task_group() as tasks:
            answers = beside(tasks, lambda: do(client, work))
            await work.reached.wait()
            if first:
                work.opened.set()
                clock.jump(5)
            else:
                clock.jump(5)
                work.opened.set()
        if first:
            assert answers[0].raw == text_result("done")
            assert (await client.call("list_tasks", include_completed=True)).json == {"tasks": []}
        else:
            task = await only_task(client)
            assert (task["task_id"], task["status"]) == (answers[0].task["task_id"], "completed")
            assert answers[0].event_types == ["task_created", "task_completed"]
            assert (await client.call("get_task_result", task_id=task["task_id"])).texts == ["done"]
        await assert_nothing_is_left(client.session, clock)


@requirement("T001-race-response-timeout")
@ORDERS
async def test_an_error_and_the_timeout_in_one_tick_give_one_outcome(clock: JumpingClock, first: bool) -> None:
    async with hub_of({"demo": ScriptedServer()}, clock=clock) as running:
        client = await quiet(await running.client())
        work = GatedWork(PeerError(-32000, "no"))
        async with anyio.create_task_group() as tasks:
            answers = beside(tasks, lambda: do(client, work))
            await work.reached.wait()
            if first:
                work.opened.set()
                clock.jump(5)
            else:
                clock.jump(5)
                work.opened.set()
        if first:
            assert (answers[0].error_code, answers[0].events) == ("SERVER_ERROR", [])
        else:
            assert (await only_task(client))["status"] == "failed"
            assert answers[0].event_types == ["task_created", "task_failed"]
        await assert_nothing_is_left(client.session, clock)


@requirement("T001-race-response-timeout", "T000-question-withdrawn")
@ORDERS
async def test_a_question_and_the_timeout_in_one_tick_make_one_task(clock: JumpingClock, first: bool) -> None:
    async with hub_of({"demo": ScriptedServer()}, clock=clock) as running:
        client = await quiet(await running.client())
        work = GatedWork()
        async with anyio.create_task_group() as tasks:
            answers = beside(tasks, lambda: do(client, work))
            await work.reached.wait()
            question = Question(
                "elicitation", form("Name?"), arrival="request", belongs_to=Belonging(work.call, "exact")
            )

            async def ask() -> None:
                client.session.questions.park("demo", question)

            if first:
                tasks.start_soon(ask)
                clock.jump(5)
            else:
                clock.jump(5)
                tasks.start_soon(ask)
        assert work.call.promoted_by == ("question" if first else "timeout")
        task = await only_task(client)
        assert answers[0].task["task_id"] == task["task_id"]
        asked = (await client.call("get_elicitations")).json["elicitations"]
        assert [entry["task_id"] for entry in asked] == [task["task_id"]]
        work.opened.set()
        await settle()
        assert question.settled == "withdrawn"
        await assert_nothing_is_left(client.session, clock)


# Cancel and expiry against completion


@requirement("T001-race-task-end", "T000-late-result", "P001-race-cancel-completion")
@ORDERS
async def test_cancel_and_completion_in_one_tick_give_one_outcome(clock: JumpingClock, first: bool) -> None:
    async with hub_of({"demo": ScriptedServer()}, clock=clock) as running:
        client = await quiet(await running.client())
        work = GatedWork()
        task = (await do(client, work, timeout_ms=0)).task
        await work.reached.wait()
        with capture_logs() as logged:
            async with anyio.create_task_group() as tasks:
                if first:
                    cancelled = beside(tasks, lambda: client.call("cancel_task", task_id=task["task_id"]))
                    work.opened.set()
                else:
                    work.opened.set()
                    cancelled = beside(tasks, lambda: client.call("cancel_task", task_id=task["task_id"]))
        dropped = [entry for entry in logged if entry["event"] == "late_result_dropped"]
        result = await client.call("get_task_result", task_id=task["task_id"])
        if first:
            assert cancelled[0].json["success"] is True
            assert cancelled[0].event_types == ["task_cancelled"]
            assert [entry["task_id"] for entry in dropped] == [task["task_id"]]
            assert (result.error_code, result.events) == ("TASK_CANCELLED", [])
        else:
            assert cancelled[0].json["success"] is False
            assert cancelled[0].event_types == ["task_completed"]
            assert dropped == []
            assert result.texts == ["done"]
        await assert_nothing_is_left(client.session, clock)


@requirement("T001-race-task-end", "T000-task-expired")
@ORDERS
async def test_expiry_and_completion_in_one_tick_give_one_outcome(clock: JumpingClock, first: bool) -> None:
    async with hub_of({"demo": ScriptedServer()}, clock=clock) as running:
        client = await quiet(await running.client())
        work = GatedWork()
        task = (await do(client, work, timeout_ms=0)).task
        await work.reached.wait()
        if first:
            clock.jump(task["ttl_ms"] / 1000)
            work.opened.set()
        else:
            work.opened.set()
            clock.jump(task["ttl_ms"] / 1000)
        await settle()
        result = await client.call("get_task_result", task_id=task["task_id"])
        if first:
            assert (result.error_code, result.event_types) == ("TASK_EXPIRED", ["task_expired"])
        else:
            assert (result.texts[0], result.event_types) == ("done", ["task_completed"])
        await assert_nothing_is_left(client.session, clock)


@requirement("T000-result-default-wait", "T001-race-task-end")
async def test_a_wait_for_a_result_that_lasts_as_long_as_the_ttl_ends_with_the_expiry(clock: JumpingClock) -> None:
    async with hub_of({"demo": ScriptedServer()}, clock=clock) as running:
        client = await quiet(await running.client())
        work, other = GatedWork(), GatedWork()
        task = (await do(client, work, timeout_ms=0)).task
        async with anyio.create_task_group() as tasks:
            results = beside(tasks, lambda: client.call("get_task_result", task_id=task["task_id"]))
            # The keeper of time goes back to sleep after this one, and so falls asleep later than the wait.
            promoted = beside(tasks, lambda: do(client, other, timeout_ms=1000))
            await other.reached.wait()
            await clock.advance(1)
            await clock.advance(RETENTION - 1)
        assert promoted[0].task["status"] == "working"
        assert results[0].error_code == "TASK_EXPIRED"


# Waiters


@requirement("T001-race-waiters", "T000-await-concurrent", "P001-race-waiters")
async def test_one_event_wakes_every_waiter_and_a_tool_that_answers_first_carries_it(clock: JumpingClock) -> None:
    async with hub_of({"demo": ScriptedServer()}, clock=clock) as running:
        client = await quiet(await running.client())
        work = GatedWork()
        await do(client, work, timeout_ms=0)
        async with anyio.create_task_group() as tasks:
            waits = [beside(tasks, lambda: client.call("await_activity")) for _ in range(3)]
            await settle()
            assert client.session.state.events.waiters == 3
            client.session.state.events.append("notification", "demo", {"method": "x", "params": {}})
            carrier = await client.call("list_tasks")
        assert carrier.event_types == ["notification"]
        trigger = {"type": "event", "server": "demo", "event_type": "notification"}
        for (waited,) in waits:
            assert (waited.json["triggers"], waited.json["events"]) == ([trigger], [])
            assert [entry["server"] for entry in waited.json["pending_server"]] == ["demo"]
        work.opened.set()
        await settle()
        await client.call("list_tasks")
        await assert_nothing_is_left(client.session, clock)


@requirement("T001-race-waiters", "P001-unit-events-wait")
@ORDERS
async def test_an_event_and_the_end_of_the_wait_in_one_tick_lose_nothing(clock: JumpingClock, first: bool) -> None:
    async with hub_of({"demo": ScriptedServer()}, clock=clock) as running:
        client = await quiet(await running.client())
        events = client.session.state.events
        async with anyio.create_task_group() as tasks:
            answers = beside(tasks, lambda: client.call("await_activity", timeout_ms=5000))
            await settle()
            if first:
                events.append("notification", "demo", {"method": "x", "params": {}})
                clock.jump(5)
            else:
                clock.jump(5)
                events.append("notification", "demo", {"method": "x", "params": {}})
        told = [event["type"] for group in answers[0].json["events"] for event in group["events"]]
        assert told + await types_told(client) == ["notification"]
        assert events.waiters == 0


@requirement("T001-events-lost", "T001-event-warning", "P001-race-eviction")
async def test_eviction_under_a_wait_with_a_cursor_gives_all_that_is_kept_and_counts_the_rest(
    clock: JumpingClock,
) -> None:
    settings = HubSettings(limits=SessionLimits(max_events=10))
    async with hub_of({"demo": ScriptedServer()}, clock=clock, settings=settings) as running:
        client = await quiet(await running.client())
        events = client.session.state.events
        cursor = events.last_event_id
        async with anyio.create_task_group() as tasks:
            answers = beside(tasks, lambda: client.call("await_activity", last_event_id=cursor))
            await settle()
            assert (answers, events.waiters) == ([], 1)
            with capture_logs() as logged:
                # All of this happens before the waiter, which the first event woke, gets to run.
                for n in range(25):
                    events.append("server_added", "demo", {"n": n})
                await settle()
        told = [event["data"]["n"] for event in answers[0].json["events"][0]["events"]]
        assert told == list(range(25 - len(told), 25))
        assert answers[0].json["events_lost"] + len(told) == 25
        assert "event_cursor_not_found" in [entry["event"] for entry in logged]
        assert "events_lost" not in (await client.call("await_activity", timeout_ms=0)).json


@requirement("T001-race-waiters")
async def test_a_cancelled_wait_leaves_no_waiter_and_takes_no_event(clock: JumpingClock) -> None:
    async with hub_of({"demo": ScriptedServer()}, clock=clock) as running:
        client = await quiet(await running.client())
        events = client.session.state.events
        async with anyio.create_task_group() as tasks:
            beside(tasks, lambda: client.call("await_activity"))
            await settle()
            tasks.cancel_scope.cancel()
        assert events.waiters == 0
        events.append("notification", "demo", {"method": "x", "params": {}})
        assert await types_told(client) == ["notification"]


# Disconnects


@requirement("T001-race-disconnect")
@ORDERS
async def test_a_disconnect_and_the_timeout_in_one_tick_give_one_outcome(clock: JumpingClock, first: bool) -> None:
    async with hub_of({"demo": ScriptedServer()}, clock=clock) as running:
        client = await quiet(await running.client())
        work = GatedWork(ConnectionLost("the server died"))
        async with anyio.create_task_group() as tasks:
            answers = beside(tasks, lambda: do(client, work))
            await work.reached.wait()
            if first:
                work.opened.set()
                clock.jump(5)
            else:
                clock.jump(5)
                work.opened.set()
        if first:
            assert answers[0].error_code == "SERVER_DISCONNECTED"
            assert (await client.call("list_tasks", include_completed=True)).json == {"tasks": []}
        else:
            assert (await only_task(client))["status"] == "failed"
        await assert_nothing_is_left(client.session, clock)


@requirement("T001-race-disconnect", "T000-task-disconnect")
async def test_a_server_that_dies_while_its_call_is_promoted_fails_the_task(clock: JumpingClock) -> None:
    gate = Gate()
    server = ScriptedServer({"slow": gate, "ask": ask_name})
    async with hub_of({"demo": server}, clock=clock) as running:
        client = await quiet(await running.client())
        async with anyio.create_task_group() as tasks:
            answers = beside(tasks, lambda: client.execute("demo", "slow", timeout_ms=5000))
            await gate.reached.wait()
            waits = beside(tasks, lambda: client.call("await_activity"))
            await settle()
            clock.jump(5)
            await server.die()
        await settle()
        task_id = answers[0].task["task_id"]
        assert waits[0].json["triggers"][0]["type"] == "event"
        failed = await client.call("get_task_result", task_id=task_id)
        assert failed.error_code == "TASK_FAILED"
        assert (await client.call("list_servers")).json["servers"][0]["connected"] is False
        await assert_nothing_is_left(client.session, clock)


@requirement("T001-race-disconnect", "T000-question-disconnect")
async def test_a_server_that_dies_with_a_call_and_a_question_open_ends_both(clock: JumpingClock) -> None:
    server = ScriptedServer({"ask": ask_name})
    async with hub_of({"demo": server}, clock=clock) as running:
        client = await quiet(await running.client())
        answer = await client.execute("demo", "ask")
        question = answer.pending["elicitations"][0]
        async with anyio.create_task_group() as tasks:
            results = beside(tasks, lambda: client.call("await_activity"))
            await settle()
            await server.die()
        assert results[0].json["pending_client"] == {"elicitations": [], "sampling_requests": []}
        late = await client.call("respond_to_elicitation", request_id=question["request_id"], action="decline")
        assert late.error_code == "REQUEST_NOT_FOUND"
        assert (await only_task(client))["status"] == "failed"
        await assert_nothing_is_left(client.session, clock)


@requirement("T001-race-disconnect", "T001-remove-server")
async def test_a_removed_server_ends_the_call_that_waits_for_it(clock: JumpingClock) -> None:
    gate = Gate()
    server = ScriptedServer({"slow": gate})
    async with hub_of({"demo": server}, clock=clock) as running:
        client, other = await quiet(await running.client()), await quiet(await running.client())
        async with anyio.create_task_group() as tasks:
            answers = beside(tasks, lambda: client.execute("demo", "slow"))
            await gate.reached.wait()
            await other.call("remove_server", name="demo")
        assert answers[0].error_code == "SERVER_DISCONNECTED"
        await settle()
        assert server.cancelled == ["slow"]
        gate.opened.set()
        await settle()
        assert (await client.call("list_tasks", include_completed=True)).json == {"tasks": []}
        await assert_nothing_is_left(client.session, clock)


@requirement("T001-race-disconnect")
@ORDERS
async def test_removal_and_completion_in_one_tick_give_one_outcome(clock: JumpingClock, first: bool) -> None:
    async with hub_of({"demo": ScriptedServer()}, clock=clock) as running:
        client = await quiet(await running.client())
        work = GatedWork()
        async with anyio.create_task_group() as tasks:
            answers = beside(tasks, lambda: do(client, work))
            await work.reached.wait()
            if first:
                beside(tasks, lambda: client.call("remove_server", name="demo"))
                work.opened.set()
            else:
                work.opened.set()
                beside(tasks, lambda: client.call("remove_server", name="demo"))
        assert answers[0].error_code == ("SERVER_DISCONNECTED" if first else None)
        await assert_nothing_is_left(client.session, clock)


@requirement("T001-race-disconnect")
async def test_a_server_removed_while_it_is_being_connected_ends_the_wait(clock: JumpingClock) -> None:
    async def never(_params: Mapping[str, Any]) -> dict[str, Any]:
        await anyio.sleep_forever()
        raise AssertionError

    hanging = ScriptedServer(methods={"initialize": never, "server/discover": never})
    async with hub_of({"demo": hanging}, clock=clock) as running:
        client = await running.client()
        async with anyio.create_task_group() as tasks:
            answers = beside(tasks, lambda: client.execute("demo", "slow"))
            listed = beside(tasks, lambda: client.call("list_tools"))
            await settle()
            await client.call("remove_server", name="demo")
        assert answers[0].error_code == "SERVER_DISCONNECTED"
        assert listed[0].json["servers"][0]["tools"] == []
        await assert_nothing_is_left(client.session, clock)


# Questions


@requirement("T001-race-question-end", "P001-race-respond-timeout")
@ORDERS
async def test_an_answer_and_the_timeout_of_a_question_in_one_tick_give_one_outcome(
    clock: JumpingClock, first: bool
) -> None:
    heard: list[object] = []

    async def ask(call: ScriptedCall) -> str:
        try:
            heard.append((await call.elicit(form("Name?", name="string")))["action"])
        except PeerError as error:
            heard.append(error.code)
        return "done"

    async with hub_of({"demo": ScriptedServer({"ask": ask})}, clock=clock) as running:
        client = await quiet(await running.client())
        answer = await client.execute("demo", "ask")
        request_id = answer.pending["elicitations"][0]["request_id"]

        async def decline() -> Answer:
            return await client.call("respond_to_elicitation", request_id=request_id, action="decline")

        async with anyio.create_task_group() as tasks:
            if first:
                responses = beside(tasks, decline)
                clock.jump(600)
            else:
                clock.jump(600)
                responses = beside(tasks, decline)
        await settle()
        assert responses[0].error_code == (None if first else "REQUEST_NOT_FOUND")
        assert heard == (["decline"] if first else [-1])
        told = [*responses[0].event_types, *(await types_told(client))]
        assert told == (["task_completed"] if first else ["elicitation_expired", "task_completed"])
        await assert_nothing_is_left(client.session, clock)


@requirement("T001-race-question-end", "T000-question-once")
async def test_of_two_answers_at_once_the_first_counts_and_the_second_is_told(clock: JumpingClock) -> None:
    async with hub_of({"demo": ScriptedServer({"ask": ask_name})}, clock=clock) as running:
        client = await quiet(await running.client())
        answer = await client.execute("demo", "ask")
        request_id = answer.pending["elicitations"][0]["request_id"]

        async def accept(name: str) -> Answer:
            return await client.call(
                "respond_to_elicitation", request_id=request_id, action="accept", content={"name": name}
            )

        async with anyio.create_task_group() as tasks:
            one = beside(tasks, lambda: accept("Ada"))
            other = beside(tasks, lambda: accept("Grace"))
        assert one[0].json["success"] is True
        assert other[0].error_code == "REQUEST_NOT_FOUND"
        assert "accepted" in other[0].json["error"]["message"]
        result = await client.call("get_task_result", task_id=answer.task["task_id"])
        assert result.texts[0] == "hello Ada"
        await assert_nothing_is_left(client.session, clock)


@requirement("T001-race-question-end")
async def test_an_answer_to_a_question_of_a_cancelled_task_comes_too_late(clock: JumpingClock) -> None:
    async with hub_of({"demo": ScriptedServer({"ask": ask_name})}, clock=clock) as running:
        client = await quiet(await running.client())
        answer = await client.execute("demo", "ask")
        request_id = answer.pending["elicitations"][0]["request_id"]
        async with anyio.create_task_group() as tasks:
            cancelled = beside(tasks, lambda: client.call("cancel_task", task_id=answer.task["task_id"]))
            late = beside(tasks, lambda: client.call("respond_to_elicitation", request_id=request_id, action="decline"))
        assert cancelled[0].json["success"] is True
        assert late[0].error_code == "REQUEST_NOT_FOUND"
        told = sorted([*cancelled[0].event_types, *late[0].event_types, *(await types_told(client))])
        assert told == ["question_withdrawn", "task_cancelled"]
        await settle()
        await assert_nothing_is_left(client.session, clock)


# Sessions


@requirement("T001-session-close", "T001-race-session")
async def test_a_session_that_closes_during_a_call_ends_the_call_everywhere(clock: JumpingClock) -> None:
    gate = Gate()
    server = ScriptedServer({"slow": gate})
    async with hub_of({"demo": server}, clock=clock) as running:
        client, other = await quiet(await running.client()), await quiet(await running.client())
        async with anyio.create_task_group() as tasks:
            answers = beside(tasks, lambda: client.execute("demo", "slow"))
            await gate.reached.wait()
            client.session.close()
        await client.session.closed.wait()
        await settle()
        assert answers[0].error_code == "SESSION_CLOSED"
        assert server.cancelled == ["slow"]
        assert list(running.hub.sessions) == [other.session.id]
        assert (await other.call("list_servers")).json["servers"][0]["connected"] is True
        assert len(client.session.calls) == 0


@requirement("T001-session-close", "T001-race-session")
@pytest.mark.parametrize("tool", ["await_activity", "get_task_result"])
async def test_a_session_that_closes_ends_the_waits_for_it(clock: JumpingClock, tool: str) -> None:
    async with hub_of({"demo": ScriptedServer({"slow": Gate()})}, clock=clock) as running:
        client = await quiet(await running.client())
        task_id = (await client.execute("demo", "slow", timeout_ms=0)).task["task_id"]
        arguments = {"task_id": task_id} if tool == "get_task_result" else {}
        async with anyio.create_task_group() as tasks:
            answers = beside(tasks, lambda: client.call(tool, **arguments))
            await settle()
            assert client.session.state.events.waiters == 1
            client.session.close()
            await client.session.closed.wait()
            await settle()
            ended = len(answers)
            tasks.cancel_scope.cancel()
        assert ended == 1
        assert client.session.state.events.waiters == 0


@requirement("T001-race-session")
async def test_a_call_on_a_session_that_has_closed_is_an_error_and_hangs_nowhere(clock: JumpingClock) -> None:
    async with hub_of({"demo": ScriptedServer({"echo": echo})}, clock=clock) as running:
        client = await quiet(await running.client())
        client.session.close()
        while_closing = await client.execute("demo", "echo", {"text": "x"})
        await client.session.closed.wait()
        afterwards = await client.execute("demo", "echo", {"text": "x"})
        assert (while_closing.error_code, afterwards.error_code) == ("SESSION_CLOSED", "SESSION_CLOSED")


@requirement("T001-race-session")
async def test_a_server_added_while_a_session_opens_is_known_to_it(clock: JumpingClock) -> None:
    servers = {"demo": ScriptedServer({"echo": echo})}
    async with hub_of({}, servers=servers, clock=clock) as running:
        client = await running.client()
        opened: list[HubClient] = []
        order: list[str] = []

        async def open_another() -> None:
            order.append("opening")
            opened.append(await running.client())
            order.append("opened")

        async def add() -> Answer:
            order.append("adding")
            return await client.call("add_server", name="demo", url="http://demo.invalid/mcp")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(open_another)
            added = beside(tasks, add)
        assert order == ["opening", "adding", "opened"]
        assert added[0].error_code is None
        assert (await opened[0].execute("demo", "echo", {"text": "hi"})).texts[0] == "hi"


@requirement("T001-race-session")
async def test_metrics_can_be_read_while_a_session_opens(clock: JumpingClock) -> None:
    async with hub_of({}, clock=clock) as running:
        metrics = Metrics()
        metrics.watch(running.hub)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.client)
            await checkpoint()
            assert b"emceepee_sessions 0.0" in metrics.exposition()
        assert b"emceepee_sessions 1.0" in metrics.exposition()


@requirement("T001-shutdown", "T001-question-shutdown", "P001-int-shutdown")
async def test_shutdown_ends_everything_that_is_in_flight(clock: JumpingClock) -> None:
    async def never(_params: Mapping[str, Any]) -> dict[str, Any]:
        await anyio.sleep_forever()
        raise AssertionError

    async def sample(call: ScriptedCall) -> str:
        return str(await call.sample({"messages": [], "maxTokens": 1}))

    gate, running_on = Gate(), Gate()
    server = ScriptedServer({"slow": gate, "task": running_on, "ask": ask_name, "sample": sample})
    hanging = ScriptedServer(methods={"initialize": never, "server/discover": never})
    async with hub_of({"demo": server, "hanging": hanging}, clock=clock) as running:
        client, other = await running.client(), await running.client()
        await client.call("list_tools", server="demo")
        await other.call("list_tools", server="demo")
        asking = (await client.execute("demo", "ask")).task
        working = (await client.execute("demo", "task", timeout_ms=0)).task
        sampling = (await other.execute("demo", "sample")).task
        async with anyio.create_task_group() as tasks:
            waits = [
                beside(tasks, lambda: client.execute("demo", "slow")),
                beside(tasks, lambda: client.execute("hanging", "anything")),
                beside(tasks, lambda: client.call("list_tools", server="hanging")),
                beside(tasks, lambda: client.call("await_activity")),
                beside(tasks, lambda: client.call("get_task_result", task_id=working["task_id"])),
                beside(tasks, lambda: other.call("await_activity")),
            ]
            await gate.reached.wait()
            await running_on.reached.wait()
            await settle()
            assert (waits, len(client.session.calls), len(other.session.calls)) == ([[]] * 6, 4, 1)
            assert (len(client.session.questions), len(other.session.questions)) == (1, 1)
            running.hub.close()
            await running.hub.closed.wait()
        assert [len(answers) for answers in waits] == [1] * 6
        assert running.hub.sessions == {}
        for session in (client.session, other.session):
            assert (len(session.questions), session.state.questions.pending()) == (0, [])
            assert session.state.events.waiters == 0
            assert len(session.calls) == 0
            assert len(session.state.deadlines) <= 1 + len(session.state.tasks)
        ended = [client.session.state.tasks.get(task["task_id"]) for task in (asking, working)]
        ended.append(other.session.state.tasks.get(sampling["task_id"]))
        assert [task.status for task in ended] == ["failed"] * 3
        await settle()
        assert sorted(server.cancelled) == ["ask", "sample", "slow", "task"]


@requirement("T001-shutdown")
async def test_a_session_is_refused_once_the_hub_closes(clock: JumpingClock) -> None:
    async with hub_of({"demo": ScriptedServer()}, clock=clock) as running:
        running.hub.close()
        with pytest.raises(EmceepeeError):
            await running.client()
