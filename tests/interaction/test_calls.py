"""What becomes of a call."""

from __future__ import annotations

import anyio
import pytest

from emceepee.config import HubSettings
from emceepee.core.state import SessionLimits
from emceepee.core.tasks import TaskLimits
from emceepee.hub import ToolCall
from emceepee.testing import FakeClock, ScriptedCall, ScriptedServer, form, running_hub, settle, text_result
from tests.interaction.gates import Gate, echo
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


@requirement("T000-fast-call-no-task", "T000-response-bare", "P000-int-within-timeout", "P001-int-timeout")
async def test_a_fast_call_returns_the_servers_result_and_leaves_no_task(clock: FakeClock) -> None:
    async with running_hub({"demo": ScriptedServer({"echo": echo})}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        answer = await client.execute("demo", "echo", {"text": "hi"})
        assert answer.raw == text_result("hi")
        assert (await client.call("list_tasks", include_completed=True)).json == {"tasks": []}


@requirement("T000-response-verbatim")
async def test_a_result_passes_through_with_fields_that_nobody_knows(clock: FakeClock) -> None:
    strange = {
        "content": [{"type": "text", "text": "x", "x-block": 1}, {"type": "hologram", "data": [None]}],
        "structuredContent": {"k": None},
        "isError": True,
        "x-top": {"deep": [1, None]},
        "_meta": {"vendor/x": {"n": None}},
    }

    async def odd(_call: ScriptedCall) -> dict[str, object]:
        return strange

    async with running_hub({"demo": ScriptedServer({"odd": odd})}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        assert (await client.execute("demo", "odd")).raw == strange


@requirement(
    "T000-promote-timeout",
    "T000-call-goes-on",
    "T000-get-task-result",
    "P000-unit-timeout",
    "P000-unit-promotion",
    "P000-int-exceeds-timeout",
    "P001-int-timeout",
)
async def test_a_call_that_outlives_its_timeout_becomes_a_task_whose_result_is_kept(clock: FakeClock) -> None:
    gate = Gate()
    async with running_hub({"demo": ScriptedServer({"slow": gate})}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        async with anyio.create_task_group() as tasks:
            answers: list[object] = []

            async def execute() -> None:
                answers.append(await client.execute("demo", "slow", timeout_ms=5000))

            tasks.start_soon(execute)
            await gate.reached.wait()
            await clock.advance(4.999)
            assert answers == []
            await clock.advance(0.001)
        promoted = (await client.call("list_tasks")).json["tasks"]
        assert [task["status"] for task in promoted] == ["working"]
        gate.opened.set()
        result = await client.call("get_task_result", task_id=promoted[0]["task_id"])
        assert result.texts[0] == "done"
        assert result.event_types == ["task_completed"]


@requirement("T000-timeout-zero")
async def test_timeout_zero_promotes_at_once(clock: FakeClock) -> None:
    gate = Gate()
    async with running_hub({"demo": ScriptedServer({"slow": gate})}, clock=clock) as running:
        client = await running.client()
        answer = await client.execute("demo", "slow", timeout_ms=0)
        assert answer.task["status"] == "working"
        gate.opened.set()
        assert (await client.call("get_task_result", task_id=answer.task["task_id"])).texts[0] == "done"


@requirement(
    "T000-promote-question",
    "T000-question-belongs",
    "T000-answer-unblocks",
    "P000-int-elicitation",
    "P000-int-unblocks",
)
@pytest.mark.parametrize("modern", [False, True])
async def test_a_question_of_the_only_call_promotes_it_at_once(clock: FakeClock, modern: bool) -> None:
    async def ask(call: ScriptedCall) -> str:
        answer = await call.elicit(form("Name?", name="string"))
        return f"hello {answer['content']['name']}"

    async with running_hub({"demo": ScriptedServer({"ask": ask}, modern=modern)}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        answer = await client.execute("demo", "ask", timeout_ms=120_000)
        question = answer.pending["elicitations"][0]
        assert question["task_id"] == answer.task["task_id"]
        assert question["certainty"] == ("exact" if modern else "sole")
        assert answer.event_types == ["task_created", "elicitation_request"]
        answered = await client.call(
            "respond_to_elicitation", request_id=question["request_id"], action="accept", content={"name": "Ada"}
        )
        assert answered.json["success"] is True
        result = await client.call("get_task_result", task_id=answer.task["task_id"])
        assert result.texts[0] == "hello Ada"


@requirement("T000-several-rounds", "T000-get-elicitations")
async def test_two_questions_of_one_call_are_answered_in_turn(clock: FakeClock) -> None:
    async def ask(call: ScriptedCall) -> str:
        first = await call.elicit(form("First?", a="string"))
        second = await call.elicit(form("Second?", b="string"))
        return f"{first['content']['a']} {second['content']['b']}"

    async with running_hub({"demo": ScriptedServer({"ask": ask})}, clock=clock) as running:
        client = await running.client()
        task = (await client.execute("demo", "ask")).task
        for field, message in (("a", "First?"), ("b", "Second?")):
            await settle()
            question = (await client.call("get_elicitations")).json["elicitations"][0]
            assert question["message"] == message
            await client.call(
                "respond_to_elicitation", request_id=question["request_id"], action="accept", content={field: field}
            )
        assert (await client.call("get_task_result", task_id=task["task_id"])).texts[0] == "a b"


@requirement("T000-question-belongs", "T000-concurrent-calls")
async def test_a_question_among_several_calls_promotes_none_of_them(clock: FakeClock) -> None:
    gate = Gate()

    async def ask(call: ScriptedCall) -> str:
        return str((await call.elicit(form("Name?", name="string")))["action"])

    async with running_hub({"demo": ScriptedServer({"slow": gate, "ask": ask})}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        results: dict[str, str] = {}

        async def execute(tool: str) -> None:
            results[tool] = (await client.execute("demo", tool)).texts[0]

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(execute, "slow")
            await gate.reached.wait()
            tasks.start_soon(execute, "ask")
            await settle()
            question = (await client.call("get_elicitations")).json["elicitations"][0]
            assert (question["certainty"], question["task_id"]) == ("unknown", None)
            await client.call("respond_to_elicitation", request_id=question["request_id"], action="decline")
            gate.opened.set()
        assert results == {"slow": "done", "ask": "decline"}


@requirement("T000-concurrent-calls", "P000-int-concurrent", "P001-int-concurrent")
async def test_concurrent_answers_each_reach_their_own_call(clock: FakeClock) -> None:
    async def ask(call: ScriptedCall) -> str:
        answer = await call.elicit(form(f"Name of {call.arguments['n']}?", name="string"))
        return f"{call.arguments['n']}={answer['content']['name']}"

    async with running_hub({"demo": ScriptedServer({"ask": ask})}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        results: list[str] = []

        async def execute(n: int) -> None:
            results.append((await client.execute("demo", "ask", {"n": n})).texts[0])

        async with anyio.create_task_group() as tasks:
            for n in range(3):
                tasks.start_soon(execute, n)
            await settle()
            for question in reversed((await client.call("get_elicitations")).json["elicitations"]):
                n = question["message"].split()[2].rstrip("?")
                await client.call(
                    "respond_to_elicitation",
                    request_id=question["request_id"],
                    action="accept",
                    content={"name": f"answer {n}"},
                )
            await settle()
            for task in (await client.call("list_tasks", include_completed=True)).json["tasks"]:
                results.append((await client.call("get_task_result", task_id=task["task_id"])).texts[0])
        assert {result for result in results if "=" in result} == {f"{n}=answer {n}" for n in range(3)}


@requirement("T000-progress")
async def test_progress_reaches_the_client_while_it_waits_and_the_task_afterwards(clock: FakeClock) -> None:
    gate = Gate()

    async def work(call: ScriptedCall) -> str:
        await call.progress(1, 3, "one")
        done = await gate(call)
        await call.progress(2, 3, "two")
        await anyio.Event().wait()
        return done

    async with running_hub({"demo": ScriptedServer({"work": work})}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: client.execute("demo", "work", timeout_ms=1000))
            await gate.reached.wait()
            await settle()
            assert client.progress == [(1.0, 3.0, "one")]
            await clock.advance(1)
        gate.opened.set()
        await settle()
        task = (await client.call("list_tasks")).json["tasks"][0]
        assert task["progress"] == {"progress": 2.0, "total": 3.0, "message": "two"}
        assert client.progress == [(1.0, 3.0, "one")]


@requirement("T000-client-returns")
@pytest.mark.parametrize("hang_up", ["gone", "timed_out"])
async def test_a_client_that_stops_waiting_finds_its_call_as_a_task(clock: FakeClock, hang_up: str) -> None:
    gate = Gate()
    async with running_hub({"demo": ScriptedServer({"slow": gate})}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        client.hang_up = "gone" if hang_up == "gone" else "timed_out"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.execute, "demo", "slow")
            await gate.reached.wait()
            tasks.cancel_scope.cancel()
        gate.opened.set()
        await settle()
        activity = (await client.call("await_activity")).json
        assert [event["type"] for event in activity["events"][0]["events"]] == ["task_created", "task_completed"]
        task_id = activity["events"][0]["events"][0]["data"]["task_id"]
        assert (await client.call("get_task_result", task_id=task_id)).texts == ["done"]


@requirement("T000-client-returns")
async def test_a_result_that_nobody_took_is_kept_as_a_task(clock: FakeClock) -> None:
    async with running_hub({"demo": ScriptedServer({"echo": echo})}, clock=clock) as running:
        client = await running.client()
        calls = client.session.calls
        call = calls.start(client.session.link("demo"), ToolCall("echo", {"text": "late"}), timeout_ms=1000)
        await call.turned.wait()
        calls.abandon(call)
        assert call.task_id is not None
        assert (await client.call("get_task_result", task_id=call.task_id)).texts[0] == "late"


async def test_a_client_that_cancels_has_its_call_cancelled_at_the_server(clock: FakeClock) -> None:
    gate = Gate()
    server = ScriptedServer({"slow": gate})
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        client.hang_up = "cancelled"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.execute, "demo", "slow")
            await gate.reached.wait()
            tasks.cancel_scope.cancel()
        await settle()
        assert server.cancelled == ["slow"]
        assert (await client.call("list_tasks", include_completed=True)).json == {"tasks": []}


@requirement("T000-task-cancelled", "T000-cancel-task")
async def test_cancel_task_tells_the_server_and_a_late_result_is_dropped(clock: FakeClock) -> None:
    gate = Gate()
    server = ScriptedServer({"slow": gate})
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await running.client()
        task = (await client.execute("demo", "slow", timeout_ms=0)).task
        await gate.reached.wait()
        assert (await client.call("cancel_task", task_id=task["task_id"])).json["success"] is True
        await settle()
        gate.opened.set()
        await settle()
        assert server.cancelled == ["slow"]
        assert (await client.call("get_task_result", task_id=task["task_id"])).error_code == "TASK_CANCELLED"
        assert (await client.call("cancel_task", task_id=task["task_id"])).json["success"] is False


@requirement("T000-task-expired", "T000-ttl", "T000-retention", "T000-sec-ttl", "P000-unit-ttl")
async def test_a_task_expires_after_its_ttl_and_says_so_until_its_retention_is_over(clock: FakeClock) -> None:
    gate = Gate()
    server = ScriptedServer({"slow": gate})
    settings = HubSettings(limits=SessionLimits(tasks=TaskLimits(max_ttl_ms=10_000, retention_ms=60_000)))
    async with running_hub({"demo": server}, clock=clock, settings=settings) as running:
        client = await running.client()
        await client.call("list_tools")
        task = (await client.execute("demo", "slow", timeout_ms=0, task_ttl_ms=99_000)).task
        assert task["ttl_ms"] == 10_000
        await gate.reached.wait()
        await clock.advance(10)
        assert server.cancelled == ["slow"]
        expired = await client.call("get_task_result", task_id=task["task_id"])
        assert (expired.error_code, expired.event_types) == ("TASK_EXPIRED", ["task_expired"])
        await clock.advance(60)
        assert (await client.call("get_task", task_id=task["task_id"])).error_code == "TASK_NOT_FOUND"


@requirement("T000-ttl-paused")
async def test_the_ttl_stands_still_while_a_question_is_open(clock: FakeClock) -> None:
    async def ask(call: ScriptedCall) -> str:
        return str((await call.elicit(form("Name?", name="string")))["action"])

    async with running_hub({"demo": ScriptedServer({"ask": ask})}, clock=clock) as running:
        client = await running.client()
        answer = await client.execute("demo", "ask", task_ttl_ms=5000)
        await clock.advance(300)
        question = answer.pending["elicitations"][0]
        await client.call("respond_to_elicitation", request_id=question["request_id"], action="cancel")
        assert (await client.call("get_task_result", task_id=answer.task["task_id"])).texts[0] == "cancel"


@requirement("T000-max-tasks")
async def test_more_calls_than_the_limit_are_refused_before_anything_is_sent(clock: FakeClock) -> None:
    gate = Gate()
    server = ScriptedServer({"slow": gate})
    settings = HubSettings(limits=SessionLimits(max_tasks=2))
    async with running_hub({"demo": server}, clock=clock, settings=settings) as running:
        client = await running.client()
        for _ in range(2):
            await client.execute("demo", "slow", timeout_ms=0)
        assert (await client.execute("demo", "slow", timeout_ms=0)).error_code == "TOO_MANY_TASKS"
        await settle()
        assert server.received_methods().count("tools/call") == 2


@requirement(
    "T000-task-disconnect",
    "T000-question-disconnect",
    "T001-link-needed",
    "P001-int-restart-elicitations",
    "P001-int-restart-tasks",
)
async def test_a_lost_server_fails_its_calls_and_rejects_its_questions_and_the_next_call_reconnects(
    clock: FakeClock,
) -> None:
    async def ask(call: ScriptedCall) -> str:
        return str(await call.elicit(form("Name?", name="string")))

    server = ScriptedServer({"ask": ask, "echo": echo})
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await running.client()
        task = (await client.execute("demo", "ask")).task
        await server.die()
        await settle()
        failed = await client.call("get_task_result", task_id=task["task_id"])
        assert failed.error_code == "TASK_FAILED"
        assert sorted(failed.event_types) == [
            "elicitation_expired",
            "server_disconnected",
            "server_reconnecting",
            "task_failed",
        ]
        assert (await client.execute("demo", "echo", {"text": "again"})).texts[0] == "again"


@requirement("T000-question-withdrawn")
async def test_a_question_that_the_server_takes_back_is_withdrawn(clock: FakeClock) -> None:
    gate = Gate()

    async def ask(call: ScriptedCall) -> str:
        with anyio.move_on_after(60) as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call.elicit, form("Name?", name="string"))
                await gate(call)
                scope.cancel()
        return "never mind"

    async with running_hub({"demo": ScriptedServer({"ask": ask})}, clock=clock) as running:
        client = await running.client()
        answer = await client.execute("demo", "ask")
        gate.opened.set()
        await settle()
        result = await client.call("get_task_result", task_id=answer.task["task_id"])
        assert (result.texts[0], result.event_types) == ("never mind", ["question_withdrawn", "task_completed"])
        question = answer.pending["elicitations"][0]
        late = await client.call("respond_to_elicitation", request_id=question["request_id"], action="decline")
        assert late.error_code == "REQUEST_NOT_FOUND"


@requirement("T000-question-timeout")
async def test_a_question_that_nobody_answers_is_an_error_for_its_server(clock: FakeClock) -> None:
    async def ask(call: ScriptedCall) -> str:
        return str(await call.elicit(form("Name?", name="string")))

    async with running_hub({"demo": ScriptedServer({"ask": ask})}, clock=clock) as running:
        client = await running.client()
        task = (await client.execute("demo", "ask")).task
        await clock.advance(600)
        failed = await client.call("get_task_result", task_id=task["task_id"])
        assert failed.error_code == "TASK_FAILED"
        assert failed.event_types == ["elicitation_expired", "task_failed"]


@requirement("T001-task-timers", "T001-question-timers")
async def test_nothing_is_left_behind_when_everything_has_ended(clock: FakeClock) -> None:
    async def ask(call: ScriptedCall) -> str:
        return str((await call.elicit(form("Name?", name="string")))["action"])

    async with running_hub({"demo": ScriptedServer({"ask": ask})}, clock=clock) as running:
        client = await running.client()
        answer = await client.execute("demo", "ask")
        question = answer.pending["elicitations"][0]
        await client.call("respond_to_elicitation", request_id=question["request_id"], action="decline")
        await client.call("get_task_result", task_id=answer.task["task_id"])
        await clock.advance(300)
        session = client.session
        assert (len(session.calls), len(session.questions), len(session.state.tasks)) == (0, 0, 0)
        assert session.state.events.waiters == 0
        assert len(session.state.deadlines) == 1, "only the idle timer is left"


async def test_a_task_says_that_it_waits_for_an_answer_and_that_it_goes_on(clock: FakeClock) -> None:
    gate = Gate()

    async def ask(call: ScriptedCall) -> str:
        await call.elicit(form("Name?", name="string"))
        return await gate(call)

    async with running_hub({"demo": ScriptedServer({"ask": ask})}, clock=clock) as running:
        client = await running.client()
        answer = await client.execute("demo", "ask")
        request_id = answer.pending["elicitations"][0]["request_id"]

        async def message() -> str:
            (task,) = (await client.call("list_tasks")).json["tasks"]
            return str(task["status_message"])

        assert await message() == f"waits for an answer to {request_id}"
        await client.call("respond_to_elicitation", request_id=request_id, action="decline")
        assert await message() == "goes on after an answer"
