"""The hub as a process, clients with no logic of their own, and what a test reads out of a response.

`serving` and `demo_serving` start programs and take their last line along; `HttpClient` and `StdioClient` speak plain
JSON-RPC, for what somebody else's SDK would hide or refuse to send. The clients of others are in `tests.peers`.
"""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Self

import anyio
import httpx2
from anyio.abc import ByteReceiveStream

__all__ = [
    "DEMO",
    "EMCEEPEE",
    "INITIALIZE",
    "STOP_LIMIT_S",
    "HttpClient",
    "Program",
    "StdioClient",
    "config_file",
    "demo_serving",
    "error_code",
    "free_port",
    "json_blocks",
    "odd_server",
    "open_questions",
    "own_json",
    "proxy_task",
    "serving",
    "started",
]

EMCEEPEE = [sys.executable, "-m", "emceepee.cli"]
DEMO = [sys.executable, "-m", "emceepee.demo"]
ODD_SERVER = Path(__file__).resolve().parent / "programs" / "odd_server.py"

START_LIMIT_S = 120
"""A Python program starts in two seconds, and in fifteen where ten others do so, too; only a hang meets this."""

STOP_LIMIT_S = 60
"""A program that was told to end and has not by then is killed."""

INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}

JsonObject = dict[str, Any]


class Program:
    """A running program whose stderr is read all the time, so that it never waits for us."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_for_line(self, text: str, limit_s: float = START_LIMIT_S) -> str:
        """The first line on stderr that contains `text`, now or later."""

        def found() -> str | None:
            return next((line for line in self.lines if text in line), None)

        with self._news:
            self._news.wait_for(lambda: found() is not None or self._ended, limit_s)
            line = found()
        assert line is not None, f"no line with {text!r} in: {self.lines}"
        return line

    def wait(self, limit_s: float) -> int:
        """The exit status."""
        return self.process.wait(limit_s)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._reader.join(STOP_LIMIT_S)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None and not pipe.closed:
                pipe.close()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.lines.append(line.decode().rstrip())
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()


@contextmanager
def started(command: Sequence[str], env: Mapping[str, str] | None = None) -> Iterator[Program]:
    """A program while the body runs; its stdin is empty, its stdout nobody's."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        # Nothing is kept from one test for the next, nor in the home of whoever runs them.
        env={**os.environ, "EMCEEPEE_DATA": ":memory:", **(env or {})},
    )
    program = Program(process)
    try:
        yield program
    finally:
        program.stop()


@contextmanager
def serving(*arguments: str, env: Mapping[str, str] | None = None) -> Iterator[tuple[str, Program]]:
    """`emceepee serve` on a free port: its URL, and the process."""
    with started([*EMCEEPEE, "serve", "--port", "0", *arguments], env) as hub:
        yield hub.wait_for_line("emceepee is serving on").split()[-1], hub


@contextmanager
def demo_serving() -> Iterator[str]:
    """The demo server over Streamable HTTP: its URL."""
    with started([*DEMO, "--port", "0"]) as demo:
        yield demo.wait_for_line("demo server at").split()[-1]


def free_port() -> int:
    """A port for a program that has to be told one, or that comes back to it.

    Not one that the system gives out: while nobody listens on that, anybody else may be given it.
    """
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def odd_server(*arguments: str) -> JsonObject:
    """The `mcpServers` entry of a server that does `arguments` (see the program)."""
    return {"command": sys.executable, "args": [str(ODD_SERVER), *arguments]}


def config_file(folder: Path, servers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The flags that make a hub know `servers`."""
    path = folder / "servers.json"
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return ["--config", str(path)]


# Reading responses


def json_blocks(result: Mapping[str, Any]) -> list[JsonObject]:
    """Every text block that holds a JSON object."""
    found = []
    for block in result["content"]:
        if block["type"] == "text" and block["text"].startswith("{"):
            found.append(json.loads(block["text"]))
    return found


def own_json(result: Mapping[str, Any]) -> JsonObject:
    """What a tool of the hub itself answered."""
    assert result.get("isError") is not True, result
    answer: JsonObject = json.loads(result["content"][0]["text"])
    return answer


def error_code(result: Mapping[str, Any]) -> str:
    """The stable code of an error result; it also says what to do."""
    assert result["isError"] is True, result
    error = json.loads(result["content"][0]["text"])["error"]
    assert error["message"]
    assert error["hint"]
    return str(error["code"])


def proxy_task(result: Mapping[str, Any]) -> JsonObject:
    """The task that a call became."""
    (task,) = [block["proxy_task"] for block in json_blocks(result) if "proxy_task" in block]
    return dict(task)


def open_questions(result: Mapping[str, Any], kind: str = "elicitations") -> list[JsonObject]:
    """The questions of `pending_client_action`, or of `await_activity`."""
    for block in json_blocks(result):
        if (pending := block.get("pending_client_action") or block.get("pending_client")) is not None:
            return list(pending[kind])
    return []


# Clients


class _Client:
    """What both raw clients have in common: requests by method, tools by name."""

    def __init__(self) -> None:
        self._ids = count(1)

    async def exchange(self, message: JsonObject) -> JsonObject:
        raise NotImplementedError

    async def request(self, method: str, params: JsonObject | None = None) -> JsonObject:
        """The whole response message."""
        return await self.exchange(
            {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": {} if params is None else params}
        )

    async def call(self, tool: str, arguments: JsonObject | None = None) -> JsonObject:
        """The result of one of the hub's own tools."""
        response = await self.request("tools/call", {"name": tool, "arguments": arguments or {}})
        result: JsonObject = response["result"]
        return result

    async def execute(self, server: str, tool: str, args: JsonObject | None = None, **options: Any) -> JsonObject:
        return await self.call("execute_tool", {"server": server, "tool": tool, "args": args or {}, **options})

    async def next_question(self, kind: str = "elicitations") -> JsonObject:
        """The first open question, waited for."""
        while True:
            result = await self.call("get_elicitations" if kind == "elicitations" else "get_sampling_requests")
            if found := own_json(result)[kind]:
                return dict(found[0])
            await self.call("await_activity")

    async def next_event(self, kind: str) -> JsonObject:
        """The next event of a kind, waited for; others are passed over."""
        while True:
            told = own_json(await self.call("await_activity"))
            for server in told["events"]:
                for event in server["events"]:
                    if event["type"] == kind:
                        return dict(event)


class HttpClient(_Client):
    """One session over Streamable HTTP; `http` has its headers, for requests of one's own."""

    def __init__(self, url: str, token: str | None = None) -> None:
        super().__init__()
        self.url = url
        self.http = httpx2.AsyncClient(
            headers={
                "accept": "application/json, text/event-stream",
                **({} if token is None else {"authorization": f"Bearer {token}"}),
            },
            timeout=None,
            limits=httpx2.Limits(max_connections=None),
            verify=False,  # nothing here is encrypted, and loading the certificates would take most of a test's time
        )

    async def __aenter__(self) -> Self:
        opened = await self.http.post(
            self.url, json={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE}
        )
        self.http.headers["mcp-session-id"] = opened.headers["mcp-session-id"]
        self.http.headers["mcp-protocol-version"] = "2025-11-25"
        await self.notify("notifications/initialized")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(STOP_LIMIT_S):
            with suppress(httpx2.TransportError):  # the hub may be gone already: some tests are about that
                await self.http.delete(self.url)
            await self.http.aclose()

    async def notify(self, method: str, params: JsonObject | None = None) -> None:
        response = await self.http.post(self.url, json={"jsonrpc": "2.0", "method": method, "params": params or {}})
        assert response.status_code == 202

    async def exchange(self, message: JsonObject) -> JsonObject:
        response = await self.http.post(self.url, json=message)
        if not response.headers["content-type"].startswith("text/event-stream"):
            return dict(response.json())
        for line in response.text.splitlines():
            if line.startswith("data:") and (data := line.removeprefix("data:").strip()):
                told: JsonObject = json.loads(data)
                if told.get("id") == message["id"]:
                    return told
        raise AssertionError(f"the stream ended without an answer: {response.text}")

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[httpx2.Response]:
        """A GET stream that the hub holds open."""
        async with self.http.stream("GET", self.url) as response:
            assert response.status_code == 200
            yield response


class StdioClient(_Client):
    """One session with `emceepee stdio`, or another program, which it starts; `process` is for signals and its end."""

    def __init__(
        self, *arguments: str, program: Sequence[str] = (*EMCEEPEE, "stdio"), capabilities: JsonObject | None = None
    ) -> None:
        super().__init__()
        self._command = [*program, *arguments]
        self._capabilities = capabilities or {}
        self._stack = AsyncExitStack()
        self._answers: dict[Any, tuple[anyio.Event, list[JsonObject]]] = {}
        self.unasked: list[JsonObject] = []
        self._unasked_news = anyio.Event()

    async def __aenter__(self) -> Self:
        await self.start()
        await self.request("initialize", {**INITIALIZE, "capabilities": self._capabilities})
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    async def start(self) -> None:
        """Start the program and say nothing yet."""
        self.process = await anyio.open_process(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None
        )
        self._stack.push_async_callback(self._stop)
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(tasks.cancel_scope.cancel)
        assert self.process.stdout is not None
        tasks.start_soon(self._read, self.process.stdout)

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stack.aclose()

    async def send(self, message: JsonObject) -> None:
        await self.send_line(json.dumps(message).encode())

    async def send_line(self, line: bytes) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send(line + b"\n")

    async def exchange(self, message: JsonObject) -> JsonObject:
        done, answer = anyio.Event(), list[JsonObject]()
        self._answers[message["id"]] = (done, answer)
        try:
            await self.send(message)
            await done.wait()
        finally:
            del self._answers[message["id"]]
        if not answer:
            raise EOFError("the hub ended without an answer")
        return answer[0]

    async def next_unasked(self) -> JsonObject:
        """The next message that answers none of our requests."""
        while not self.unasked:
            self._unasked_news = anyio.Event()
            await self._unasked_news.wait()
        return self.unasked.pop(0)

    async def _read(self, stdout: ByteReceiveStream) -> None:
        buffer = b""
        async for chunk in stdout:
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                self._take(json.loads(line))
        for done, _ in self._answers.values():
            done.set()

    def _take(self, message: JsonObject) -> None:
        waiting = self._answers.get(message.get("id"))
        if waiting is None or "method" in message:
            self.unasked.append(message)
            self._unasked_news.set()
            return
        done, answer = waiting
        answer.append(message)
        done.set()

    async def _stop(self) -> None:
        with anyio.CancelScope(shield=True):
            if self.process.stdin is not None:
                await self.process.stdin.aclose()
            with anyio.move_on_after(STOP_LIMIT_S):
                await self.process.wait()
            if self.process.returncode is None:
                self.process.kill()
            await self.process.aclose()
