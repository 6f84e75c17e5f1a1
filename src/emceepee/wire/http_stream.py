"""Event streams of the Streamable HTTP transport: one request's response, and the server's own stream.

Both are read over as many connections as it takes, as far as the server lets us resume.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TypeAlias

import anyio
import httpx2
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCResponse,
    RequestId,
)

from emceepee.clock import Clock, sleep
from emceepee.wire.ends import ChannelEnd
from emceepee.wire.envelope import decode, failure, undelivered
from emceepee.wire.http_client import DRAIN_SECONDS, events_of, is_event_stream, refusal, trouble
from emceepee.wire.reopening import MAX_TRIES, STEADY_SECONDS, Reopening
from emceepee.wire.transport import HTTP_STATUS

__all__ = ["SESSION_GONE", "Reply", "ServerStream"]

logger = logging.getLogger(__name__)

SESSION_GONE = "the server does not know our session any more"
"""The reason of a loss; the protocol's meaning of 404 for a session id."""

OpenStream: TypeAlias = Callable[[dict[str, str]], AbstractAsyncContextManager[httpx2.Response]]
"""GET with these headers beside the usual ones."""


class Reply:
    """The response to one request, with all that the server says on its stream before and after."""

    def __init__(
        self, request_id: RequestId, end: ChannelEnd, clock: Clock, open_stream: OpenStream, max_event_bytes: int | None
    ) -> None:
        self._request_id = request_id
        self._end = end
        self._clock = clock
        self._open = open_stream
        self._max_event_bytes = max_event_bytes
        self._reopening = Reopening()
        self._metadata = ServerMessageMetadata(related_request_id=request_id)
        self._ended_in_order = False
        self._is_read = False
        self.complete = False
        """The response, or an error in its place, was delivered."""

    @property
    def resumable(self) -> bool:
        return not self.complete and self._reopening.last_event_id is not None

    @property
    def is_broken(self) -> bool:
        """Whether the stream is to be resumed, which is tried a few times only."""
        return self.resumable and not self._is_read

    async def read_body(self, response: httpx2.Response) -> None:
        """Deliver what a plain body holds."""
        body = await response.aread()
        if body.strip():
            await self._take(body)
        if not self.complete:
            text = f"the server answered HTTP {response.status_code} without a response"
            await self.fail(ErrorData(code=CONNECTION_CLOSED, message=text, data={HTTP_STATUS: response.status_code}))

    async def read_stream(self, response: httpx2.Response) -> bool:
        """Deliver the events of `response` to its end; true if any came. A broken stream is one that ended."""
        any_event = self._ended_in_order = False
        self._is_read = True
        try:
            with anyio.CancelScope() as draining:
                async with aclosing(events_of(response, self._max_event_bytes)) as events:
                    async for event in events:
                        any_event = True
                        self._reopening.saw(event)
                        if event.event == "message" and event.data:
                            await self._take(event.data)
                        if self.complete:
                            draining.deadline = min(draining.deadline, anyio.current_time() + DRAIN_SECONDS)
            self._ended_in_order = True
        except httpx2.SSEError as error:
            await self.fail(ErrorData(code=PARSE_ERROR, message=str(error)))
        except httpx2.HTTPError as error:
            logger.debug("a response stream broke: %s", trouble(error))
        finally:
            self._is_read = False
        return any_event

    async def resume(self) -> None:
        """Go on after the last event until the response is there, or MAX_TRIES in a row brought nothing."""
        while self.resumable and self._reopening.tries < MAX_TRIES:
            if self._ended_in_order:
                self._end.state.on_interrupted(self._request_id)
            await sleep(self._clock, self._reopening.delay(self._clock.monotonic()))
            self._reopening.tries += 1
            try:
                async with self._open(self._reopening.headers()) as response:
                    await self._read_resumed(response)
            except httpx2.HTTPError as error:
                logger.debug("a response stream could not be resumed: %s", trouble(error))

    async def _read_resumed(self, response: httpx2.Response) -> None:
        if response.status_code in range(400, 500) or (response.is_success and not is_event_stream(response)):
            if response.status_code == 404 and self._end.state.session_id is not None:
                await self.fail(undelivered(SESSION_GONE))
                self._end.lose(SESSION_GONE)
                return
            refused = (await refusal(response)).message
            await self.fail(undelivered(f"the response stream broke and cannot be resumed: {refused}"))
            return
        if not response.is_success:
            return
        opened_at = self._clock.monotonic()
        any_event = await self.read_stream(response)
        if any_event or self._clock.monotonic() - opened_at >= STEADY_SECONDS:
            self._reopening.tries = 0

    async def fail(self, error: ErrorData) -> None:
        """Put an error in the place of the response, unless there is one already."""
        if not self.complete:
            self.complete = True
            await self._end.deliver(failure(self._request_id, error))

    async def _take(self, data: str | bytes) -> None:
        try:
            messages = decode(data)
        except ValueError as error:
            await self.fail(ErrorData(code=PARSE_ERROR, message=f"the server's answer is not JSON-RPC: {error}"))
            return
        for message in messages:
            await self._deliver(message, len(data))

    async def _deliver(self, message: JSONRPCMessage, size: int) -> None:
        if isinstance(message, JSONRPCResponse | JSONRPCError) and self._is_ours(message.id):
            self.complete = True
            message.id = self._request_id
        await self._end.deliver(SessionMessage(message, self._metadata), size)

    def _is_ours(self, message_id: RequestId | None) -> bool:
        # Some servers give the id back as a string, or as null in an error that came before they read it.
        return message_id is None or str(message_id) == str(self._request_id)


class ServerStream:
    """The stream that a GET opens, for what the server says of its own accord.

    A server may have none. One that was open and cannot be opened again means that the server is gone, but not before
    the `replies` that can be resumed have had their own tries: they would be lost with the channel.
    """

    def __init__(
        self,
        end: ChannelEnd,
        clock: Clock,
        open_stream: OpenStream,
        replies: Collection[Reply],
        max_event_bytes: int | None,
    ) -> None:
        self._end = end
        self._clock = clock
        self._open = open_stream
        self._replies = replies
        self._max_event_bytes = max_event_bytes
        self._reopening = Reopening()
        self._was_open = False

    async def run(self) -> None:
        """Keep the stream open until the server turns out to have none, or to be gone."""
        while await self._once():
            await sleep(self._clock, self._reopening.delay(self._clock.monotonic()))

    async def _once(self) -> bool:
        """Open and read the stream; true if it is worth another try."""
        self._reopening.tries += 1
        try:
            async with self._open(self._reopening.headers()) as response:
                if not response.is_success or not is_event_stream(response):
                    return await self._refused(response)
                self._was_open = True
                self._reopening.tries = self._reopening.conflicts = 0
                await self._read(response)
        except httpx2.SSEError as error:
            # The same event would come again.
            return self._give_up(str(error))
        except httpx2.ConnectError as error:
            return self._refused_to_connect(trouble(error))
        except httpx2.HTTPError as error:
            return self._try_again(trouble(error))
        return True

    async def _read(self, response: httpx2.Response) -> None:
        async with aclosing(events_of(response, self._max_event_bytes)) as events:
            async for event in events:
                self._reopening.saw(event)
                if event.event == "message" and event.data:
                    await self._take(event.data)

    async def _take(self, data: str) -> None:
        try:
            messages = decode(data)
        except ValueError as error:
            await self._end.deliver(error)
            return
        for message in messages:
            await self._end.deliver(SessionMessage(message), len(data))

    async def _refused(self, response: httpx2.Response) -> bool:
        if response.status_code == 409:
            # The server has not noticed yet that the one who read it before us is gone, which can take minutes.
            self._reopening.conflicts += 1
            self._reopening.tries = 0
            return True
        if not self._was_open or response.status_code == 405 or response.is_success:
            logger.debug("the server has no stream of its own: HTTP %s", response.status_code)
            return False
        if response.status_code == 404:
            return self._give_up(SESSION_GONE)
        return self._try_again((await refusal(response)).message)

    def _refused_to_connect(self, problem: str) -> bool:
        # Some of the replies may not have noticed yet that their streams broke with ours.
        if self._was_open and not any(reply.resumable for reply in self._replies):
            return self._give_up(problem)
        return self._try_again(problem)

    def _try_again(self, problem: str) -> bool:
        is_awaited = any(reply.is_broken for reply in self._replies)
        return is_awaited or self._reopening.tries < MAX_TRIES or self._give_up(problem)

    def _give_up(self, problem: str) -> bool:
        if self._was_open:
            self._end.lose(problem)
        else:
            logger.info("the server's own stream could not be opened: %s", problem)
        return False
