"""The client library against servers in memory, in both eras."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, get_args

import anyio
import anyio.abc
import pytest

import emceepee.client
import emceepee.errors
from emceepee.client import (
    CallRef,
    ClientOptions,
    ConnectFailed,
    ConnectionEvent,
    ConnectionLost,
    Http,
    PeerError,
    Question,
    QuestionArrivedEvent,
    QuestionSettled,
    RequestTimedOut,
    ServerConnection,
    Sse,
    Stdio,
    Target,
    Update,
    connect,
)
from emceepee.client.inbound import UNREAD_SECONDS
from emceepee.core.buffers import LogSource
from emceepee.testing import FakeClock, ScriptedCall, ScriptedServer, form, settle, text_result
from emceepee.wire import stdio
from tests.interaction.gates import ask_name
from tests.requirements import requirement

pytestmark = pytest.mark.anyio
both_eras = pytest.mark.parametrize("modern", [False, True], ids=["handshake", "modern"])


class Sink:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.questions: list[Question] = []
        self.notifications: list[tuple[str, Mapping[str, Any]]] = []
        self.logs: list[tuple[str, Mapping[str, Any]]] = []

    def on_question(self, question: Question) -> None:
        self.questions.append(question)

    def on_notification(self, method: str, params: Mapping[str, Any], origin: object) -> None:
        self.notifications.append((method, params))

    def on_interrupted(self, origin: object) -> None:
        pass

    def on_log(self, source: LogSource, entry: Mapping[str, Any], origin: object) -> None:
        self.logs.append((source, entry))


def connected(
    server: ScriptedServer, clock: FakeClock, *, sink: Sink | None = None, **options: Any
) -> AbstractAsyncContextManager[ServerConnection]:
    return connect(server.transport(), clock=clock, sink=sink, options=ClientOptions(**options))


@asynccontextmanager
async def asking(clock: FakeClock) -> AsyncIterator[tuple[ServerConnection, anyio.abc.TaskGroup]]:
    """A server whose tool asks, in a request, for the one who is named; and a group for calls of it."""

    async def ask(call: ScriptedCall) -> str:
        return str(await call.elicit(form(f"{call.arguments['name']}?")))

    async with connected(ScriptedServer({"ask": ask}), clock) as server, anyio.create_task_group() as tasks:
        with anyio.fail_after(10):
            yield server, tasks


async def paged(params: Mapping[str, Any]) -> dict[str, Any]:
    pages = {None: ("a", "2"), "2": ("b", "3"), "3": ("c", None)}
    name, following = pages[params.get("cursor")]
    page: dict[str, Any] = {"tools": [{"name": name, "inputSchema": {}, "x-unknown": {"n": None}}]}
    return page if following is None else {**page, "nextCursor": following}


def test_no_event_or_update_is_called_like_an_error() -> None:
    told = {kind.__name__ for kind in (*get_args(ConnectionEvent), *get_args(Update))}
    assert not told & set(emceepee.errors.__all__)


def test_what_a_user_of_the_library_has_to_catch_comes_with_it() -> None:
    errors = {"ConnectFailed", "ConnectionLost", "PeerError", "QuestionSettled", "RequestTimedOut", "TaskRequired"}
    assert errors | {"EmceepeeError", "WireError"} <= set(emceepee.client.__all__)
    assert all(issubclass(getattr(emceepee.client, name), emceepee.client.EmceepeeError) for name in errors)


@both_eras
async def test_the_newest_era_of_both_sides_is_spoken(clock: FakeClock, modern: bool) -> None:
    async with connected(ScriptedServer(modern=modern), clock) as server:
        expected = ("modern", "2026-07-28") if modern else ("handshake", "2025-11-25")
        assert (server.era, server.protocol_version) == expected
        assert server.server_info == {"name": "scripted", "version": "1"}


async def test_a_server_that_ignores_the_probe_is_spoken_to_in_the_handshake_era(clock: FakeClock) -> None:
    async def never(_params: Mapping[str, Any]) -> dict[str, Any]:
        await anyio.sleep_forever()
        raise AssertionError

    scripted = ScriptedServer(methods={"server/discover": never})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(clock.advance, 10)
        async with connected(scripted, clock) as server:
            assert server.era == "handshake"


async def test_a_server_that_is_known_to_be_modern_has_a_minute_to_start(clock: FakeClock) -> None:
    started = anyio.Event()
    introduction = {"supportedVersions": ["2026-07-28"], "capabilities": {}}

    async def late(_params: Mapping[str, Any]) -> dict[str, Any]:
        await started.wait()
        return introduction

    async def take_its_time() -> None:
        await clock.advance(50)
        started.set()

    scripted = ScriptedServer(methods={"server/discover": late}, modern=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take_its_time)
        async with connected(scripted, clock, era="modern") as server:
            assert server.era == "modern"


@pytest.mark.parametrize("target", ["localhost:3000", Http("no url"), Sse("ftp://host/sse"), "http://"])
async def test_an_address_where_no_server_can_be_is_a_failure_to_connect(target: Target) -> None:
    with pytest.raises(ConnectFailed, match="URL"):
        async with connect(target):
            pytest.fail("there is no connection")


async def test_a_program_that_is_no_server_is_told_by_what_it_wrote(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "LAST_WORDS_SECONDS", 30)  # a busy machine may need more to bring the exit status
    program = Stdio(sys.executable, ["-c", r"print('readme.md\nsetup.py\n' + 500 * 'x')"])
    with anyio.fail_after(60), pytest.raises(ConnectFailed) as failed:
        async with connect(program):
            pytest.fail("it is connected")
    assert failed.value.reason == "the server process exited with status 0; it wrote 3 lines that are no MCP messages"
    assert str(failed.value).endswith('; the first: "readme.md"')
    assert capfd.readouterr() == ("", ""), "a library prints nothing"


async def test_an_old_version_that_the_server_answers_with_is_taken(clock: FakeClock) -> None:
    async def old(_params: Mapping[str, Any]) -> dict[str, Any]:
        return {"protocolVersion": "2024-11-05", "capabilities": {}, "serverInfo": {"name": "old", "version": "0"}}

    async with connected(ScriptedServer(methods={"initialize": old}), clock) as server:
        assert server.protocol_version == "2024-11-05"


@pytest.mark.parametrize("version", ["1999-01-01", None, 7])
async def test_a_version_that_nobody_speaks_is_a_clear_failure(clock: FakeClock, version: object) -> None:
    async def odd(_params: Mapping[str, Any]) -> dict[str, Any]:
        return {"protocolVersion": version, "capabilities": {}}

    with pytest.raises(ConnectFailed, match="protocol version"):
        async with connected(ScriptedServer(methods={"initialize": odd}), clock):
            pytest.fail("there is no connection")


async def test_every_page_of_a_list_is_fetched_and_unknown_fields_survive(clock: FakeClock) -> None:
    async with connected(ScriptedServer(methods={"tools/list": paged}), clock) as server:
        tools = await server.list_tools()
        assert [tool["name"] for tool in tools] == ["a", "b", "c"]
        assert tools[0]["x-unknown"] == {"n": None}


async def test_a_server_that_hands_out_the_same_cursor_forever_is_refused(clock: FakeClock) -> None:
    async def loop(_params: Mapping[str, Any]) -> dict[str, Any]:
        return {"tools": [], "nextCursor": "again"}

    async with connected(ScriptedServer(methods={"tools/list": loop}), clock) as server:
        with pytest.raises(PeerError, match="same cursor"):
            await server.list_tools()


@both_eras
async def test_a_question_is_answered_through_the_iterator(clock: FakeClock, modern: bool) -> None:
    async def ask(call: ScriptedCall) -> str:
        first = await call.elicit(form("Name?", name="string"), "name")
        second = await call.elicit(form("Age?", age="integer"), "age")
        return f"{first['content']['name']} {second['content']['age']}"

    async with connected(ScriptedServer({"ask": ask}, modern=modern), clock) as server:

        async def answer() -> None:
            async for question in server.questions():
                assert question.belongs_to.certainty == ("exact" if modern else "sole")
                assert isinstance(question.belongs_to.call, CallRef)
                assert question.arrival == ("input_required" if modern else "request")
                await question.accept({"name": "Ada"} if question.message == "Name?" else {"age": 36})

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            result = await server.call_tool("ask")
            tasks.cancel_scope.cancel()
    assert result["content"] == text_result("Ada 36")["content"]


async def test_whoever_left_the_iterator_can_come_back_to_it(clock: FakeClock) -> None:
    async with asking(clock) as (server, tasks):
        for name in ("Ada", "Grace"):
            tasks.start_soon(server.call_tool, "ask", {"name": name})
            async for question in server.questions():
                assert question.message == f"{name}?"
                await question.decline()
                break


async def test_a_question_that_comes_while_nobody_iterates_waits_for_somebody(clock: FakeClock) -> None:
    async with asking(clock) as (server, tasks):
        for name in ("Ada", "Grace"):
            tasks.start_soon(server.call_tool, "ask", {"name": name})
            await settle()
        answered = []
        async for question in server.questions():
            await question.decline()
            answered.append(question.message)
            if len(answered) == 2:
                break
        assert answered == ["Ada?", "Grace?"]


async def test_a_question_that_nobody_reads_is_warned_of_once(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    server = ScriptedServer({"ask": ask_name})
    async with connect(server.transport(), clock=clock) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "ask")
        tasks.start_soon(client.call_tool, "ask")
        await settle()
        assert caplog.records == []
        await clock.advance(UNREAD_SECONDS)
        (warning,) = caplog.records
        assert "nobody reads questions()" in warning.getMessage()
        await anext(aiter(client.questions()))
        await clock.advance(UNREAD_SECONDS)
        assert caplog.records == [warning]
        tasks.cancel_scope.cancel()


async def test_questions_that_somebody_reads_slowly_are_not_warned_of(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    server = ScriptedServer({"ask": ask_name})
    async with connect(server.transport(), clock=clock) as client, anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(client.call_tool, "ask")
        await anext(aiter(client.questions()))
        await clock.advance(UNREAD_SECONDS)
        assert caplog.records == []
        tasks.cancel_scope.cancel()


async def test_a_question_that_was_taken_back_is_neither_given_out_nor_kept(clock: FakeClock) -> None:
    async def ask_in_vain(server: ServerConnection) -> weakref.ref[Question]:
        with server.events.subscribe() as events:
            with pytest.raises(RequestTimedOut):
                await server.call_tool("ask", {"name": "Ada"}, timeout=1)
            await settle()
            event = await anext(events)
        assert isinstance(event, QuestionArrivedEvent)
        return weakref.ref(event.question)

    async with asking(clock) as (server, tasks):
        tasks.start_soon(clock.advance, 1)
        taken_back = await ask_in_vain(server)
        gc.collect()
        assert taken_back() is None
        tasks.start_soon(server.call_tool, "ask", {"name": "Grace"})
        async for question in server.questions():
            assert question.message == "Grace?"
            await question.decline()
            break


async def test_the_iterator_ends_with_the_connection(clock: FakeClock) -> None:
    async with asking(clock) as (server, _tasks):
        server.hang_up("enough")
        assert [question async for question in server.questions()] == []


@requirement("T000-sampling-reject")
@both_eras
async def test_a_rejected_sampling_request_is_an_error_for_its_server(clock: FakeClock, modern: bool) -> None:
    async def ask(call: ScriptedCall) -> str:
        try:
            await call.sample({"messages": [], "maxTokens": 5})
        except PeerError as error:
            return f"refused with {error.code}"
        return "answered"

    sink = Sink()
    async with connected(ScriptedServer({"ask": ask}, modern=modern), clock, sink=sink) as server:
        results: list[object] = []

        async def call() -> None:
            try:
                results.append((await server.call_tool("ask"))["content"][0]["text"])
            except PeerError as error:
                results.append(error.code)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await settle()
            await sink.questions[0].reject("no model here")
            with pytest.raises(QuestionSettled) as settled:
                await sink.questions[0].respond({})
    assert (settled.value.kind, settled.value.how) == ("sampling", "rejected")
    # There is no way to say no in an inputResponse, so the call itself fails in the modern era.
    assert results == ([-1] if modern else ["refused with -1"])


async def test_sampling_with_tools_and_images_passes_untouched(clock: FakeClock) -> None:
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    asked = {"messages": [{"role": "user", "content": image}], "tools": [{"name": "t", "inputSchema": {}}], "x": None}
    answer = {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "t", "input": {}}], "model": "m"}
    seen: list[object] = []

    async def ask(call: ScriptedCall) -> str:
        seen.append(await call.sample(dict(asked)))
        return "ok"

    sink = Sink()
    async with connected(ScriptedServer({"ask": ask}), clock, sink=sink) as server, anyio.create_task_group() as tasks:
        tasks.start_soon(server.call_tool, "ask")
        await settle()
        assert sink.questions[0].params == asked
        await sink.questions[0].respond(answer)
    assert seen == [answer]


async def test_a_client_that_declares_nothing_is_asked_nothing(clock: FakeClock) -> None:
    async def ask(call: ScriptedCall) -> str:
        try:
            await call.elicit(form("Name?"))
        except PeerError as error:
            return str(error.code)
        return "answered"

    scripted = ScriptedServer({"ask": ask})
    async with connected(scripted, clock, elicitation=False, sampling=False) as server:
        assert (await server.call_tool("ask"))["content"][0]["text"] == "-32601"
    assert dict(scripted.received)["initialize"]["capabilities"] == {}


@both_eras
async def test_a_call_that_takes_too_long_is_given_up_and_the_server_is_told(clock: FakeClock, modern: bool) -> None:
    async def slow(_call: ScriptedCall) -> str:
        await anyio.sleep_forever()
        return ""

    scripted = ScriptedServer({"slow": slow}, modern=modern)
    async with connected(scripted, clock) as server, anyio.create_task_group() as tasks:

        async def call() -> None:
            with pytest.raises(RequestTimedOut):
                await server.call_tool("slow", timeout=5)

        tasks.start_soon(call)
        await clock.advance(5)
        assert scripted.cancelled == ["slow"]


async def test_progress_of_a_call_is_reported_in_order(clock: FakeClock) -> None:
    async def work(call: ScriptedCall) -> str:
        for step in range(3):
            await call.progress(step, 3)
        return "done"

    seen: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        assert (total, message) == (3, None)
        seen.append(progress)

    async with connected(ScriptedServer({"work": work}), clock) as server:
        await server.call_tool("work", on_progress=on_progress)
        await settle()
    assert seen == [0, 1, 2]


async def test_a_call_on_a_connection_that_dies_fails_with_the_reason(clock: FakeClock) -> None:
    async def die(_call: ScriptedCall) -> str:
        await scripted.die()
        return ""

    scripted = ScriptedServer({"die": die})
    async with connected(scripted, clock) as server:
        with pytest.raises(ConnectionLost):
            await server.call_tool("die")
        await server.closed.wait()
        with pytest.raises(ConnectionLost):
            await server.list_tools()


async def test_a_scripted_server_that_dies_drops_every_connection(clock: FakeClock) -> None:
    scripted = ScriptedServer()
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(connected(scripted, clock)) for _ in range(3)]
        await scripted.die()
        await settle()
        assert [server.closed.is_set() for server in servers] == [True, True, True]


async def test_open_questions_are_lost_with_the_connection(clock: FakeClock) -> None:
    async def ask(call: ScriptedCall) -> str:
        return str(await call.elicit(form("Name?")))

    sink = Sink()
    scripted = ScriptedServer({"ask": ask})
    async with connected(scripted, clock, sink=sink) as server, anyio.create_task_group() as tasks:

        async def call() -> None:
            with pytest.raises(ConnectionLost):
                await server.call_tool("ask")

        tasks.start_soon(call)
        await settle()
        await scripted.die()
        await settle()
        assert [question.settled for question in sink.questions] == ["lost"]


async def test_roots_are_answered_from_the_options_and_changes_are_told(clock: FakeClock) -> None:
    async def roots(call: ScriptedCall) -> str:
        return ",".join(root["uri"] for root in (await call.peer.request("roots/list"))["roots"])

    scripted = ScriptedServer({"roots": roots})
    async with connected(scripted, clock, roots=["file:///a"]) as server:
        assert (await server.call_tool("roots"))["content"][0]["text"] == "file:///a"
        await server.set_roots(["file:///b", "file:///c"])
        assert (await server.call_tool("roots"))["content"][0]["text"] == "file:///b,file:///c"
    assert "notifications/roots/list_changed" in scripted.received_methods()


@both_eras
async def test_the_log_level_is_set_in_the_way_of_the_era(clock: FakeClock, modern: bool) -> None:
    async def accept(_params: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    scripted = ScriptedServer(modern=modern, methods={"logging/setLevel": accept})
    async with connected(scripted, clock) as server:
        await server.set_log_level("debug")
        await server.list_tools()
    if modern:
        assert dict(scripted.received)["tools/list"]["_meta"]["io.modelcontextprotocol/logLevel"] == "debug"
    else:
        assert dict(scripted.received)["logging/setLevel"] == {"level": "debug"}


async def test_resources_prompts_completion_and_ping_ask_what_the_protocol_says(clock: FakeClock) -> None:
    async def answer(_params: Mapping[str, Any]) -> dict[str, Any]:
        return {"resources": [{"uri": "a:b"}], "resourceTemplates": [{}], "prompts": [{"name": "p"}], "contents": []}

    lists = ["resources/list", "resources/templates/list"]
    resources = ["resources/read", "resources/subscribe", "resources/unsubscribe"]
    methods = [*lists, *resources, "prompts/list", "prompts/get", "completion/complete"]
    scripted = ScriptedServer(methods=dict.fromkeys(methods, answer))
    async with connected(scripted, clock) as server:
        assert await server.list_resources() == [{"uri": "a:b"}]
        assert await server.list_resource_templates() == [{}]
        await server.read_resource("a:b")
        await server.subscribe("a:b")
        await server.unsubscribe("a:b")
        assert await server.list_prompts() == [{"name": "p"}]
        await server.get_prompt("p", {"x": "y"})
        await server.complete({"type": "ref/prompt", "name": "p"}, {"name": "x", "value": "y"})
        await server.ping()
    assert [method for method in scripted.received_methods() if method in methods] == methods


async def test_a_modern_server_is_listened_to_for_changes_and_subscriptions(clock: FakeClock) -> None:
    filters: list[object] = []
    opened = anyio.Event()

    async def listen(params: Mapping[str, Any]) -> dict[str, Any]:
        filters.append(params["notifications"])
        opened.set()
        await anyio.sleep_forever()
        raise AssertionError

    capabilities = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}
    scripted = ScriptedServer(modern=True, capabilities=capabilities, methods={"subscriptions/listen": listen})
    sink = Sink()
    async with connected(scripted, clock, sink=sink) as server:
        await opened.wait()
        await server.subscribe("demo://menu")
        await settle()
        await scripted.notify("notifications/resources/updated", {"uri": "demo://menu"})
        await settle()
    assert filters == [{"toolsListChanged": True}, {"toolsListChanged": True, "resourceSubscriptions": ["demo://menu"]}]
    assert sink.notifications == [("notifications/resources/updated", {"uri": "demo://menu"})]


async def test_a_servers_logs_are_told_apart_from_its_notifications(clock: FakeClock) -> None:
    sink = Sink()
    scripted = ScriptedServer()
    async with connected(scripted, clock, sink=sink):
        await scripted.notify("notifications/message", {"level": "info", "data": "hello"})
        await scripted.notify("notifications/tools/list_changed")
        await settle()
    assert sink.logs == [("protocol", {"level": "info", "data": "hello"})]
    assert sink.notifications == [("notifications/tools/list_changed", {})]


async def test_the_bodys_own_error_comes_out_as_it_is(clock: FakeClock) -> None:
    with pytest.raises(ZeroDivisionError):
        async with connected(ScriptedServer(), clock):
            raise ZeroDivisionError
