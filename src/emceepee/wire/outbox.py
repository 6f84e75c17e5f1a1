"""Messages that leave as HTTP POSTs, each in a task of its own: a slow one delays nothing, a failed one fails alone.

Shared by `http.py` and `sse.py`, which say how one message is POSTed.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import anyio
import httpx2
from anyio.abc import TaskGroup
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import INTERNAL_ERROR, JSONRPCNotification, JSONRPCRequest, RequestId

from emceepee.clock import Clock
from emceepee.wire.ends import ChannelEnd
from emceepee.wire.envelope import undelivered
from emceepee.wire.http_client import trouble

__all__ = ["Outbox", "Posting"]

logger = logging.getLogger(__name__)

MAX_REQUESTS = 1000
"""In flight on one connection. One more is refused at once: to hold it back would hold back the answers behind it."""

MAX_DELIVERIES = 1000
"""Notifications and responses on their way at the same time; the next one waits, and so does what is behind it."""

ORDER_SECONDS = 10.0
"""How long the messages behind `initialize` and `notifications/initialized` wait for the server to take these."""

CANCELLED_SECONDS = 30.0
"""A cancelled request's response stream is left open for what is still on its way, but not for ever."""

_ORDERED = ("initialize", "notifications/initialized")


@dataclass(slots=True, eq=False)
class Posting:
    """One message on its way."""

    item: SessionMessage
    modern: bool = False
    """Sent under the modern era's rules, which say how it is cancelled."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    accepted: anyio.Event = field(default_factory=anyio.Event)
    """Set when the server's answer has begun, or will not come."""
    cancelled: bool = False
    """The peer has told the server that it does not want the response any more."""

    @property
    def headers(self) -> Mapping[str, str]:
        """HTTP headers that the peer wants on this message alone."""
        return (isinstance(self.item.metadata, ClientMessageMetadata) and self.item.metadata.headers) or {}

    @property
    def method(self) -> str | None:
        """Of a request or notification."""
        return getattr(self.item.message, "method", None)


class Outbox:
    """Takes what the peer writes and POSTs it."""

    def __init__(
        self,
        end: ChannelEnd,
        clock: Clock,
        post: Callable[[Posting], Awaitable[None]],
        *,
        is_modern: Callable[[Posting], bool] = lambda _: False,
    ) -> None:
        self._end = end
        self._clock = clock
        self._post = post
        self._is_modern = is_modern
        self._requests: dict[RequestId, Posting] = {}
        self._deliveries = anyio.Semaphore(MAX_DELIVERIES)
        end.state.on_abandoned = self._abandon

    async def run(self, tasks: TaskGroup) -> None:
        """POST every message in a task of `tasks`, until the peer writes no more."""
        async for item in self._end:
            posting = Posting(item)
            posting.modern = self._is_modern(posting)
            if self._cancels(posting):
                continue
            await self._start(tasks, posting)
            if posting.method in _ORDERED:
                with self._clock.move_on_after(ORDER_SECONDS):
                    await posting.accepted.wait()

    def _cancels(self, posting: Posting) -> bool:
        """Apply a cancellation to the request that it names; true if the server is not to be told in words."""
        message = posting.item.message
        if not isinstance(message, JSONRPCNotification) or message.method != "notifications/cancelled":
            return False
        request_id = cancelled_request_id_from_params(message.params)
        request = None if request_id is None else self._requests.get(request_id)
        if request is None:
            return posting.modern
        request.cancelled = True
        if request.modern:
            request.scope.cancel()
        else:
            request.scope.deadline = anyio.current_time() + CANCELLED_SECONDS
        return request.modern

    def _abandon(self, request_id: RequestId) -> None:
        """Let go of a request: its TCP connection may have gone silent, and would be held for ever."""
        if (request := self._requests.get(request_id)) is not None:
            request.scope.cancel()

    async def _start(self, tasks: TaskGroup, posting: Posting) -> None:
        message = posting.item.message
        if not isinstance(message, JSONRPCRequest):
            await self._deliveries.acquire()
            tasks.start_soon(self._deliver, posting)
        elif len(self._requests) >= MAX_REQUESTS:
            await self._end.fail(posting.item, undelivered(f"{MAX_REQUESTS} requests are in flight already"))
        else:
            # Before the task runs: the very next message may be the cancellation.
            self._requests[message.id] = posting
            tasks.start_soon(self._request, message.id, posting)

    async def _deliver(self, posting: Posting) -> None:
        try:
            await self._contained(posting)
        finally:
            self._deliveries.release()

    async def _request(self, request_id: RequestId, posting: Posting) -> None:
        try:
            with posting.scope:
                await self._contained(posting)
        finally:
            if self._requests.get(request_id) is posting:
                del self._requests[request_id]

    async def _contained(self, posting: Posting) -> None:
        try:
            await self._post(posting)
        except httpx2.HTTPError as error:
            await self._end.fail(posting.item, undelivered(trouble(error)))
        except Exception as error:
            logger.exception("a message could not be sent")
            await self._end.fail(posting.item, undelivered(f"the message could not be sent: {error}", INTERNAL_ERROR))
        finally:
            posting.accepted.set()
