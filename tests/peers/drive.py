"""Driving a client program over its pipes, one JSON object per line.

The programs in `programs` connect to an MCP server with somebody else's SDK, print `{"ready": …}`, then take requests
on standard input and answer each with one line when it is done, so that many calls can be open at once.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from itertools import count
from subprocess import PIPE
from typing import Any, Self

import anyio
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.text import TextReceiveStream

__all__ = ["LineClient", "PeerError", "ProgramEnded"]

CLOSE_LIMIT_S = 30.0
"""A program that does not end this long after its input ended is killed."""

Progress = Callable[[dict[str, Any]], None]


class PeerError(Exception):
    """What the program's SDK raised for a call: the JSON-RPC code if it had one, the text, and its data."""

    def __init__(self, code: int | None, message: str, data: Any = None) -> None:
        super().__init__(f"{message} ({code})")
        self.code, self.message, self.data = code, message, data


class ProgramEnded(Exception):
    """The program ended before it answered; its own words are on stderr."""


class _Call:
    """A request that waits for its line."""

    def __init__(self, on_progress: Progress | None) -> None:
        self.done = anyio.Event()
        self.reply: dict[str, Any] | None = None
        self.on_progress = on_progress


class LineClient:
    """One running client program. Entering waits until it has connected; leaving ends it, by force if need be.

    `ready` is what the server said of itself when the program connected. The program's stderr goes to ours.
    """

    def __init__(self, command: Sequence[str], *target: str) -> None:
        self._command = [*command, *target]
        self._calls: dict[int | str, _Call] = {}
        self._ids = count(1)
        self._ended = False
        self._stack = AsyncExitStack()
        self.ready: dict[str, Any] = {}

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def _start(self) -> None:
        self._process = await anyio.open_process(self._command, stdin=PIPE, stdout=PIPE, stderr=None)
        self._stack.push_async_callback(_end, self._process)
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(tasks.cancel_scope.cancel)
        hello = self._register("ready", None)
        assert self._process.stdout is not None
        tasks.start_soon(self._read, self._process.stdout)
        self.ready = (await self._reply("ready", hello))["ready"]

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stack.aclose()

    async def call(
        self, tool: str, arguments: dict[str, Any] | None = None, *, on_progress: Progress | None = None, **extra: Any
    ) -> dict[str, Any]:
        """The result of a tool call, as the program's SDK gives it; `extra` is for the program (`timeout_ms`, …).

        Raises:
            PeerError: The SDK raised instead of returning a result.
            ProgramEnded: The program ended before it answered.
        """
        request = {"tool": tool, "arguments": arguments or {}, **extra}
        if on_progress is not None:
            request["progress"] = True
        return await self.request(request, on_progress)

    async def list_tools(self) -> dict[str, Any]:
        return await self.request({"op": "list_tools"})

    async def request(self, request: dict[str, Any], on_progress: Progress | None = None) -> dict[str, Any]:
        """Send any request of the program's and wait for its result."""
        key = request.setdefault("id", next(self._ids))
        call = self._register(key, on_progress)
        reply = await self._reply(key, call, request)
        if "error" in reply:
            raise PeerError(**reply["error"])
        result: dict[str, Any] = reply["result"]
        return result

    def _register(self, key: int | str, on_progress: Progress | None) -> _Call:
        call = self._calls[key] = _Call(on_progress)
        return call

    async def _send(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        if self._ended:
            raise ProgramEnded(self._command)
        try:
            await self._process.stdin.send(json.dumps(request).encode() + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise ProgramEnded(self._command) from error

    async def _reply(self, key: int | str, call: _Call, request: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            if request is not None:
                await self._send(request)
            await call.done.wait()
        finally:
            self._calls.pop(key, None)
        if call.reply is None:
            raise ProgramEnded(self._command)
        return call.reply

    async def _read(self, stdout: ByteReceiveStream) -> None:
        buffer = ""
        async for chunk in TextReceiveStream(stdout):
            *lines, buffer = (buffer + chunk).split("\n")
            for line in lines:
                self._take(json.loads(line))
        self._ended = True
        for call in self._calls.values():
            call.done.set()

    def _take(self, line: dict[str, Any]) -> None:
        call = self._calls.get("ready" if "ready" in line else line["id"])
        if call is None:
            return
        if "progress" in line:
            if call.on_progress is not None:
                call.on_progress(line["progress"])
            return
        call.reply = line
        call.done.set()


async def _end(process: Process) -> None:
    """Let the program close its session by itself; a bounded time later it is killed."""
    with anyio.CancelScope(shield=True):
        if process.stdin is not None:
            await process.stdin.aclose()
        with anyio.move_on_after(CLOSE_LIMIT_S):
            await process.wait()
        if process.returncode is None:
            process.kill()
        await process.aclose()
