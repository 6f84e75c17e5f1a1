"""Streams of handshake clients over HTTP: plain or not, cut off, resumed, given up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from emceepee.config import HubSettings
from emceepee.front.replay import ReplayBuffer
from emceepee.front.streams import EventStream
from emceepee.testing import Answer, FakeClock, ScriptedCall, ScriptedServer, settle, text_result
from tests.front.asgi import HttpExchange
from tests.front.clients import Handshake, front
from tests.front.writes import stuck_at
from tests.interaction.gates import Gate, echo
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

OLD = "2025-06-18"


def answers_in(*exchanges: HttpExchange) -> list[dict[str, Any]]:
    return [message for exchange in exchanges for message in exchange.messages if "method" not in message]


async def primed(client: Handshake, exchange: HttpExchange, clock: FakeClock) -> None:
    """Let the response turn into a stream that can be resumed."""
    await clock.advance(1.1)
    assert exchange.is_stream


# What a response is


async def test_a_quick_response_is_plain_json(clock: FakeClock) -> None:
    async with front({"demo": ScriptedServer({"echo": echo})}, clock=clock) as world:
        client = await world.handshake()
        exchange = client.execute("demo", "echo", {"text": "hi"})
        result = await exchange.result()
        assert result["content"][0] == text_result("hi")["content"][0]
        assert (exchange.status, exchange.headers["content-type"]) == (200, "application/json")
        assert int(exchange.headers["content-length"]) == len(exchange.body)


async def test_a_slow_response_of_the_newest_handshake_version_begins_with_an_event_to_come_back_with(
    clock: FakeClock,
) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate})}, clock=clock) as world:
        client = await world.handshake()
        exchange = client.execute("demo", "slow")
        await clock.advance(0.9)
        assert exchange.status is None
        await clock.advance(0.2)
        (priming,) = exchange.events
        assert priming.id
        assert priming.data == ""
        assert priming.retry == 1000
        gate.opened.set()
        assert (await exchange.result())["content"][0]["text"] == "done"
        assert exchange.is_complete


async def test_an_older_client_gets_no_event_without_data_but_is_kept_alive(clock: FakeClock) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate})}, clock=clock) as world:
        client = await world.handshake(version=OLD)
        exchange = client.execute("demo", "slow")
        await clock.advance(14)
        assert exchange.status is None
        await clock.advance(2)
        assert exchange.is_stream
        await clock.advance(15)
        assert [frame.is_comment for frame in exchange.frames] == [True]
        gate.opened.set()
        await exchange.result()
        assert all(frame.data for frame in exchange.events)


@pytest.mark.parametrize("url", ["/mcp", "/mcp/server/demo"])
async def test_the_id_of_a_request_is_free_when_its_response_can_be_read(clock: FakeClock, url: str) -> None:
    async with front({"demo": ScriptedServer({"echo": echo})}, clock=clock) as world:
        client = await world.handshake(url=url)
        for _ in range(3):
            exchange = client.request("tools/list", request_id=2)
            exchange.stop_reading_at(b'"result"')
            await settle()
            # The client has all of it, and we have yet to learn that.
            assert b'"result"' in exchange.body
            assert not exchange.done.is_set()
            assert await client.request("ping", request_id=2).result() == {}
            exchange.go_on_reading()
            await exchange.result()


async def test_progress_goes_before_the_result_on_its_own_stream(clock: FakeClock) -> None:
    async def work(call: ScriptedCall) -> str:
        await call.progress(1, 2, "half")
        return "done"

    async with front({"demo": ScriptedServer({"work": work})}, clock=clock) as world:
        client = await world.handshake()
        other = client.get()
        params = {
            "name": "execute_tool",
            "arguments": {"server": "demo", "tool": "work"},
            "_meta": {"progressToken": "t"},
        }
        exchange = client.request("tools/call", params)
        await exchange.result()
        first, last = exchange.messages
        assert first["method"] == "notifications/progress"
        assert first["params"] == {"progressToken": "t", "progress": 1.0, "total": 2.0, "message": "half"}
        assert "result" in last
        ids = [frame.id for frame in exchange.events]
        assert len(set(ids)) == len(ids)
        assert other.messages == []


async def test_silence_is_filled_with_progress_for_a_client_that_wants_it(clock: FakeClock) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate})}, clock=clock) as world:
        client = await world.handshake()
        exchange = client.tool("execute_tool", meta={"progressToken": 7}, server="demo", tool="slow")
        await clock.advance(50)
        values = [message["params"]["progress"] for message in exchange.messages]
        assert len(values) == 3
        assert values == sorted(set(values))
        gate.opened.set()


# Cut off and resumed


@requirement("T001-replay", "P001-int-sse-replay")
async def test_a_client_that_is_cut_off_in_a_call_resumes_and_gets_its_response_once(clock: FakeClock) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate})}, clock=clock) as world:
        client = await world.handshake()
        exchange = client.execute("demo", "slow")
        await primed(client, exchange, clock)
        exchange.drop()
        await clock.advance(5)
        resumed = client.get(exchange.last_event_id)
        await clock.advance(60)
        assert resumed.status == 200
        gate.opened.set()
        assert (await resumed.result())["content"][0]["text"] == "done"
        assert len(answers_in(exchange, resumed)) == 1
        # It is the client's own call still: no task was made of it.
        assert (await client.call("list_tasks", include_completed=True)).json == {"tasks": []}


@requirement("T001-replay")
async def test_a_client_that_is_cut_off_in_await_activity_resumes_and_is_told_once(clock: FakeClock) -> None:
    demo = ScriptedServer({"echo": echo})
    async with front({"demo": demo}, clock=clock) as world:
        client = await world.handshake()
        await client.call("list_tools")
        exchange = client.tool("await_activity", timeout_ms=30_000)
        await primed(client, exchange, clock)
        exchange.drop()
        await settle()
        await demo.notify("notifications/x")
        await settle()
        resumed = client.get(exchange.last_event_id)
        answer = Answer(await resumed.result())
        assert [event["type"] for server in answer.json["events"] for event in server["events"]] == ["notification"]
        assert (await client.call("list_tasks")).event_types == []


@requirement("T001-replay", "P001-int-sse-replay")
async def test_what_was_written_to_a_dead_connection_is_replayed(clock: FakeClock) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate})}, clock=clock) as world:
        client = await world.handshake()
        exchange = client.execute("demo", "slow")
        await primed(client, exchange, clock)
        last_seen = exchange.last_event_id
        gate.opened.set()
        response = await exchange.response()
        # The client never saw it, though all of it left us; it may come back more than once.
        for _ in range(2):
            resumed = client.get(last_seen)
            assert await resumed.response() == response
        nothing = client.get(exchange.last_event_id)
        await nothing.done.wait()
        assert (nothing.status, nothing.messages) == (200, [])


async def test_everything_that_was_missed_is_replayed_however_much(clock: FakeClock) -> None:
    go_on = anyio.Event()

    async def work(call: ScriptedCall) -> str:
        await go_on.wait()
        for number in range(250):
            await call.progress(number + 1)
        return "done"

    async with front({"demo": ScriptedServer({"work": work})}, clock=clock) as world:
        client = await world.handshake()
        exchange = client.tool("execute_tool", meta={"progressToken": 1}, server="demo", tool="work")
        await primed(client, exchange, clock)
        exchange.drop()
        await settle()
        go_on.set()
        await settle()
        resumed = client.get(exchange.last_event_id)
        await resumed.result()
        told = [message["params"]["progress"] for message in resumed.messages if "method" in message]
        assert told == [float(number + 1) for number in range(250)]


async def test_a_stream_that_is_resumed_can_be_cut_off_and_resumed_again(clock: FakeClock) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate})}, clock=clock) as world:
        client = await world.handshake()
        current = client.execute("demo", "slow")
        await primed(client, current, clock)
        seen = [current]
        for _ in range(3):
            current.drop()
            await clock.advance(9)
            current = client.get(current.last_event_id)
            await settle()
            # Again there is something to come back with, and nothing is told twice.
            assert [frame.data for frame in current.events] == [""]
            seen.append(current)
        gate.opened.set()
        await current.result()
        ids = [frame.id for exchange in seen for frame in exchange.events]
        assert len(set(ids)) == len(ids)
        assert len(answers_in(*seen)) == 1


async def test_a_newer_connection_takes_over_and_the_older_one_ends(clock: FakeClock) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate})}, clock=clock) as world:
        client = await world.handshake()
        exchange = client.execute("demo", "slow")
        await primed(client, exchange, clock)
        # The network is gone, but we have not noticed yet.
        first = client.get(exchange.last_event_id)
        await settle()
        assert exchange.is_complete
        # Now we notice: that is no business of the newer connection.
        exchange.drop()
        await settle()
        assert not first.done.is_set()
        second = client.get(first.last_event_id)
        await settle()
        assert first.done.is_set()
        assert first.is_complete
        await clock.advance(30)
        gate.opened.set()
        await second.result()
        assert len(answers_in(exchange, first, second)) == 1


async def test_a_client_that_changed_connections_and_is_then_cut_off_for_good_finds_a_task(clock: FakeClock) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate})}, clock=clock) as world:
        client = await world.handshake()
        exchange = client.execute("demo", "slow")
        await primed(client, exchange, clock)
        exchange.drop()
        await settle()
        first = client.get(exchange.last_event_id)
        await settle()
        second = client.get(first.last_event_id)
        await settle()
        second.drop()
        await clock.advance(9)
        assert len(client.session.state.tasks) == 0
        await clock.advance(2)
        (task,) = (await client.call("list_tasks")).json["tasks"]
        assert task["status"] == "working"
        gate.opened.set()


# Cut off for good


@requirement("T000-client-returns")
async def test_a_call_whose_client_never_comes_back_becomes_a_task(clock: FakeClock) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate})}, clock=clock) as world:
        client = await world.handshake()
        exchange = client.execute("demo", "slow")
        await primed(client, exchange, clock)
        exchange.drop()
        await clock.advance(11)
        assert exchange.done.is_set()
        listed = await client.call("list_tasks")
        (task,) = listed.json["tasks"]
        assert "task_created" in listed.event_types
        gate.opened.set()
        assert (await client.call("get_task_result", task_id=task["task_id"])).texts[0] == "done"


async def test_before_there_is_anything_to_come_back_with_it_becomes_a_task_at_once(clock: FakeClock) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate})}, clock=clock) as world:
        client = await world.handshake()
        exchange = client.execute("demo", "slow")
        await gate.reached.wait()
        exchange.drop()
        await settle()
        assert exchange.done.is_set()
        assert len(client.session.state.tasks.live()) == 1
        gate.opened.set()


async def test_a_result_that_nobody_came_back_for_is_kept_and_its_events_are_told_again(clock: FakeClock) -> None:
    gate = Gate()
    demo = ScriptedServer({"slow": gate})
    async with front({"demo": demo}, clock=clock) as world:
        client = await world.handshake()
        await client.call("list_tools")
        exchange = client.execute("demo", "slow")
        await primed(client, exchange, clock)
        exchange.drop()
        await demo.notify("notifications/x")
        await settle()
        gate.opened.set()
        await clock.advance(11)
        assert exchange.done.is_set()
        listed = await client.call("list_tasks", include_completed=True)
        (task,) = listed.json["tasks"]
        assert task["status"] == "completed"
        assert listed.event_types == ["notification", "task_created", "task_completed"]
        assert (await client.call("get_task_result", task_id=task["task_id"])).texts[0] == "done"
        # Whoever comes back now gets the response to the request, without the events: they were told elsewhere.
        late = client.get(exchange.last_event_id)
        assert await late.result() == text_result("done")


@pytest.mark.parametrize("version", ["2025-11-25", OLD])
async def test_a_response_that_a_stalled_client_never_took_is_untold(clock: FakeClock, version: str) -> None:
    demo = ScriptedServer({"echo": echo})
    async with front({"demo": demo}, clock=clock) as world:
        client = await world.handshake(version=version)
        await client.call("list_tools")
        await demo.notify("notifications/x")
        await settle()
        exchange = client.execute("demo", "echo", {"text": "hi"})
        exchange.stop_reading()
        await settle()
        exchange.drop()
        await settle()
        assert exchange.done.is_set()
        again = await client.call("list_tasks", include_completed=True)
        assert again.event_types == ["notification", "task_created", "task_completed"]
        assert len(again.json["tasks"]) == 1


@pytest.mark.parametrize("nth", range(4))
@pytest.mark.parametrize(("tool", "arguments"), [("await_activity", {}), ("execute_tool", {"args": {"text": "hi"}})])
async def test_nothing_is_lost_with_a_client_that_goes_while_something_is_written_down(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch, tool: str, arguments: dict[str, Any], nth: int
) -> None:
    demo = ScriptedServer({"echo": echo})
    async with front({"demo": demo}, clock=clock) as world:
        client = await world.handshake()
        await client.call("list_tools")
        await demo.notify("notifications/x")
        await settle()
        if tool == "execute_tool":
            arguments = {"server": "demo", "tool": "echo", **arguments}
        put_right = stuck_at(monkeypatch, client.session, nth)
        exchange = client.tool(tool, **arguments)
        await clock.advance(2)
        was_answered = exchange.is_complete
        assert was_answered is (nth >= 2)
        exchange.drop()
        await clock.advance(11)
        put_right()
        assert exchange.done.is_set()
        after = await client.call("list_tasks", include_completed=True)
        assert after.event_types.count("notification") == (0 if was_answered else 1)
        has_task = tool == "execute_tool" and not was_answered
        assert [task["status"] for task in after.json["tasks"]] == (["completed"] if has_task else [])


# Ids that lead nowhere


@requirement("T001-replay-isolation")
async def test_an_id_of_another_session_replays_nothing_of_either(clock: FakeClock) -> None:
    gate = Gate()
    async with front({"demo": ScriptedServer({"slow": gate})}, clock=clock) as world:
        one, two = await world.handshake(), await world.handshake()
        first, second = one.execute("demo", "slow"), two.execute("demo", "slow")
        await clock.advance(1.1)
        ids = {first.last_event_id, second.last_event_id}
        assert len(ids) == 2
        foreign = two.get(first.last_event_id)
        await settle()
        assert foreign.status == 200
        gate.opened.set()
        await first.result()
        await second.result()
        # Nothing but that there is nothing.
        assert await foreign.failure() == (200, -32603)
        assert len(foreign.events) == 1


async def test_with_another_principal_a_session_is_not_to_be_found(clock: FakeClock) -> None:
    async with front({"demo": ScriptedServer({"slow": Gate()})}, clock=clock) as world:
        ada = await world.handshake(principal="ada")
        exchange = ada.execute("demo", "slow")
        await primed(ada, exchange, clock)
        ada.principal = "eve"
        for attempt in (ada.get(exchange.last_event_id), ada.get(), ada.delete(), ada.request("ping")):
            assert await attempt.failure() == (404, -32600)
        ada.principal = "nobody"
        assert (await ada.get().failure())[0] == 401


@pytest.mark.parametrize("event_id", ["", "nonsense", "1-1", "x" * 5000, "a-1-" + "9" * 5000])
async def test_an_id_that_is_not_ours_opens_the_standalone_stream(clock: FakeClock, event_id: str) -> None:
    demo = ScriptedServer({"echo": echo}, capabilities={"tools": {"listChanged": True}})
    async with front({"demo": demo}, clock=clock) as world:
        client = await world.handshake(url="/mcp/server/demo")
        stream = client.get(event_id)
        await settle()
        await demo.notify("notifications/tools/list_changed")
        await settle()
        assert [message["method"] for message in stream.messages] == ["notifications/tools/list_changed"]


# More than is kept


@pytest.mark.parametrize("url", ["/mcp", "/mcp/server/demo"])
async def test_of_a_stream_that_was_too_long_to_be_kept_the_rest_is_replayed_with_its_response(
    clock: FakeClock, url: str
) -> None:
    go_on = anyio.Event()

    async def work(call: ScriptedCall) -> str:
        await go_on.wait()
        for number in range(1100):
            await call.progress(number + 1)
        return "done"

    async with front({"demo": ScriptedServer({"work": work})}, clock=clock) as world:
        client = await world.handshake(url=url)
        call: dict[str, Any] = {"name": "work", "arguments": {}}
        if url == "/mcp":
            call = {"name": "execute_tool", "arguments": {"server": "demo", "tool": "work"}}
        exchange = client.request("tools/call", {**call, "_meta": {"progressToken": 1}})
        await primed(client, exchange, clock)
        exchange.drop()
        await settle()
        go_on.set()
        await settle()
        resumed = client.get(exchange.last_event_id)
        assert (await resumed.result())["content"][0]["text"] == "done"
        told = [message["params"]["progress"] for message in resumed.messages if "method" in message]
        assert told[-1] == 1100
        assert 900 < len(told) < 1100


async def test_the_response_of_a_client_that_is_away_outlasts_the_news_of_others(clock: FakeClock) -> None:
    gate = Gate()

    async def work(call: ScriptedCall) -> str:
        for number in range(1100):
            await call.progress(number + 1)
        return "done"

    async with front({"demo": ScriptedServer({"slow": gate, "work": work})}, clock=clock) as world:
        client = await world.handshake()
        exchange = client.execute("demo", "slow")
        await primed(client, exchange, clock)
        exchange.drop()
        gate.opened.set()
        await settle()
        other = client.tool("execute_tool", meta={"progressToken": 1}, server="demo", tool="work")
        await other.result()
        resumed = client.get(exchange.last_event_id)
        assert (await resumed.result())["content"][0]["text"] == "done"


async def test_a_response_that_could_not_be_kept_was_not_sent_and_goes_on_as_a_task(clock: FakeClock) -> None:
    gate, go_on = Gate(), anyio.Event()

    async def big(call: ScriptedCall) -> str:
        await go_on.wait()
        return "x" * 9_000_000

    demo = ScriptedServer({"slow": gate, "big": big})
    async with front({"demo": demo}, clock=clock) as world:
        client = await world.handshake()
        await client.call("list_tools")
        exchange, other = client.execute("demo", "slow"), client.execute("demo", "big")
        await primed(client, exchange, clock)
        exchange.drop()
        other.drop()
        await demo.notify("notifications/x")
        await settle()
        gate.opened.set()
        await settle()
        go_on.set()
        await settle()
        resumed = client.get(exchange.last_event_id)
        await resumed.done.wait()
        assert answers_in(resumed) == []
        listed = await client.call("list_tasks", include_completed=True)
        assert [(task["tool"], task["status"]) for task in listed.json["tasks"]] == [("slow", "completed")]
        assert listed.event_types == ["notification", "task_created", "task_completed"]


# The standalone stream


@requirement("T001-replay")
async def test_the_standalone_stream_resumes_where_it_was_cut_off(clock: FakeClock) -> None:
    demo = ScriptedServer({"echo": echo})
    async with front({"demo": demo}, clock=clock) as world:
        client = await world.handshake(url="/mcp/server/demo")
        stream = client.get()
        await settle()
        assert [frame.data for frame in stream.events] == [""]
        await demo.notify("notifications/tools/list_changed", {"n": 1})
        await settle()
        stream.drop()
        await settle()
        for number in (2, 3):
            await demo.notify("notifications/tools/list_changed", {"n": number})
        await settle()
        resumed = client.get(stream.last_event_id)
        await demo.notify("notifications/tools/list_changed", {"n": 4})
        await settle()
        assert [message["params"]["n"] for message in resumed.messages] == [2, 3, 4]
        ids = [frame.id for frame in (*stream.events, *resumed.events)]
        assert len(set(ids)) == len(ids)


async def test_of_two_standalone_streams_the_newer_one_is_read(clock: FakeClock) -> None:
    demo = ScriptedServer({"echo": echo})
    async with front({"demo": demo}, clock=clock) as world:
        client = await world.handshake(url="/mcp/server/demo")
        older = client.get()
        await settle()
        newer = client.get()
        await settle()
        assert older.done.is_set()
        assert older.is_complete
        await demo.notify("notifications/tools/list_changed")
        await settle()
        assert older.messages == []
        assert len(newer.messages) == 1


async def test_a_session_that_ends_ends_its_streams(clock: FakeClock) -> None:
    async with front({"demo": ScriptedServer({"slow": Gate()})}, clock=clock) as world:
        client = await world.handshake()
        stream = client.get()
        exchange = client.execute("demo", "slow")
        await clock.advance(2)
        ended = client.delete()
        await ended.done.wait()
        assert ended.status == 200
        await settle()
        assert stream.is_complete
        assert exchange.done.is_set()
        assert await client.request("ping").failure() == (404, -32600)


async def test_a_session_with_a_stream_open_or_in_use_is_not_idle(clock: FakeClock) -> None:
    settings = HubSettings(session_idle_ms=60_000)
    async with front({"demo": ScriptedServer({"echo": echo})}, clock=clock, settings=settings) as world:
        listening = await world.handshake()
        stream = listening.get()
        calling = await world.handshake(url="/mcp/server/demo")
        for _ in range(5):
            await clock.advance(40)
            call = {"name": "echo", "arguments": {"text": "hi"}}
            assert await calling.request("tools/call", call).result() == text_result("hi")
        await listening.request("ping").result()
        stream.drop()
        await clock.advance(130)
        assert (await listening.request("ping").failure())[0] == 404


async def test_stopping_ends_every_stream_and_request(clock: FakeClock) -> None:
    async with front({"demo": ScriptedServer({"slow": Gate()})}, clock=clock) as world:
        client = await world.handshake()
        modern = world.modern()
        streams = [client.get(), client.execute("demo", "slow"), modern.execute("demo", "slow")]
        streams.append(modern.request("subscriptions/listen", {"notifications": {}}))
        await clock.advance(2)
        world.app.stop()
        await settle()
        assert [stream.done.is_set() for stream in streams] == [True] * 4
        # Nobody has cancelled anything.
        errors = [(await call.response())["error"] for call in streams[1:3]]
        assert errors == [{"code": -32603, "message": "The hub is stopping."}] * 2


# The stream itself


class Wire:
    def __init__(self) -> None:
        self.sent = b""
        self.is_ended = False

    async def __call__(self, message: Mapping[str, Any]) -> None:
        self.sent += message.get("body", b"")
        self.is_ended = message["type"] == "http.response.body" and not message["more_body"]


def note(number: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": number}}


async def test_a_reader_that_is_too_slow_misses_the_oldest_news_but_no_question_and_no_answer() -> None:
    stream = EventStream(ReplayBuffer("a"))
    question = {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {}}
    withdrawn = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "q"}}
    stream.post(question)
    stream.post(withdrawn)
    for number in range(500):
        stream.post(note(number))
    stream.finish({"jsonrpc": "2.0", "id": 1, "result": {}})
    wire = Wire()
    await stream.pump(wire)
    assert wire.is_ended
    found = [json.loads(line.removeprefix("data: ")) for line in wire.sent.decode().splitlines() if line[:4] == "data"]
    assert found[:2] == [question, withdrawn]
    assert found[-2:] == [note(499), {"jsonrpc": "2.0", "id": 1, "result": {}}]
    assert len(found) == 100


async def test_nothing_is_posted_after_the_end() -> None:
    stream = EventStream()
    stream.finish(note(1))
    stream.post(note(2))
    stream.ping()
    wire = Wire()
    await stream.pump(wire)
    assert wire.sent.count(b"data:") == 1


async def test_what_waits_has_an_end_even_if_all_of_it_is_questions() -> None:
    stream = EventStream()
    for number in range(3000):
        stream.post({"jsonrpc": "2.0", "id": f"q{number}", "method": "elicitation/create"})
    stream.finish()
    wire = Wire()
    await stream.pump(wire)
    assert wire.sent.count(b"data:") == 1000
