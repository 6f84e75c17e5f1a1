"""Promises of the design that no other test is about: what clients are shown, for how long, and what they never see."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import anyio.abc
import pytest
from structlog.testing import capture_logs

from emceepee.config import HubSettings
from emceepee.core import questions, tasks
from emceepee.core.questions import QuestionKind
from emceepee.core.state import SessionLimits
from emceepee.errors import EmceepeeError, PeerError
from emceepee.front.resources import OwnResources
from emceepee.observe import diagrams
from emceepee.testing import (
    Answer,
    FakeClock,
    HubClient,
    ScriptedCall,
    ScriptedServer,
    form,
    running_hub,
    settle,
    text_result,
)
from emceepee.tools import ToolBox
from tests.interaction.gates import Gate, ask_name, echo
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

COMING_BACK = {"server_reconnecting", "server_reconnected"}
"""What is told of a link that tries again, which is not what these tests are about."""
SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 10}


def beside(task_group: anyio.abc.TaskGroup, run: Callable[[], Awaitable[Answer]]) -> list[Answer]:
    """Have `run` run beside the test; its answer will be in the list."""
    answers: list[Answer] = []

    async def keep() -> None:
        answers.append(await run())

    task_group.start_soon(keep)
    return answers


async def quiet(client: HubClient) -> HubClient:
    """A client that has heard of its servers' connecting."""
    await client.call("list_tools")
    return client


def events_of(activity: Answer) -> list[dict[str, Any]]:
    return [event for group in activity.json["events"] for event in group["events"]]


def types_of(activity: Answer) -> list[str]:
    return [event["type"] for event in events_of(activity)]


async def sample(call: ScriptedCall) -> str:
    return json.dumps(await call.sample(SAMPLE))


# Time


@requirement("T000-default-timeout", "P000-unit-timeout")
async def test_a_call_without_a_timeout_is_waited_for_two_minutes(clock: FakeClock) -> None:
    gate = Gate()
    async with running_hub({"demo": ScriptedServer({"slow": gate})}, clock=clock) as running:
        client = await quiet(await running.client())
        async with anyio.create_task_group() as task_group:
            answers = beside(task_group, lambda: client.execute("demo", "slow"))
            await gate.reached.wait()
            await clock.advance(119.999)
            assert answers == []
            await clock.advance(0.001)
        assert answers[0].task["status"] == "working"


@requirement("T000-await-default")
async def test_activity_is_awaited_for_half_a_minute_unless_told_otherwise(clock: FakeClock) -> None:
    async with running_hub({"demo": ScriptedServer()}, clock=clock) as running:
        client = await quiet(await running.client())
        async with anyio.create_task_group() as task_group:
            answers = beside(task_group, lambda: client.call("await_activity"))
            await clock.advance(29.999)
            assert answers == []
            await clock.advance(0.001)
        assert answers[0].json["triggers"] == [{"type": "timeout"}]


@requirement("T000-question-own-timeout", "T000-question-timeout", "T000-settings")
async def test_a_questions_timeout_is_apart_from_the_ttl_of_its_task(clock: FakeClock) -> None:
    heard: list[int] = []

    async def ask(call: ScriptedCall) -> str:
        try:
            await call.elicit(form("Name?", name="string"))
        except PeerError as error:
            heard.append(error.code)
        await anyio.sleep_forever()
        raise AssertionError

    settings = HubSettings(limits=SessionLimits(question_timeout_ms=400_000))
    async with running_hub({"demo": ScriptedServer({"ask": ask})}, clock=clock, settings=settings) as running:
        client = await quiet(await running.client())
        task = (await client.execute("demo", "ask")).task
        assert task["ttl_ms"] == 300_000
        await clock.advance(399.999)
        assert len((await client.call("get_elicitations")).json["elicitations"]) == 1
        await clock.advance(0.001)
        expired = await client.call("get_task", task_id=task["task_id"])
        assert (expired.json["task"]["status"], expired.event_types) == ("working", ["elicitation_expired"])
        assert heard == [-1]
        await clock.advance(300)
        assert (await client.call("get_task_result", task_id=task["task_id"])).error_code == "TASK_EXPIRED"


@requirement("T001-session-idle")
async def test_a_session_is_closed_when_it_was_idle_for_half_an_hour_and_nothing_is_live(clock: FakeClock) -> None:
    gate = Gate()
    async with running_hub({"demo": ScriptedServer({"slow": gate})}, clock=clock) as running:
        busy, held, idle = [await quiet(await running.client()) for _ in range(3)]
        await busy.execute("demo", "slow", timeout_ms=0, task_ttl_ms=1_800_000)
        with held.session.in_use():
            await clock.advance(1799)
            assert len(running.hub.sessions) == 3
            await clock.advance(1)
            assert set(running.hub.sessions) == {busy.session.id, held.session.id}
            assert idle.session.closed.is_set()
        await clock.advance(3600)
        assert running.hub.sessions == {}


# Waiting for activity


@requirement("T000-await-wake", "P000-int-await-elicitation", "T000-await-pending-client")
async def test_a_question_ends_the_wait_and_stays_pending_until_it_is_answered(clock: FakeClock) -> None:
    gate = Gate()

    async def ask(call: ScriptedCall) -> str:
        await gate(call)
        return await ask_name(call)

    async with running_hub({"demo": ScriptedServer({"ask": ask})}, clock=clock) as running:
        client = await quiet(await running.client())
        task = (await client.execute("demo", "ask", timeout_ms=0)).task
        async with anyio.create_task_group() as task_group:
            answers = beside(task_group, lambda: client.call("await_activity"))
            await settle()
            gate.opened.set()
        activity = answers[0].json
        trigger = {"type": "event", "server": "demo", "event_type": "elicitation_request"}
        assert (activity["triggers"], types_of(answers[0])) == ([trigger], ["elicitation_request"])
        pending = activity["pending_client"]
        assert [question["task_id"] for question in pending["elicitations"]] == [task["task_id"]]
        again = (await client.call("await_activity", timeout_ms=0)).json
        assert (again["events"], again["pending_client"]) == ([], pending)


@requirement("T000-await-wake", "T000-await-triggers", "T000-await-by-server", "P000-int-await-notification")
@requirement("P001-int-multi-server")
async def test_notifications_end_the_wait_and_are_grouped_by_server(clock: FakeClock) -> None:
    one, two = ScriptedServer(), ScriptedServer()
    async with running_hub({"one": one, "two": two}, clock=clock) as running:
        client = await quiet(await running.client())
        async with anyio.create_task_group() as task_group:
            answers = beside(task_group, lambda: client.call("await_activity"))
            await settle()
            events = client.session.state.events
            # Both happen before the waiter, which the first one woke, gets to run.
            events.append("notification", "one", {"method": "x", "params": {}})
            events.append("notification", "two", {"method": "y", "params": {}})
            events.append("notification", "one", {"method": "z", "params": {}})
        activity = answers[0].json
        assert activity["triggers"] == [
            {"type": "event", "server": "one", "event_type": "notification"},
            {"type": "event", "server": "two", "event_type": "notification"},
        ]
        methods = {
            group["server"]: [event["data"]["method"] for event in group["events"]] for group in activity["events"]
        }
        assert methods == {"one": ["x", "z"], "two": ["y"]}


@requirement("P000-int-await-notification", "T001-event-notification")
async def test_a_servers_notification_ends_the_wait(clock: FakeClock) -> None:
    server = ScriptedServer()
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await quiet(await running.client())
        async with anyio.create_task_group() as task_group:
            answers = beside(task_group, lambda: client.call("await_activity"))
            await settle()
            await server.notify("notifications/custom", {"n": 1})
        event = answers[0].json["events"][0]["events"][0]
        assert event["data"] == {"method": "notifications/custom", "params": {"n": 1}}


@requirement("T000-await-not-logs", "T001-event-no-logs")
async def test_a_log_message_does_not_end_the_wait(clock: FakeClock) -> None:
    server = ScriptedServer()
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await quiet(await running.client())
        async with anyio.create_task_group() as task_group:
            answers = beside(task_group, lambda: client.call("await_activity"))
            await settle()
            await server.notify("notifications/message", {"level": "error", "data": "boo"})
            await settle()
            assert answers == []
            await clock.advance(30)
        assert (answers[0].json["triggers"], answers[0].json["events"]) == ([{"type": "timeout"}], [])
        assert [entry["data"] for entry in (await client.call("get_logs")).json["logs"]] == ["boo"]


@requirement("P001-unit-events-isolation", "T001-event-session")
async def test_what_is_told_to_one_session_wakes_no_other(clock: FakeClock) -> None:
    async with running_hub({"demo": ScriptedServer()}, clock=clock) as running:
        one, other = await quiet(await running.client()), await quiet(await running.client())
        cursor = one.session.state.events.last_event_id
        async with anyio.create_task_group() as task_group:
            answers = beside(task_group, lambda: other.call("await_activity"))
            await settle()
            one.session.state.events.append("notification", "demo", {"method": "x", "params": {}})
            await settle()
            assert answers == []
            await clock.advance(30)
        assert answers[0].json["triggers"] == [{"type": "timeout"}]
        with capture_logs() as logged:
            foreign = await other.call("await_activity", last_event_id=cursor)
        assert "event_cursor_not_found" in [entry["event"] for entry in logged]
        assert types_of(foreign) == ["server_connected"], "only what was its own"


# Questions


@requirement("T000-question-parked")
async def test_a_question_waits_for_its_answer_and_its_server_with_it(clock: FakeClock) -> None:
    went_on: list[str] = []

    async def ask(call: ScriptedCall) -> str:
        went_on.append(await ask_name(call))
        return went_on[0]

    async with running_hub({"demo": ScriptedServer({"ask": ask})}, clock=clock) as running:
        client = await quiet(await running.client())
        answer = await client.execute("demo", "ask")
        await clock.advance(599)
        assert went_on == []
        assert (await client.call("get_elicitations")).json["elicitations"] == answer.pending["elicitations"]


@requirement("T000-elicitation-answers", "T000-answer-unblocks", "P000-int-unblocks")
@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
@pytest.mark.parametrize("modern", [False, True])
async def test_every_answer_reaches_the_server_as_the_protocol_has_it(
    clock: FakeClock, action: str, modern: bool
) -> None:
    async def ask(call: ScriptedCall) -> str:
        return json.dumps(await call.elicit(form("Name?", name="string")))

    content = {"content": {"name": "Ada"}} if action == "accept" else {}
    async with running_hub({"demo": ScriptedServer({"ask": ask}, modern=modern)}, clock=clock) as running:
        client = await quiet(await running.client())
        answer = await client.execute("demo", "ask")
        request_id = answer.pending["elicitations"][0]["request_id"]
        answered = await client.call("respond_to_elicitation", request_id=request_id, action=action, **content)
        assert (answered.json["success"], answered.json["task_id"]) == (True, answer.task["task_id"])
        result = await client.call("get_task_result", task_id=answer.task["task_id"])
        assert result.json == {"action": action, **content}


@requirement("T000-sampling-answer", "T001-get-sampling")
@pytest.mark.parametrize(
    ("content", "sent"),
    [
        ("Hello", {"type": "text", "text": "Hello"}),
        ({"type": "text", "text": "Hello", "x": 1}, {"type": "text", "text": "Hello", "x": 1}),
        ([{"type": "text", "text": "Hello"}], {"type": "text", "text": "Hello"}),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], None),
    ],
)
async def test_an_answer_to_a_sampling_request_is_text_or_blocks(
    clock: FakeClock, content: Any, sent: dict[str, Any] | None
) -> None:
    async with running_hub({"demo": ScriptedServer({"sample": sample})}, clock=clock) as running:
        client = await quiet(await running.client())
        answer = await client.execute("demo", "sample")
        listed = (await client.call("get_sampling_requests")).json["sampling_requests"]
        assert (listed, listed[0]["params"]) == (answer.pending["sampling_requests"], SAMPLE)
        await client.call(
            "respond_to_sampling",
            request_id=listed[0]["request_id"],
            content=content,
            model="m",
            stop_reason="endTurn",
        )
        result = await client.call("get_task_result", task_id=answer.task["task_id"])
        expected = content if sent is None else sent
        assert result.json == {"role": "assistant", "content": expected, "model": "m", "stopReason": "endTurn"}


@requirement("T000-sampling-reject", "T001-question-told")
async def test_a_rejected_sampling_request_is_error_minus_one_and_told(clock: FakeClock) -> None:
    heard: list[tuple[int, str]] = []

    async def reluctant(call: ScriptedCall) -> str:
        try:
            return await sample(call)
        except PeerError as error:
            heard.append((error.code, error.message))
            return "never mind"

    async with running_hub({"demo": ScriptedServer({"sample": reluctant})}, clock=clock) as running:
        client = await quiet(await running.client())
        answer = await client.execute("demo", "sample")
        request_id = answer.pending["sampling_requests"][0]["request_id"]
        rejected = await client.call("respond_to_sampling", request_id=request_id, reject="not today")
        assert rejected.events[0]["data"] == {"request_id": request_id, "reason": "not today"}
        result = await client.call("get_task_result", task_id=answer.task["task_id"])
        assert (result.texts[0], heard) == ("never mind", [(-1, "not today")])


@requirement("T000-question-everywhere", "T000-response-promotion", "T000-response-keys", "P000-int-concurrent")
async def test_a_question_of_unknown_origin_stands_in_every_task_response_of_its_server(clock: FakeClock) -> None:
    gate = Gate()
    server, other = ScriptedServer({"slow": gate, "ask": ask_name}), ScriptedServer({"slow": Gate()})
    async with running_hub({"demo": server, "other": other}, clock=clock) as running:
        client = await quiet(await running.client())
        async with anyio.create_task_group() as task_group:
            slow = beside(task_group, lambda: client.execute("demo", "slow", timeout_ms=1000))
            await gate.reached.wait()
            asked = beside(task_group, lambda: client.execute("demo", "ask", timeout_ms=2000))
            await settle()
            question = (await client.call("get_elicitations")).json["elicitations"][0]
            await clock.advance(2)
        elsewhere = await client.execute("other", "slow", timeout_ms=0)
        for answer in (slow[0], asked[0]):
            assert answer.part("pending_on_server")["elicitations_for_server"] == [question]
            shown = await client.call("get_task", task_id=answer.task["task_id"])
            assert shown.json["pending_elicitations_for_server"] == [question]
            assert shown.pending["elicitations"] == [question]
        of_both = asked[0].part("pending_on_server")["tasks"]
        assert [task["task_id"] for task in of_both] == [slow[0].task["task_id"], asked[0].task["task_id"]]
        of_other = elsewhere.part("pending_on_server")
        assert [task["server"] for task in of_other["tasks"]] == ["other"]
        assert of_other["elicitations_for_server"] == []
        assert elsewhere.pending["elicitations"] == [question]


@requirement("P001-int-restart-sampling", "P001-int-restart-elicitations", "P001-int-restart-tasks")
@requirement("T000-question-disconnect", "T001-question-told", "T001-link-needed")
async def test_a_restarted_server_finds_its_questions_and_tasks_ended(clock: FakeClock) -> None:
    server = ScriptedServer({"ask": ask_name, "sample": sample, "echo": echo})
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await quiet(await running.client())
        found = [await client.execute("demo", tool, timeout_ms=0) for tool in ("ask", "sample")]
        await settle()
        assert len((await client.call("get_elicitations")).json["elicitations"]) == 1
        await server.die()
        await settle()
        activity = await client.call("await_activity")
        told = [event_type for event_type in types_of(activity) if event_type not in COMING_BACK]
        assert sorted(told) == [
            "elicitation_expired",
            "sampling_expired",
            "server_disconnected",
            "task_failed",
            "task_failed",
        ]
        assert activity.json["pending_client"] == {"elicitations": [], "sampling_requests": []}
        assert (await client.execute("demo", "echo", {"text": "again"})).texts[0] == "again"
        for answer in found:
            shown = (await client.call("get_task", task_id=answer.task["task_id"])).json["task"]
            assert (shown["status"], "'demo' is not connected" in shown["error"]) == ("failed", True)
        assert (await client.call("get_sampling_requests")).json == {"sampling_requests": []}


# Task tools


@requirement("T000-list-tasks", "T001-task-table")
async def test_tasks_are_listed_by_server_and_status_and_ended_ones_on_demand(clock: FakeClock) -> None:
    done, open_ended = Gate(), Gate()
    one, two = ScriptedServer({"done": done, "open": open_ended}), ScriptedServer({"open": Gate()})
    async with running_hub({"one": one, "two": two}, clock=clock) as running:
        client = await quiet(await running.client())
        ids = [
            (await client.execute(server, tool, timeout_ms=0)).task["task_id"]
            for server, tool in (("one", "done"), ("one", "open"), ("two", "open"))
        ]
        done.opened.set()
        await settle()

        async def listed(**filters: Any) -> list[str]:
            return [task["task_id"] for task in (await client.call("list_tasks", **filters)).json["tasks"]]

        assert await listed() == ids[1:]
        assert await listed(include_completed=True) == ids
        assert await listed(server="one") == [ids[1]]
        assert await listed(status="completed") == [ids[0]]
        assert await listed(server="two", status="completed") == []
        assert (await client.call("list_tasks", status="finished")).error_code == "INVALID_ARGUMENTS"


@requirement("T000-get-task", "T000-response-get-task", "T000-task-fields", "T000-task-failed")
async def test_a_failed_task_is_shown_whole_with_the_servers_error(clock: FakeClock) -> None:
    gate = Gate()

    async def fail(call: ScriptedCall) -> str:
        await gate(call)
        raise PeerError(-32011, "the oven is cold")

    async with running_hub({"demo": ScriptedServer({"fail": fail})}, clock=clock) as running:
        client = await quiet(await running.client())
        task = (await client.execute("demo", "fail", {"n": 1}, timeout_ms=0)).task
        await clock.advance(1)
        gate.opened.set()
        await settle()
        answer = await client.call("get_task", task_id=task["task_id"])
        shown = answer.json["task"]
        assert answer.json == {"task": shown, "pending_elicitations_for_server": []}
        assert "the oven is cold" in shown["error"]
        assert shown == {
            "task_id": task["task_id"],
            "origin": "promoted",
            "server": "demo",
            "tool": "fail",
            "status": "failed",
            "status_message": None,
            "created_at": task["created_at"],
            "last_updated_at": shown["last_updated_at"],
            "ttl_ms": 300_000,
            "progress": None,
            "args": {"n": 1},
            "error": shown["error"],
        }
        assert shown["created_at"] < shown["last_updated_at"]
        assert answer.events[0]["data"] == {"task_id": task["task_id"], "tool": "fail", "error": shown["error"]}


@requirement("T000-result-errors", "T001-error-codes")
async def test_each_end_without_a_result_has_a_code_of_its_own(clock: FakeClock) -> None:
    async def fail(_call: ScriptedCall) -> str:
        raise PeerError(-32011, "no")

    async with running_hub({"demo": ScriptedServer({"slow": Gate(), "fail": fail})}, clock=clock) as running:
        client = await quiet(await running.client())
        ids = [
            (await client.execute("demo", tool, timeout_ms=0, task_ttl_ms=ttl)).task["task_id"]
            for tool, ttl in (("fail", 9000), ("slow", 9000), ("slow", 1000))
        ]
        await client.call("cancel_task", task_id=ids[1])
        await clock.advance(1)
        codes = [(await client.call("get_task_result", task_id=task_id)).error_code for task_id in [*ids, "nope"]]
        assert codes == ["TASK_FAILED", "TASK_CANCELLED", "TASK_EXPIRED", "TASK_NOT_FOUND"]


@requirement("T000-result-not-yet")
async def test_a_result_that_is_not_there_in_time_is_no_error(clock: FakeClock) -> None:
    async with running_hub({"demo": ScriptedServer({"slow": Gate()})}, clock=clock) as running:
        client = await quiet(await running.client())
        task = (await client.execute("demo", "slow", timeout_ms=0)).task
        async with anyio.create_task_group() as task_group:
            answers = beside(
                task_group, lambda: client.call("get_task_result", task_id=task["task_id"], timeout_ms=1000)
            )
            await clock.advance(1)
        assert not answers[0].is_error
        assert answers[0].part("task")["status"] == "working"


@requirement("T000-result-question")
async def test_a_question_ends_the_wait_for_a_result(clock: FakeClock) -> None:
    gate = Gate()

    async def ask(call: ScriptedCall) -> str:
        await gate(call)
        return await ask_name(call)

    async with running_hub({"demo": ScriptedServer({"ask": ask})}, clock=clock) as running:
        client = await quiet(await running.client())
        task = (await client.execute("demo", "ask", timeout_ms=0)).task
        async with anyio.create_task_group() as task_group:
            answers = beside(task_group, lambda: client.call("get_task_result", task_id=task["task_id"]))
            await gate.reached.wait()
            await settle()
            assert answers == []
            gate.opened.set()
        assert not answers[0].is_error
        assert answers[0].part("questions") == answers[0].pending["elicitations"]
        assert [question["task_id"] for question in answers[0].part("questions")] == [task["task_id"]]


@requirement("T001-link-results-kept")
async def test_a_result_outlives_the_connection_that_brought_it(clock: FakeClock) -> None:
    server = ScriptedServer({"echo": echo})
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await quiet(await running.client())
        task = (await client.execute("demo", "echo", {"text": "kept"}, timeout_ms=0)).task
        await settle()
        await server.die()
        await settle()
        for _ in range(2):
            assert (await client.call("get_task_result", task_id=task["task_id"])).texts[0] == "kept"


# Responses


@requirement("T000-response-promotion", "T000-response-blocks", "T000-response-not-meta", "T001-event-order")
async def test_a_promotion_says_what_to_do_then_what_it_is_then_what_is_new_then_what_waits(clock: FakeClock) -> None:
    async with running_hub({"demo": ScriptedServer({"ask": ask_name})}, clock=clock) as running:
        client = await quiet(await running.client())
        answer = await client.execute("demo", "ask", task_ttl_ms=7000)
        task = answer.task
        assert (set(answer.raw), len(answer.texts)) == ({"content"}, 4)
        summary, facts, events, pending = answer.texts
        assert task["task_id"] in summary
        assert "respond_to_elicitation" in summary
        assert set(json.loads(facts)) == {"proxy_task", "pending_on_server"}
        assert set(task) == {"task_id", "status", "created_at", "server", "tool", "ttl_ms"}
        assert (task["server"], task["tool"], task["status"], task["ttl_ms"]) == ("demo", "ask", "working", 7000)
        assert [event["type"] for event in json.loads(events)["events_since_last_response"]] == [
            "task_created",
            "elicitation_request",
        ]
        assert json.loads(pending) == {"pending_client_action": answer.pending}


@requirement("T000-response-blocks", "T000-response-not-meta", "T001-event-any-response")
async def test_news_and_questions_follow_a_servers_own_result_in_its_content(clock: FakeClock) -> None:
    async def odd(_call: ScriptedCall) -> dict[str, Any]:
        return {**text_result("x"), "structuredContent": {"a": 1}, "_meta": {"vendor/x": 1}}

    server = ScriptedServer({"odd": odd, "ask": ask_name, "slow": Gate()})
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await quiet(await running.client())
        await client.execute("demo", "slow", timeout_ms=0)
        await client.execute("demo", "ask", timeout_ms=0)
        await settle()
        answer = await client.execute("demo", "odd")
        assert {key: value for key, value in answer.raw.items() if key != "content"} == {
            "structuredContent": {"a": 1},
            "_meta": {"vendor/x": 1},
        }
        assert [next(iter(json.loads(text))) for text in answer.texts[1:]] == [
            "events_since_last_response",
            "pending_client_action",
        ]
        assert answer.event_types == ["elicitation_request"]
        again = await client.execute("demo", "odd")
        assert [next(iter(json.loads(text))) for text in again.texts[1:]] == ["pending_client_action"]


def _keys(value: object) -> Iterator[str]:
    """Every key that is ours: what stands under the protocol's own is carried as it is."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            if key not in ("params", "capabilities", "args"):
                yield from _keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(inner)


@requirement("T000-response-keys", "T000-response-pending")
async def test_a_question_reads_the_same_everywhere_and_all_keys_are_snake_case(clock: FakeClock) -> None:
    async with running_hub({"demo": ScriptedServer({"ask": ask_name})}, clock=clock) as running:
        client = await quiet(await running.client())
        promoted = await client.execute("demo", "ask")
        question = promoted.pending["elicitations"][0]
        activity = await client.call("await_activity", last_event_id="01NOSUCHEVENT")
        listed = await client.call("get_elicitations")
        shown = await client.call("get_task", task_id=promoted.task["task_id"])
        waiting = await client.call("get_task_result", task_id=promoted.task["task_id"])
        events = events_of(activity)
        assert set(question) == {
            "request_id",
            "kind",
            "server",
            "received_at",
            "expires_at",
            "task_id",
            "certainty",
            "message",
            "params",
        }
        everywhere = [
            promoted.part("pending_on_server")["elicitations_for_server"],
            activity.json["pending_client"]["elicitations"],
            [event["data"] for event in events if event["type"] == "elicitation_request"],
            listed.json["elicitations"],
            listed.pending["elicitations"],
            shown.json["pending_elicitations_for_server"],
            waiting.part("questions"),
        ]
        assert everywhere == [[question]] * len(everywhere)
        answers = [promoted, activity, listed, shown, waiting, await client.call("list_servers")]
        blocks = [json.loads(text) for answer in answers for text in answer.texts if text.startswith("{")]
        assert [key for key in _keys(blocks) if not re.fullmatch(r"[a-z]+(_[a-z]+)*", key)] == []


@requirement("T001-error-codes", "T001-validation", "T000-sec-validation")
@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("execute_tool", {"server": "nope", "tool": "x"}, "SERVER_NOT_FOUND"),
        ("execute_tool", {"server": "demo", "tool": "ecko"}, "TOOL_NOT_FOUND"),
        ("execute_tool", {"server": "demo", "tool": "echo", "args": [1]}, "INVALID_ARGUMENTS"),
        ("execute_tool", {"server": "demo", "tool": "echo", "timeout_ms": -1}, "INVALID_ARGUMENTS"),
        ("execute_tool", {"server": "demo", "tool": "echo", "task_ttl_ms": 0}, "INVALID_ARGUMENTS"),
        ("execute_tool", {"server": "demo"}, "INVALID_ARGUMENTS"),
        ("get_task", {"task_id": 7}, "INVALID_ARGUMENTS"),
        ("get_task", {"task_id": "../x"}, "TASK_NOT_FOUND"),
        ("cancel_task", {"task_id": ""}, "TASK_NOT_FOUND"),
        ("await_activity", {"timeout_ms": "soon"}, "INVALID_ARGUMENTS"),
        ("respond_to_elicitation", {"request_id": "x", "action": "decline"}, "REQUEST_NOT_FOUND"),
        ("respond_to_elicitation", {"request_id": "x", "action": "maybe"}, "INVALID_ARGUMENTS"),
        ("respond_to_sampling", {"request_id": "x", "content": "a", "model": "m"}, "REQUEST_NOT_FOUND"),
        ("respond_to_sampling", {"request_id": "x"}, "INVALID_ARGUMENTS"),
        ("no_such_tool", {}, "TOOL_NOT_FOUND"),
    ],
)
async def test_a_failure_has_a_code_a_sentence_and_what_to_do(
    clock: FakeClock, tool: str, arguments: dict[str, Any], code: str
) -> None:
    server = ScriptedServer({"echo": echo})
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await quiet(await running.client())
        failed = await client.call(tool, **arguments)
        assert failed.error_code == code
        assert all(failed.json["error"][key] for key in ("message", "hint"))
        assert "tools/call" not in server.received_methods()
        assert len(client.session.calls) == 0


@requirement("T000-content-checked", "T000-sec-validation")
async def test_an_answer_that_does_not_fit_is_not_sent_and_the_question_stays_open(clock: FakeClock) -> None:
    async with running_hub({"demo": ScriptedServer({"ask": ask_name})}, clock=clock) as running:
        client = await quiet(await running.client())
        answer = await client.execute("demo", "ask")
        request_id = answer.pending["elicitations"][0]["request_id"]
        refused = await client.call(
            "respond_to_elicitation", request_id=request_id, action="accept", content={"name": 7}
        )
        assert refused.error_code == "INVALID_ARGUMENTS"
        assert refused.pending == answer.pending
        other_kind = await client.call("respond_to_sampling", request_id=request_id, content="x", model="m")
        assert other_kind.error_code == "REQUEST_NOT_FOUND"


# Servers, links, sessions


@requirement("T001-list-servers", "T001-link-status")
async def test_servers_are_listed_with_the_state_of_this_sessions_link(clock: FakeClock) -> None:
    async def never(_params: object) -> dict[str, Any]:
        await anyio.sleep_forever()
        raise AssertionError

    hanging = ScriptedServer(methods={"initialize": never, "server/discover": never})
    server = ScriptedServer({"ask": ask_name})
    async with running_hub({"demo": server, "hanging": hanging}, clock=clock) as running:
        client, other = await running.client(), await running.client()
        await client.call("list_tools", server="demo")
        await other.call("list_tools", server="demo")
        await client.execute("demo", "ask")
        entry, connecting = (await client.call("list_servers")).json["servers"]
        assert entry == {
            "name": "demo",
            "url": "http://demo.invalid/mcp",
            "transport": entry["transport"],
            "era": "handshake",
            "connected": True,
            "status": "connected",
            "connected_at": entry["connected_at"],
            "last_error": None,
            "tools": 1,
            "working_tasks": 1,
            "pending_questions": 1,
        }
        assert (connecting["connected"], connecting["status"]) == (False, "connecting")
        theirs = (await other.call("list_servers")).json["servers"][0]
        assert (theirs["working_tasks"], theirs["pending_questions"]) == (0, 0)


@requirement("T001-link-connected", "T001-event-server-data", "T001-server-added", "T001-server-removed")
async def test_events_of_servers_carry_the_name_and_what_changed_and_no_sessions_id(clock: FakeClock) -> None:
    server = ScriptedServer()
    async with running_hub({}, servers={"demo": server}, clock=clock) as running:
        one, other = await running.client(), await running.client()
        await one.call("add_server", name="demo", url="http://demo.invalid/mcp")
        await settle()
        await server.die()
        await settle()
        await one.call("remove_server", name="demo")
        activity = await other.call("await_activity")
        events = [event for event in events_of(activity) if event["type"] not in COMING_BACK]
        assert [event["type"] for event in events] == [
            "server_added",
            "server_connected",
            "server_disconnected",
            "server_removed",
        ]
        assert {event["data"]["name"] for event in events} == {"demo"}
        assert events[1]["data"]["capabilities"] == {"tools": {"listChanged": True}}
        assert events[2]["data"]["reason"]
        assert not any(one.session.id in text for text in activity.texts)


@requirement("T001-session-connects", "T001-session-own-links")
async def test_a_new_session_connects_to_every_server_by_itself_and_on_its_own(clock: FakeClock) -> None:
    servers = {name: ScriptedServer({"echo": echo}) for name in ("one", "two")}
    async with running_hub(servers, clock=clock) as running:
        await running.client()
        await running.client()
        await settle()
        assert [server.received_methods().count("initialize") for server in servers.values()] == [2, 2]


@requirement("T001-session-failure", "T001-link-isolation", "T001-link-status")
async def test_a_server_that_fails_does_not_fail_the_session(clock: FakeClock) -> None:
    async def refuse(_params: object) -> dict[str, Any]:
        raise PeerError(-32000, "closed on Mondays")

    broken = ScriptedServer(methods={"initialize": refuse, "server/discover": refuse})
    async with running_hub({"broken": broken, "demo": ScriptedServer({"echo": echo})}, clock=clock) as running:
        client = await running.client()
        await settle()
        first = (await client.call("list_servers")).json["servers"][0]
        assert (first["status"], "closed on Mondays" in first["last_error"]) == ("error", True)
        assert (await client.execute("demo", "echo", {"text": "open"})).texts[0] == "open"
        assert (await client.execute("broken", "echo")).error_code == "SERVER_DISCONNECTED"


@requirement("T001-session-limit", "T000-settings")
async def test_one_session_more_than_the_limit_is_refused_until_another_ends(clock: FakeClock) -> None:
    async with running_hub({}, clock=clock, settings=HubSettings(max_sessions=2)) as running:
        first, _ = await running.client(), await running.client()
        with pytest.raises(EmceepeeError):
            await running.client()
        first.session.close()
        await first.session.closed.wait()
        await settle()
        assert (await (await running.client()).call("list_servers")).json == {"servers": []}


# Buffers


@requirement("T001-buffer-logs", "T001-race-buffers")
async def test_the_newest_five_hundred_logs_are_kept_and_what_was_read_does_not_change(clock: FakeClock) -> None:
    async with running_hub({"demo": ScriptedServer()}, clock=clock) as running:
        client = await quiet(await running.client())
        buffers = client.session.state.buffers
        for n in range(502):
            buffers.add_log("demo", "protocol", {"level": "info", "data": n})
        peeked = buffers.logs(peek=True)
        buffers.add_log("demo", "protocol", {"level": "info", "data": "late"})
        assert [entry.data for entry in peeked] == list(range(2, 502))
        taken = [entry["data"] for entry in (await client.call("get_logs")).json["logs"]]
        assert taken == [*range(3, 502), "late"]
        buffers.add_log("demo", "protocol", {"level": "info", "data": "later"})
        assert [entry["data"] for entry in (await client.call("get_logs")).json["logs"]] == ["later"]


# The tools as a client sees them

READING = {
    "await_activity",
    "get_elicitations",
    "get_prompt",
    "get_sampling_requests",
    "get_task",
    "get_task_result",
    "list_prompts",
    "list_resource_templates",
    "list_resources",
    "list_servers",
    "list_tasks",
    "list_tools",
    "read_resource",
}
CHANGING = {
    "add_server",
    "cancel_task",
    "execute_tool",
    "get_logs",
    "get_notifications",
    "reconnect_server",
    "remove_server",
    "respond_to_elicitation",
    "respond_to_sampling",
    "subscribe_resource",
    "unsubscribe_resource",
}


@requirement("T001-tool-list")
def test_every_tool_is_listed_and_described_in_few_words() -> None:
    definitions = ToolBox().definitions
    assert {definition["name"] for definition in definitions} == READING | CHANGING
    on_the_wire = json.dumps({"tools": definitions}, ensure_ascii=False, separators=(",", ":"))
    assert len(on_the_wire.encode()) <= 14_000
    for definition in definitions:
        assert definition["description"]
        assert definition["inputSchema"]["type"] == "object"
        undescribed = [
            name
            for name, schema in definition["inputSchema"].get("properties", {}).items()
            if "description" not in schema and "enum" not in schema and name != "name"
        ]
        assert undescribed == []


@requirement("T001-tool-annotations")
def test_annotations_tell_who_reads_and_who_destroys() -> None:
    annotations = {definition["name"]: definition["annotations"] for definition in ToolBox().definitions}
    assert {name for name, hints in annotations.items() if hints.get("readOnlyHint")} == READING
    destructive = {name for name, hints in annotations.items() if hints.get("destructiveHint")}
    assert destructive == {"cancel_task", "execute_tool", "reconnect_server", "remove_server"}


# Diagrams


@requirement("T000-diagrams-resource", "T000-diagrams-five")
async def test_the_diagrams_are_a_resource_of_the_hub(clock: FakeClock) -> None:
    async with running_hub({}, clock=clock) as running:
        client = await running.client()
        resources = OwnResources(running.hub)
        uri = "emceepee://diagrams"
        listed = [entry for entry in resources.definitions if entry["uri"] == uri]
        assert [entry["mimeType"] for entry in listed] == ["application/json"]
        (contents,) = resources.read(client.session, uri)["contents"]
        assert (contents["uri"], contents["mimeType"]) == (uri, "application/json")
        shown = json.loads(contents["text"])["diagrams"]
        assert [entry["name"] for entry in shown] == [
            "proxy_task_states",
            "pending_elicitation_states",
            "pending_sampling_states",
            "tool_call_lifecycle",
            "entity_relationships",
        ]
        assert all(set(entry) == {"name", "description", "mermaid"} and entry["description"] for entry in shown)
        assert [entry["mermaid"].split()[0] for entry in shown] == ["stateDiagram-v2"] * 4 + ["flowchart"]


def _arrows(name: str) -> set[tuple[str, str]]:
    (mermaid,) = (entry["mermaid"] for entry in diagrams() if entry["name"] == name)
    return set(re.findall(r"^ +(\S+) --> (\S+) :", mermaid, re.MULTILINE))


@requirement("T000-diagrams-true", "T000-task-states")
def test_the_diagram_of_tasks_has_the_transitions_of_the_table_and_no_others() -> None:
    moves = {(state, target) for state, targets in tasks.TRANSITIONS.items() for target in targets}
    ends = {(state, "[*]") for state in tasks.TERMINAL}
    assert _arrows("proxy_task_states") == {("[*]", "working"), *moves, *ends}


@requirement("T000-diagrams-true", "T000-question-states")
@pytest.mark.parametrize("kind", ["elicitation", "sampling"])
def test_the_diagrams_of_questions_have_the_transitions_of_the_table_and_no_others(kind: QuestionKind) -> None:
    moves = {("pending", target) for target in questions.TRANSITIONS[kind]}
    ends = {(target, "[*]") for target in questions.TRANSITIONS[kind]}
    assert _arrows(f"pending_{kind}_states") == {("[*]", "pending"), *moves, *ends}


# Logs

LOGGED = {
    "server_connected": ("info", {"server", "url"}),
    "server_disconnected": ("info", {"server", "reason"}),
    "tool_execution_start": ("debug", {"server", "tool", "has_args"}),
    "tool_execution_complete": ("debug", {"server", "tool", "duration_ms"}),
    "tool_execution_timeout": ("info", {"server", "tool", "task_id"}),
    "task_completed": ("info", {"task_id", "server", "tool"}),
    "task_failed": ("warning", {"task_id", "server", "tool", "error"}),
    "elicitation_received": ("info", {"request_id", "server"}),
    "elicitation_responded": ("info", {"request_id", "duration_ms"}),
    "elicitation_timeout": ("warning", {"request_id", "server"}),
    "event_store_eviction": ("warning", {"evicted_count"}),
    "registry_shutdown_start": ("info", {"server_count"}),
    "registry_shutdown_complete": ("info", set[str]()),
}


@requirement("T001-log-names", "T001-log-durations", "T001-event-warning", "T000-sec-content", "T000-sec-secrets")
async def test_the_log_tells_what_happened_by_name_and_nothing_that_was_answered(clock: FakeClock) -> None:
    secret = "s3cr3t-value"

    async def ask(call: ScriptedCall) -> str:
        return f"{await ask_name(call)} {secret}"

    async def fail(_call: ScriptedCall) -> str:
        raise PeerError(-32000, "no")

    server = ScriptedServer({"ask": ask, "fail": fail, "sample": sample})
    settings = HubSettings(limits=SessionLimits(max_events=10))
    with capture_logs() as logged:
        async with running_hub({}, servers={"demo": server}, clock=clock, settings=settings) as running:
            client = await running.client()
            await client.call(
                "add_server",
                name="demo",
                url=f"http://user:{secret}@demo.invalid/mcp?token={secret}",
                headers={"Authorization": secret},
            )
            answer = await client.execute("demo", "ask", {"password": secret})
            request_id = answer.pending["elicitations"][0]["request_id"]
            await clock.advance(2)
            await client.call(
                "respond_to_elicitation", request_id=request_id, action="accept", content={"name": secret}
            )
            assert secret in (await client.call("get_task_result", task_id=answer.task["task_id"])).texts[0]
            await client.execute("demo", "fail", timeout_ms=0)
            asked = await client.execute("demo", "sample")
            await client.call(
                "respond_to_sampling",
                request_id=asked.pending["sampling_requests"][0]["request_id"],
                content=secret,
                model="m",
            )
            await client.execute("demo", "ask")
            await clock.advance(600)
            for _ in range(11):
                await server.notify("notifications/custom", {"x": secret})
            await settle()
            await server.die()
            await settle()
    levels = {entry["event"]: entry["log_level"] for entry in logged}
    assert {name: levels.get(name) for name in LOGGED} == {name: level for name, (level, _) in LOGGED.items()}
    facts = {entry["event"]: set(entry) for entry in logged}
    assert {name: missing for name, (_, wanted) in LOGGED.items() if (missing := wanted - facts[name])} == {}
    answered = [entry["duration_ms"] for entry in logged if entry["event"] == "elicitation_responded"]
    assert answered == [2000]
    assert not any(secret in repr(entry) for entry in logged)
    assert not any(re.search("[A-Z]", key) for entry in logged for key in entry)


@requirement("T001-log-json")
def test_log_lines_are_json_on_stderr_from_the_chosen_level_up() -> None:
    program = (
        "import logging, structlog\n"
        "from emceepee.observe import configure_logging\n"
        "configure_logging('info', 'json')\n"
        "log = structlog.get_logger()\n"
        "log.debug('unheard'); log.info('heard', server='demo'); logging.getLogger('library').error('broken')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=180)
    assert done.stdout == ""
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["level"], line["event"]) for line in lines] == [("info", "heard"), ("error", "broken")]
    assert (lines[0]["server"], all(line["timestamp"].endswith("Z") for line in lines)) == ("demo", True)
