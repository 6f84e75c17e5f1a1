"""One open JSON-RPC connection to a server, in raw dicts.

`open_peer` owns the channel: the task that enters it runs the connection and is the only one that leaves it; everybody
else just sends through the `Peer`. Nothing above this module sees the SDK's types or errors.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias

import anyio
import anyio.abc
from mcp.shared._stream_protocols import ReadStream
from mcp.shared.dispatcher import CallOptions, DispatchContext, ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import MessageMetadata, ServerMessageMetadata, SessionMessage
from mcp.shared.transport_context import TransportContext
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, ErrorData

from emceepee.clock import Clock
from emceepee.concurrency import companions
from emceepee.errors import ConnectionLost, EmceepeeError, PeerError, RequestTimedOut
from emceepee.wire.envelope import failure
from emceepee.wire.era import Era, HandshakeEra
from emceepee.wire.transport import (
    Channel,
    ChannelState,
    RequestId,
    Transport,
    is_transport_failure,
    was_never_taken,
)

__all__ = ["OnProgress", "Peer", "PeerHandler", "open_peer"]

logger = logging.getLogger(__name__)

JsonObject: TypeAlias = dict[str, Any]
OnProgress: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None]]

HANDSHAKE_PENDING = HandshakeEra("")
"""What a peer speaks before anything is negotiated: bare requests."""

UNUSED_IDS = 2**30
"""Ids of a connection that takes up a session begin in a random place from here on: far above those that count from 1,
far apart from those of others who took it up, and within 32 bits, since not every server takes more."""


HELD_OPEN = frozenset({"subscriptions/listen", "tasks/get", "tasks/result", "tasks/update"})
"""Requests that do not show that a server is busy: it is meant to hold them open, or is asked again anyway."""


class PeerHandler(Protocol):
    """What comes from the server. `related` is the id of the request of ours on whose response stream it came."""

    async def on_request(
        self, method: str, params: Mapping[str, Any], related: int | None, request_id: RequestId | None
    ) -> JsonObject:
        """Answer a request; cancelled if the server takes it back.

        Raises:
            PeerError: what the server is told instead of a result.
        """
        ...

    def on_notification(self, method: str, params: Mapping[str, Any], related: int | None) -> None:
        """Take a notification; called in the order of arrival, and must be quick."""
        ...

    def on_garbage(self, error: Exception) -> None:
        """Something arrived that is not JSON-RPC."""
        ...


class Peer:
    """Sends requests and notifications; `closed` is set when the connection has ended, for whatever reason."""

    def __init__(self, transport: Transport, channel: Channel, clock: Clock, handler: PeerHandler) -> None:
        self.transport = transport
        self.era: Era = HANDSHAKE_PENDING
        self.closed = anyio.Event()
        self.clock = clock
        self._handler = handler
        self._state = channel.state
        self._ids = count(1)
        self._in_flight = 0
        self._running = anyio.CancelScope()
        self.last_heard = clock.monotonic()
        """When the server last gave a sign of life."""
        self._write = channel.write
        self._heard = _Heard(channel.read)
        self._dispatcher: JSONRPCDispatcher[TransportContext] = JSONRPCDispatcher(
            self._heard, channel.write, on_stream_exception=self._on_stream_exception
        )

    @property
    def state(self) -> ChannelState:
        return self._state

    @property
    def is_over(self) -> bool:
        """Whether nothing can be sent any more, even if not everybody has been told yet."""
        return self.closed.is_set() or self._state.lost_reason is not None

    @property
    def lost_reason(self) -> str:
        return self._state.lost_reason or "the connection was closed"

    @property
    def is_idle(self) -> bool:
        """Whether the server works on nothing for us, as far as we know."""
        return self._in_flight == 0

    def new_request_id(self) -> int:
        """An id that the caller knows before the request is sent."""
        return next(self._ids)

    def avoid_used_ids(self) -> None:
        """Number requests from somewhere else: an earlier connection has used ids in the same session."""
        self._ids = count(secrets.randbelow(UNUSED_IDS) + UNUSED_IDS)

    def adopt(self, era: Era) -> None:
        """Speak `era` from now on."""
        self.era = era
        self._state.protocol_version = era.version

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        request_id: int | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        headers: Mapping[str, str] | None = None,
        era: Era | None = None,
    ) -> JsonObject:
        """Send a request and wait for its raw result; cancelling the caller cancels it at the server.

        Raises:
            PeerError: the server answered with an error.
            RequestTimedOut: no answer within `timeout` seconds; the server was told, if it was work for it.
            ConnectionLost: the connection went away, or the request could not be delivered.
        """
        outgoing = (era or self.era).dress(method, params)
        request_id = self.new_request_id() if request_id is None else request_id
        options = CallOptions(request_id=request_id)
        # Negotiation must not be cancelled; and what is asked about a task is not the task, which is ended by name.
        if method in ("initialize", "server/discover") or method.startswith("tasks/"):
            options["cancel_on_abandon"] = False
        if outgoing.headers or headers:
            options["headers"] = {**outgoing.headers, **(headers or {})}
        if on_progress is not None:
            options["on_progress"] = _as_progress_fn(on_progress)
        if timeout is None:
            return await self._send(method, outgoing.params, options)
        with self.clock.move_on_after(timeout):
            return await self._send(method, outgoing.params, options)
        if "cancel_on_abandon" in options:
            self.abandon(request_id)
        raise RequestTimedOut(method, timeout)

    async def refuse(self, request_id: RequestId, error: PeerError) -> None:
        """Answer a request of the server's that came over an earlier connection, in the same session."""
        facts = ErrorData(code=error.code, message=error.message, data=error.data)
        await self._write.send(failure(request_id, facts))

    def abandon(self, request_id: int) -> None:
        """Nobody waits for the response to a request any more; what the server is told of it is up to the caller."""
        self._state.on_abandoned(request_id)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification; one for a connection that is gone is dropped."""
        await self._dispatcher.notify(method, params)

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Carry messages until the channel ends."""
        try:
            with self._running:
                await self._dispatcher.run(
                    self._on_request, _ignore, on_notify_intercept=self._on_notify, task_status=task_status
                )
        finally:
            self.closed.set()

    def hang_up(self, reason: str) -> None:
        """Give the connection up: everybody who waits on it is told `reason`."""
        self._state.lost_reason = self._state.lost_reason or reason
        self._running.cancel()

    async def _send(self, method: str, params: JsonObject | None, options: CallOptions) -> JsonObject:
        work = 0 if method in HELD_OPEN else 1
        self._in_flight += work
        try:
            result = await self._dispatcher.send_raw_request(method, params, options)
            self.last_heard = self.clock.monotonic()
            return result
        except MCPError as error:
            if was_never_taken(error.error.data):
                raise ConnectionLost(error.error.message, was_taken=False) from None
            if error.code == CONNECTION_CLOSED and self._state.lost_reason is not None:
                raise ConnectionLost(self._state.lost_reason, was_taken=self._state.was_heard) from None
            if is_transport_failure(error.error.data) or (error.code == CONNECTION_CLOSED and self.closed.is_set()):
                raise ConnectionLost(error.error.message) from None
            self.last_heard = self.clock.monotonic()
            raise PeerError(error.code, error.error.message, error.error.data) from None
        finally:
            self._in_flight -= work

    async def _on_request(
        self, context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
    ) -> JsonObject:
        try:
            related = _related(context.message_metadata)
            return await self._handler.on_request(method, params or {}, related, context.request_id)
        except PeerError as error:
            raise MCPError(error.code, error.message, error.data) from None
        except EmceepeeError as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from None
        except Exception:
            # The SDK would answer with code 0 and the text of whatever broke in here.
            logger.exception("handler for %s failed", method)
            raise MCPError(INTERNAL_ERROR, "Internal error") from None

    def _on_notify(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """Take every notification right here: a task for each would cost more than all the rest of it."""
        self.last_heard = self.clock.monotonic()
        try:
            self._handler.on_notification(method, params or {}, self._heard.related)
        except Exception:
            logger.exception("handler for %s failed", method)
        return True

    async def _on_stream_exception(self, error: Exception) -> None:
        self._handler.on_garbage(error)


class _Heard:
    """The reading end of a channel, which remembers where the latest message came from."""

    def __init__(self, stream: ReadStream[SessionMessage | Exception]) -> None:
        self._stream = stream
        self.related: int | None = None

    async def receive(self) -> SessionMessage | Exception:
        item = await self._stream.receive()
        self.related = None if isinstance(item, Exception) else _related(item.metadata)
        return item

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


async def _ignore(_context: DispatchContext[TransportContext], _method: str, _params: Mapping[str, Any] | None) -> None:
    """What is left of notifications when they have been taken: nothing."""


def _related(metadata: MessageMetadata) -> int | None:
    if isinstance(metadata, ServerMessageMetadata) and isinstance(metadata.related_request_id, int):
        return metadata.related_request_id
    return None


def _as_progress_fn(on_progress: OnProgress) -> ProgressFnT:
    async def call(progress: float, total: float | None, message: str | None) -> None:
        await on_progress(progress, total, message)

    return call


@asynccontextmanager
async def open_peer(transport: Transport, clock: Clock, handler: PeerHandler) -> AsyncIterator[Peer]:
    """Open a connection and run it while the body runs; nothing is negotiated yet.

    Raises:
        ConnectFailed: there is nothing to connect to.
    """
    async with transport.open() as channel:
        peer = Peer(transport, channel, clock, handler)
        async with companions() as tasks:
            await tasks.start(peer.run)
            yield peer
