"""Our ends of the pipes to a program.

Nothing is buffered here: a reader takes what the kernel holds, a writer waits until the kernel has taken all, so a
program feels at once that we do not keep up, and we that it does not.
"""

from __future__ import annotations

import fcntl
import os
import sys
import termios

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

__all__ = ["PipeReader", "PipeWriter"]

CHUNK_BYTES = 65536
"""What a pipe holds on Linux: more cannot come at once."""


class _PipeEnd:
    """Owns `handle`, which must not block."""

    def __init__(self, handle: int) -> None:
        os.set_blocking(handle, False)
        self._handle = handle

    @property
    def is_closed(self) -> bool:
        return self._handle < 0

    def close(self) -> None:
        """Close it; whoever waits for it is told."""
        if not self.is_closed:
            handle, self._handle = self._handle, -1
            anyio.notify_closing(handle)
            os.close(handle)

    async def aclose(self) -> None:
        self.close()

    def _checked(self) -> int:
        if self.is_closed:
            raise anyio.ClosedResourceError
        return self._handle


class PipeReader(_PipeEnd, ByteReceiveStream):
    async def receive(self, max_bytes: int = CHUNK_BYTES) -> bytes:
        try:
            data = os.read(self._checked(), max_bytes)
        except BlockingIOError:
            data = await self._receive_later(max_bytes)
        else:
            # A program that writes without a pause must not have the event loop to itself.
            await checkpoint()
        if not data:
            raise anyio.EndOfStream
        return data

    async def _receive_later(self, max_bytes: int) -> bytes:
        while True:
            await anyio.wait_readable(self._checked())
            try:
                return os.read(self._checked(), max_bytes)
            except BlockingIOError:
                continue


class PipeWriter(_PipeEnd, ByteSendStream):
    def __init__(self, handle: int) -> None:
        super().__init__(handle)
        self._written = 0

    @property
    def is_untouched(self) -> bool:
        """Whether the program has read nothing at all, as far as the kernel tells us."""
        if self._written == 0 or self.is_closed:
            return self._written == 0
        try:
            unread = fcntl.ioctl(self._handle, termios.FIONREAD, bytes(4))
        except OSError:
            return False  # not every system answers that for the writing end
        return int.from_bytes(unread, sys.byteorder) == self._written

    async def send(self, item: bytes) -> None:
        """Write all of `item`; if this is cancelled, a part of it may have been written."""
        await checkpoint_if_cancelled()
        rest = memoryview(item)
        while rest:
            try:
                written = os.write(self._checked(), rest)
                self._written += written
                rest = rest[written:]
            except BlockingIOError:
                await anyio.wait_writable(self._checked())
            except BrokenPipeError as error:
                raise anyio.BrokenResourceError from error
