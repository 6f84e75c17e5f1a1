"""Servers that are programs: newline-delimited JSON-RPC over a process's stdin and stdout.

Owns the pipes; the process's birth and end are in `process.py`. Whatever a server prints beside its messages harms
nobody: stray lines on stdout arrive as exceptions, stderr goes line by line to a callback.
"""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR

from emceepee.clock import Clock, SystemClock
from emceepee.pace import Pace
from emceepee.wire.ends import PIECE_BYTES, ChannelEnd, carry
from emceepee.wire.envelope import decode, encode, undelivered
from emceepee.wire.lines import LineSplitter
from emceepee.wire.process import ServerProcess, exit_reason, kill_group, spawn, stop
from emceepee.wire.transport import Channel, StrayLine, TransportKind

__all__ = ["StdioTransport"]

logger = logging.getLogger(__name__)

LONGEST_MESSAGE = 64 * 1024 * 1024
"""Far above any sane result; a server that never ends its line must not fill our memory."""

LONGEST_STDERR_LINE = 64 * 1024
"""A longer line is given in pieces: progress bars write whole screens without a line end."""

STDERR_BURST = 20_000
STDERR_PER_SECOND = 2_000
"""Lines, or KiB of longer ones. A program that writes more is read no faster, and waits for us in its writes."""

FLUSH_SECONDS = 0.25
"""For messages that were written just before closing, such as a cancellation."""

LAST_WORDS_SECONDS = 0.5
"""Output, stderr and exit status end in any order: once one says that the server is gone, the others get this long."""

_GONE = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError)


class StdioTransport:
    """Starts `command` for each connection, and ends it, with all its descendants, when the connection is left."""

    kind: TransportKind = "stdio"

    def __init__(
        self,
        command: str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        on_stderr: Callable[[str], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._command = [command, *args]
        self._env = env
        self._cwd = cwd
        self._on_stderr = on_stderr

    @property
    def target(self) -> str:
        return shlex.join(self._command)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Channel]:
        process = spawn(self._command, env=self._env, cwd=self._cwd, target=self.target)
        # No await between here and the `try`, or a cancellation would leak the process.
        try:
            conversation = _Conversation(process, ChannelEnd(self._clock), self._on_stderr, self._clock)
            async with carry(conversation.end, conversation.run, conversation.finish) as channel:
                yield channel
        finally:
            # Synchronous, for the one case that no shield covers: a second native cancellation of the owner's task.
            kill_group(process)
            process.close()


class _Conversation:
    """One running server process and the channel to it."""

    def __init__(
        self, process: ServerProcess, end: ChannelEnd, on_stderr: Callable[[str], None] | None, clock: Clock
    ) -> None:
        self.end = end
        self._clock = clock
        end.state.process_id = process.pid
        self._process = process
        self._on_stderr = on_stderr
        self._stdout_ended = anyio.Event()
        self._stderr_ended = anyio.Event()
        self._written = anyio.Event()

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read_stderr, self._process.stderr)
            tasks.start_soon(self._write_stdin, self._process.stdin)
            tasks.start_soon(self._read_stdout, self._process.stdout)
            tasks.start_soon(self._watch_exit)

    async def finish(self) -> None:
        """Let the last messages out, then end the process."""
        if self.end.state.lost_reason is None:
            with anyio.move_on_after(FLUSH_SECONDS):
                await self._written.wait()
        await stop(self._process)

    async def _write_stdin(self, stdin: ByteSendStream) -> None:
        try:
            async for item in self.end:
                await self._write(stdin, item)
        except _GONE:
            await self._lose("the server closed its input")
        finally:
            self._written.set()

    async def _write(self, stdin: ByteSendStream, item: SessionMessage) -> None:
        try:
            line = encode(item.message) + b"\n"
        except ValueError as error:
            await self.end.fail(item, undelivered(f"the message cannot be written as JSON: {error}", INTERNAL_ERROR))
            return
        await stdin.send(line)

    async def _read_stdout(self, stdout: ByteReceiveStream) -> None:
        splitter = LineSplitter(LONGEST_MESSAGE)
        reason = "the server closed its output"
        try:
            async for chunk in stdout:
                for line in splitter.feed(chunk):
                    await self._take(line)
            await self._take(splitter.flush())
        except _GONE as error:
            reason = f"reading from the server failed: {error}"
        except ValueError as error:
            self.end.lose(f"the server does not speak the protocol: {error}")
        self._stdout_ended.set()
        await self._lose(reason)

    async def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        text = line.decode("utf-8", "replace")
        try:
            messages = decode(text)
        except ValueError:
            await self.end.deliver(StrayLine(text), len(line))
            return
        for message in messages:
            await self.end.deliver(SessionMessage(message), len(line))

    async def _read_stderr(self, stderr: ByteReceiveStream) -> None:
        splitter = LineSplitter(LONGEST_STDERR_LINE, split=True)
        pace = Pace(self._clock, burst=STDERR_BURST, per_second=STDERR_PER_SECOND)
        try:
            async for chunk in stderr:
                lines = splitter.feed(chunk)
                for line in lines:
                    self._tell(line)
                await self.end.rest(pace.take(len(lines) + len(chunk) / PIECE_BYTES))
        except _GONE:
            logger.debug("a server's stderr broke off", exc_info=True)
        if rest := splitter.flush():
            self._tell(rest)
        self._stderr_ended.set()

    def _tell(self, line: bytes) -> None:
        if self._on_stderr is None:
            return
        try:
            self._on_stderr(line.decode("utf-8", "replace"))
        except Exception:
            logger.exception("a stderr callback failed")

    async def _watch_exit(self) -> None:
        """Notice the end of a server whose pipes are kept open by a child of its own."""
        await self._lose(exit_reason(await self._process.wait()))

    async def _lose(self, otherwise: str) -> None:
        """Lose the channel, because of the process's exit if there is one, and of `otherwise` if there is none."""
        with anyio.move_on_after(LAST_WORDS_SECONDS):
            await self._process.wait()
            await self._stdout_ended.wait()
            await self._stderr_ended.wait()
        status = self._process.returncode
        self.end.state.was_heard = status is None or not self._process.stdin.is_untouched
        self.end.lose(otherwise if status is None else exit_reason(status))
