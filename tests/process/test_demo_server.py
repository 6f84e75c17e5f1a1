"""The demo server as a real process, driven by the SDK's own client: both transports, both eras, every tool."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Self, cast

import anyio
import anyio.to_thread
import httpx2
import pytest
from mcp import MCPError, StdioServerParameters
from mcp.client import Client, ClientRequestContext
from mcp.types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    LoggingMessageNotificationParams,
    ResourceTemplateReference,
    TextContent,
    TextResourceContents,
)

Demo = StdioServerParameters | str
Mode = Literal["legacy", "auto"]

DEMO = [sys.executable, "-m", "emceepee.demo"]
LIMIT_S = 180
"""Far above what any of these calls takes, so that only a hang meets it."""

pytestmark = pytest.mark.anyio


@dataclass
class Person:
    """Whoever sits at the client: the answers in the order of the questions, and everything seen."""

    answers: list[ElicitResult] = field(default_factory=list)
    forms: list[ElicitRequestFormParams] = field(default_factory=list)
    prompts: list[CreateMessageRequestParams] = field(default_factory=list)
    logs: list[LoggingMessageNotificationParams] = field(default_factory=list)
    _log_news: anyio.Event = field(default_factory=anyio.Event)

    async def fill_in(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        self.forms.append(params)
        return self.answers[len(self.forms) - 1]

    async def sample(self, context: ClientRequestContext, params: CreateMessageRequestParams) -> CreateMessageResult:
        self.prompts.append(params)
        return CreateMessageResult(role="assistant", content=TextContent(text="in short: yes"), model="test")

    async def read_log(self, params: LoggingMessageNotificationParams) -> None:
        self.logs.append(params)
        self._log_news.set()

    async def has_read(self, count: int) -> None:
        """Wait for so many log messages: the client reads them beside the call, so the last may come after its end."""
        while len(self.logs) < count:
            self._log_news = anyio.Event()
            await self._log_news.wait()


WHEN = ElicitResult(action="accept", content={"date": "2030-05-17", "time": "19:30"})
YES = ElicitResult(action="accept", content={"confirm": True, "note": "a birthday"})
NO = ElicitResult(action="accept", content={"confirm": False})
DECLINE = ElicitResult(action="decline")
CANCEL = ElicitResult(action="cancel")


@contextmanager
def served_over_http() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    with subprocess.Popen([*DEMO, "--port", "0"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield process.stderr.readline().split()[-1], process
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def demo_url() -> Iterator[str]:
    """One demo server for the whole module: it keeps nothing between calls, and starting one takes a second."""
    with served_over_http() as (url, _):
        yield url


@pytest.fixture(params=["stdio", "http"])
def demo(request: pytest.FixtureRequest) -> Demo:
    """The demo server as something a client can connect to, on each transport."""
    if request.param == "http":
        return str(request.getfixturevalue("demo_url"))
    return StdioServerParameters(command=DEMO[0], args=DEMO[1:])


@asynccontextmanager
async def connected(demo: Demo, mode: Mode, person: Person) -> AsyncIterator[Client]:
    with anyio.fail_after(LIMIT_S):
        async with _client(demo, mode, person) as client:
            yield client


def _client(server: Demo, mode: Mode, person: Person) -> Client:
    return Client(
        server,
        mode=mode,
        elicitation_callback=person.fill_in,
        sampling_callback=person.sample,
        logging_callback=person.read_log,
        log_level="debug",
    )


def text_of(result: CallToolResult) -> str:
    assert result.is_error is not True
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


modes = pytest.mark.parametrize("mode", ["legacy", "auto"])


@modes
async def test_each_mode_negotiates_its_own_era(demo: Demo, mode: Mode) -> None:
    async with connected(demo, mode, Person()) as client:
        assert client.protocol_version == {"legacy": "2025-11-25", "auto": "2026-07-28"}[mode]


@modes
async def test_every_tool_is_listed_with_a_description(demo: Demo, mode: Mode) -> None:
    async with connected(demo, mode, Person()) as client:
        tools = (await client.list_tools()).tools
    assert {t.name for t in tools} == {"echo", "slow", "book_table", "summarise", "fail", "crash", "chatter"}
    assert all(t.description for t in tools)


@modes
async def test_echo_says_back_what_was_said(demo: Demo, mode: Mode) -> None:
    async with connected(demo, mode, Person()) as client:
        assert text_of(await client.call_tool("echo", {"text": "grüß dich"})) == "grüß dich"


@modes
async def test_even_a_short_slow_call_reports_five_steps_of_progress(demo: Demo, mode: Mode) -> None:
    seen: list[tuple[float, float | None]] = []
    all_seen = anyio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total))

        if len(seen) == 5:
            all_seen.set()

    async with connected(demo, mode, Person()) as client:
        result = await client.call_tool("slow", {"seconds": 0.05}, progress_callback=on_progress)
        # The client runs progress callbacks beside the call, so the last of them may lose the race with the result.
        await all_seen.wait()
    assert text_of(result) == "slept 0.05 s"
    assert seen[:5] == [(step, 5) for step in range(5)]


@modes
async def test_book_table_asks_twice_and_books(demo: Demo, mode: Mode) -> None:
    person = Person([WHEN, YES])
    async with connected(demo, mode, person) as client:
        result = await client.call_tool("book_table", {"guests": 4})
    assert text_of(result) == "Booked: a table for 4 on 2030-05-17 at 19:30. Note: a birthday. See you then!"
    assert [list(form.requested_schema["properties"]) for form in person.forms] == [
        ["date", "time"],
        ["confirm", "note"],
    ]
    assert [form.requested_schema["required"] for form in person.forms] == [["date", "time"], ["confirm"]]


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([DECLINE], "you declined when asked for a date and time"),
        ([CANCEL], "you cancelled when asked for a date and time"),
        ([WHEN, DECLINE], "you declined when asked to confirm"),
        ([WHEN, CANCEL], "you cancelled when asked to confirm"),
        ([WHEN, NO], "the answer was no"),
    ],
)
@modes
async def test_a_booking_that_was_not_wanted_ends_politely(
    demo_url: str, mode: Mode, answers: list[ElicitResult], reason: str
) -> None:
    person = Person(answers)
    async with connected(demo_url, mode, person) as client:
        assert text_of(await client.call_tool("book_table")) == f"No table was booked: {reason}. Come back any time."
    assert len(person.forms) == len(answers)


@modes
async def test_summarise_returns_what_the_clients_model_said(demo: Demo, mode: Mode) -> None:
    person = Person()
    async with connected(demo, mode, person) as client:
        assert text_of(await client.call_tool("summarise", {"text": "a long story"})) == "in short: yes"
    (prompt,) = person.prompts
    assert prompt.messages[0].content == TextContent(text="Summarise this in one sentence:\n\na long story")


@modes
async def test_fail_gives_an_error_result(demo: Demo, mode: Mode) -> None:
    async with connected(demo, mode, Person()) as client:
        result = await client.call_tool("fail", {"message": "no such dish"})
    assert result.is_error is True
    assert result.content == [TextContent(text="Error executing tool fail: no such dish")]


@modes
async def test_chatter_logs_at_several_levels(demo: Demo, mode: Mode) -> None:
    person = Person()
    async with connected(demo, mode, person) as client:
        assert text_of(await client.call_tool("chatter", {"lines": 6})) == "sent 6 log messages"
        await person.has_read(6)
    assert [log.level for log in person.logs] == ["debug", "info", "notice", "warning", "error", "debug"]


@modes
async def test_the_menu_is_a_resource_a_template_and_a_prompt(demo: Demo, mode: Mode) -> None:
    async with connected(demo, mode, Person()) as client:
        assert [r.uri for r in (await client.list_resources()).resources] == ["demo://menu"]
        templates = (await client.list_resource_templates()).resource_templates
        assert [t.uri_template for t in templates] == ["demo://menu/{dish}"]
        assert [p.name for p in (await client.list_prompts()).prompts] == ["plan_dinner"]

        (whole,) = (await client.read_resource("demo://menu")).contents
        (soup,) = (await client.read_resource("demo://menu/soup")).contents
        assert isinstance(whole, TextResourceContents)
        assert isinstance(soup, TextResourceContents)
        assert soup.text in whole.text

        (message,) = (await client.get_prompt("plan_dinner", {"occasion": "a birthday"})).messages
        assert isinstance(message.content, TextContent)
        assert "a birthday" in message.content.text

        reference = ResourceTemplateReference(uri="demo://menu/{dish}")
        completed = await client.complete(reference, {"name": "dish", "value": "s"})
        assert completed.completion.values == ["soup"]

        with pytest.raises(MCPError):
            await client.read_resource("demo://menu/gold")


@modes
async def test_crash_over_stdio_ends_the_connection(mode: Mode) -> None:
    async with connected(StdioServerParameters(command=DEMO[0], args=DEMO[1:]), mode, Person()) as client:
        with pytest.raises(MCPError):
            await client.call_tool("crash")


async def test_crash_over_http_ends_the_process_with_status_3() -> None:
    with anyio.fail_after(LIMIT_S), served_over_http() as (url, process):
        async with RawClient(url) as raw:
            with pytest.raises(httpx2.TransportError):
                async with raw.call("crash") as response:
                    await response.aread()
        assert await anyio.to_thread.run_sync(process.wait) == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_ends_the_server_over_http_in_order(number: signal.Signals) -> None:
    with served_over_http() as (_, process):
        process.send_signal(number)
        assert process.wait(LIMIT_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_an_interrupt_ends_the_server_on_stdio_though_its_input_is_open() -> None:
    with subprocess.Popen(DEMO, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        process.stdin.flush()
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 0
        assert process.stderr.read() == b""


def test_a_person_at_a_terminal_is_told_what_it_waits_for() -> None:
    ours, its = os.openpty()
    with subprocess.Popen(DEMO, stdin=its, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        os.close(its)
        assert process.stderr is not None
        told = process.stderr.readline()
        process.send_signal(signal.SIGINT)
    os.close(ours)
    assert told == "demo server on stdin/stdout: waits for an MCP client; use --port N for HTTP\n"
    assert process.returncode == 0


async def test_a_handshake_clients_question_comes_on_the_calls_own_response_stream(demo_url: str) -> None:
    """The stream of a POST answers one request, so what arrives on it belongs to that request."""
    with anyio.fail_after(LIMIT_S):
        async with RawClient(demo_url) as raw, raw.call("book_table") as response:
            assert (await first_message(response))["method"] == "elicitation/create"


class RawClient:
    """A handshake client with no logic of its own, for what the SDK's client hides: the streams."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._http = httpx2.AsyncClient(headers={"accept": "application/json, text/event-stream"}, timeout=LIMIT_S)

    async def __aenter__(self) -> Self:
        info = {"name": "raw", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": info}
        opened = await self._post({"id": 1, "method": "initialize", "params": params})
        self._http.headers |= {
            "mcp-session-id": opened.headers["mcp-session-id"],
            "mcp-protocol-version": "2025-11-25",
        }
        await self._post({"method": "notifications/initialized"})
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._http.aclose()

    def call(self, tool: str) -> AbstractAsyncContextManager[httpx2.Response]:
        params = {"name": tool, "arguments": {}}
        message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
        return self._http.stream("POST", self._url, json=message)

    async def _post(self, message: dict[str, Any]) -> httpx2.Response:
        return await self._http.post(self._url, json={"jsonrpc": "2.0", **message})


async def first_message(response: httpx2.Response) -> dict[str, Any]:
    """The first JSON-RPC message on an event stream; events without data are there to prime it."""
    async for line in response.aiter_lines():
        if line.startswith("data:") and (data := line.removeprefix("data:").strip()):
            return cast("dict[str, Any]", json.loads(data))
    raise AssertionError("the stream ended without a message")
