"""The ids of what a server asks, so that what one connection left unanswered can be refused on the next.

A question that blocks a server ends with its connection. But where the session is taken up, the server goes on waiting
for the response to its request: only one with the same id, in the same session, lets it go on.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from emceepee.wire.envelope import decode, failure
from emceepee.wire.transport import Channel, RequestId, Transport, TransportKind

__all__ = ["AskingTransport"]

MAX_UNTOLD = 1000
"""Ids of requests that nobody has asked for: of a request that is taken back at once, nobody ever does."""


class AskingTransport:
    """A transport, of whose newest channel is known under which id the server asked what."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._channel: Channel | None = None
        self._untold: deque[tuple[RequestId, Mapping[str, Any]]] = deque(maxlen=MAX_UNTOLD)

    @property
    def kind(self) -> TransportKind:
        return self._transport.kind

    @property
    def target(self) -> str:
        return self._transport.target

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Channel]:
        async with self._transport.open() as channel:
            self._channel = channel
            self._untold.clear()
            yield replace(channel, read=_Overheard(channel.read, self._on_message))

    def take_id(self, params: Mapping[str, Any]) -> RequestId | None:
        """The id of the request that has come with `params`, the very object; to be asked for once."""
        for entry in self._untold:
            if entry[1] is params:
                self._untold.remove(entry)
                return entry[0]
        return None

    async def refuse(self, request_id: RequestId, code: int, message: str) -> None:
        """Answer a request of an earlier channel's with an error."""
        error = {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}
        (response,) = decode(json.dumps(error))
        if self._channel is not None and (refusal := getattr(response, "error", None)) is not None:
            await self._channel.write.send(failure(request_id, refusal))

    def _on_message(self, message: object) -> None:
        request_id, params = getattr(message, "id", None), getattr(message, "params", None)
        if request_id is not None and params:
            self._untold.append((request_id, params))


class _Overheard:
    """The reading end of a channel; `tell` hears of each message before its reader."""

    def __init__(self, stream: Any, tell: Callable[[object], None]) -> None:
        self._stream = stream
        self._tell = tell

    async def receive(self) -> Any:
        item = await self._stream.receive()
        self._tell(getattr(item, "message", None))
        return item

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        item = await anext(self._stream)
        self._tell(getattr(item, "message", None))
        return item

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()
