"""A call as a stream of everything that happens on the way to its result."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, TypeAlias

import anyio

from emceepee.client.events import Error, Progress, Result, TaskCreated, TaskStatus, Update
from emceepee.errors import EmceepeeError
from emceepee.wire.peer import OnProgress

__all__ = ["updates_of"]

JsonObject: TypeAlias = dict[str, Any]

MAX_UNREAD = 10_000
"""Updates that nobody has read yet; a reader who is that far behind misses news, but never the end."""


class TaskCall(Protocol):
    """A call that tells what happens to it."""

    def __call__(
        self, *, on_progress: OnProgress, on_task: Callable[[TaskCreated | TaskStatus], None]
    ) -> Awaitable[JsonObject]: ...


async def updates_of(call: TaskCall, spawn: Callable[..., object]) -> AsyncIterator[Update]:
    """What `call` tells, and at last its `Result` or `Error`; it runs in a task of `spawn`'s, while somebody reads."""
    send, receive = anyio.create_memory_object_stream[Update](MAX_UNREAD)
    scope = anyio.CancelScope()

    def tell(update: Update) -> None:
        try:
            send.send_nowait(update)
        except (anyio.WouldBlock, anyio.BrokenResourceError):
            return

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        tell(Progress(progress, total, message))

    async def run() -> None:
        with scope, send:
            try:
                await send.send(Result(await call(on_progress=on_progress, on_task=tell)))
            except EmceepeeError as error:
                await send.send(Error(error))

    spawn(run)
    try:
        with receive:
            async for update in receive:
                yield update
    finally:
        scope.cancel()
