"""Handshake clients over HTTP: `POST` carries a message, `GET` holds or resumes a stream, `DELETE` ends the session."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import anyio
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST
from starlette.datastructures import Headers
from starlette.types import Receive, Send

from emceepee.config import Patience
from emceepee.errors import PeerError, SessionClosed
from emceepee.front.batch import serve_batch
from emceepee.front.client import ClientFacts
from emceepee.front.event_ids import STANDALONE, EventId, read_event_id
from emceepee.front.exchange import Answer, Exchange, Posted, send_json
from emceepee.front.handshake import HandshakeClient, open_client
from emceepee.front.jsonrpc import BATCHING, Batch, Message, Request, error_message, no_batch, result_message
from emceepee.front.refusals import Refused
from emceepee.front.replay import Replay, ReplayBuffer
from emceepee.front.service import Service
from emceepee.front.streams import EventStream, watch_for_disconnect
from emceepee.hub import Hub, Session
from emceepee.hub.hub import TooManySessions

__all__ = ["HandshakeHttp"]

JsonObject: TypeAlias = dict[str, Any]

SESSION_NOT_FOUND = PeerError(INVALID_REQUEST, "Session not found: initialize again")


MAX_GIVEN_UP = 1000
"""Requests of a session that nobody came back for in time, and that somebody may still come back for."""


@dataclass(frozen=True, slots=True)
class _GivenUp:
    """A request whose client was away for too long, and the task that its work goes on as."""

    request: Request
    task_id: str | None


@dataclass(slots=True)
class _HttpClient:
    """A client with the streams that it reads, and what it may have missed of them."""

    client: HandshakeClient
    buffer: ReplayBuffer
    streams: dict[int, EventStream]
    """Those that something may still be sent on."""
    given_up: OrderedDict[int, _GivenUp] = field(default_factory=OrderedDict)
    """What was to be answered on streams that have ended without a response."""
    standalone: EventStream | None = None

    @property
    def session(self) -> Session:
        return self.client.session

    def give_up(self, stream: int, request: _GivenUp) -> None:
        self.buffer.empty(stream)
        self.given_up[stream] = request
        if len(self.given_up) > MAX_GIVEN_UP:
            oldest, _ = self.given_up.popitem(last=False)
            self.buffer.forget(oldest)


class HandshakeHttp:
    """One client for each `Mcp-Session-Id`; the hub's session behind it outlives every single connection."""

    def __init__(self, hub: Hub, patience: Patience, *, may_spawn: bool) -> None:
        self._hub = hub
        self._patience = patience
        self._may_spawn = may_spawn
        self._clients: dict[str, _HttpClient] = {}
        self._stopping = anyio.Event()

    def stop(self) -> None:
        self._stopping.set()
        for known in self._clients.values():
            for served in tuple(known.client.served.values()):
                served.on_stop()

    async def post(self, service: Service, principal: str, posted: Posted) -> None:
        message = posted.message
        if isinstance(message, Request) and message.method == "initialize":
            await self._initialize(service, principal, message, posted.send)
            return
        known = self._find(service, principal, posted.headers)
        if isinstance(message, Request):
            await self._serve(known, message, posted)
            return
        await known.client.take(message)
        await send_json(posted.send, None, 202)

    async def post_batch(
        self, service: Service, principal: str, batch: Batch, headers: Headers, *, receive: Receive, send: Send
    ) -> None:
        agreed = self._find(service, principal, headers).client.facts.version
        if agreed != BATCHING or headers.get("mcp-protocol-version", agreed) != agreed:
            raise Refused(400, no_batch())

        async def serve(message: Message, receive: Receive, send: Send) -> None:
            await self.post(service, principal, Posted(message, headers, receive, send))

        await serve_batch(batch, serve, receive, send)

    async def get(self, service: Service, principal: str, headers: Headers, receive: Receive, send: Send) -> None:
        """A stream for what belongs to no request; or, with `Last-Event-ID`, the rest of one that was cut off."""
        known = self._find(service, principal, headers)
        last_event_id = headers.get("last-event-id", "")
        event = read_event_id(last_event_id)
        with known.session.in_use():
            if event is None or event.label == STANDALONE:
                replay = known.buffer.after(last_event_id)
                await self._hold_standalone(known, replay or Replay(0, ()), receive, send)
            else:
                await self._resume(known, event, receive, send)

    async def delete(self, service: Service, principal: str, headers: Headers, send: Send) -> None:
        known = self._find(service, principal, headers)
        self._clients.pop(known.session.id, None)
        for served in tuple(known.client.served.values()):
            served.end("cancelled")
        known.session.close()
        # Once we have said that it is over, it must not come back.
        await known.session.durable()
        await send_json(send, None, 200)

    # Sessions

    async def _initialize(self, service: Service, principal: str, request: Request, send: Send) -> None:
        try:
            client, result = await open_client(
                self._hub, service, request.params, principal=principal, may_spawn=self._may_spawn
            )
        except (TooManySessions, SessionClosed) as error:
            raise Refused(503, PeerError(INTERNAL_ERROR, str(error)), request_id=request.id) from None
        except PeerError as error:
            # Many clients show the error of a response only where the status says that there is one to read.
            await send_json(send, error_message(request.id, error), 200 if error.code == INTERNAL_ERROR else 400)
            return
        self._admit(client)
        header = ((b"mcp-session-id", client.session.id.encode()),)
        await send_json(send, result_message(request.id, result), 200, header)

    def _find(self, service: Service, principal: str, headers: Headers) -> _HttpClient:
        session_id = headers.get("mcp-session-id")
        if session_id is None:
            raise Refused(400, PeerError(INVALID_REQUEST, "Missing Mcp-Session-Id: initialize first"))
        session = self._hub.sessions.get(session_id)
        if session is None or session.is_closing or not _belongs(session, service, principal):
            raise Refused(404, SESSION_NOT_FOUND)
        if (known := self._clients.get(session_id)) is not None:
            return known
        # It was opened before a restart, and its client has come back.
        facts = ClientFacts.from_json(session.origin.client)
        return self._admit(HandshakeClient(self._hub, session, facts, service, may_spawn=self._may_spawn))

    def _admit(self, client: HandshakeClient) -> _HttpClient:
        session = client.session
        known = self._clients[session.id] = _HttpClient(client, ReplayBuffer(secrets.token_hex(4)), {})
        session.on_closed(lambda: self._clients.pop(session.id, None))
        return known

    # Serving

    async def _serve(self, known: _HttpClient, request: Request, posted: Posted) -> None:
        client = known.client
        if request.id in client.served:
            error = PeerError(INVALID_REQUEST, f"Request id {request.id!r} is in use")
            raise Refused(400, error, request_id=request.id)
        exchange = self._exchange(
            known, request, posted.receive, posted.send, streams_at_once=client.service.streams_at_once
        )
        client.served[request.id] = exchange.request
        await self._run(known, exchange, request, lambda served: client.respond(request, served))

    def _exchange(
        self,
        known: _HttpClient,
        request: Request,
        receive: Receive,
        send: Send,
        *,
        streams_at_once: bool,
        stream: int | None = None,
    ) -> Exchange:
        return Exchange(
            request.id,
            request.params,
            client=known.client.facts,
            receive=receive,
            send=send,
            clock=self._hub.clock,
            patience=self._patience,
            buffer=known.buffer,
            asking=known.client.asking,
            stopping=self._stopping,
            streams_at_once=streams_at_once,
            stream=stream,
        )

    async def _run(
        self, known: _HttpClient, exchange: Exchange, request: Request, answer: Answer, task_id: str | None = None
    ) -> None:
        number = exchange.stream.number
        known.streams[number] = exchange.stream
        try:
            await exchange.run(answer)
        finally:
            known.client.release(exchange.request)
            del known.streams[number]
            if exchange.was_sent and exchange.stream.can_resume:
                known.buffer.close(number)
            elif exchange.was_given_up:
                # What has not been told goes on as a task, and is told there; or to a client that is very late.
                known.give_up(number, _GivenUp(request, exchange.request.task_id() or task_id))
            else:
                known.buffer.forget(number)

    async def _take_up(self, known: _HttpClient, stream: int, left: _GivenUp, receive: Receive, send: Send) -> None:
        """Answer a request after all."""
        client, request = known.client, left.request
        exchange = self._exchange(known, request, receive, send, streams_at_once=True, stream=stream)
        # Its id may be another request's by now, which then is the one to be cancelled by it.
        client.served.setdefault(request.id, exchange.request)
        await self._run(
            known, exchange, request, lambda served: client.take_up(request, served, left.task_id), left.task_id
        )

    async def _resume(self, known: _HttpClient, event: EventId, receive: Receive, send: Send) -> None:
        """The rest of a response: still being made, written to nobody, given up, or lost with the hub before us."""
        number = known.buffer.stream_of(str(event))
        if number is not None and (left := known.given_up.pop(number, None)) is not None:
            await self._take_up(known, number, left, receive, send)
            return
        missed = known.buffer.after(str(event))
        stream = None if missed is None else known.streams.get(missed.stream)
        if stream is None:
            is_lost = missed is None or missed.lacks_response
            stream = EventStream()
            stream.finish(_loss_of(event, known, was_ours=number is not None) if is_lost else None)
            missed = None if is_lost else missed
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_at_disconnect, receive, tasks.cancel_scope)
            await stream.pump(send, missed)
            tasks.cancel_scope.cancel()

    async def _hold_standalone(self, known: _HttpClient, replay: Replay, receive: Receive, send: Send) -> None:
        """Until the client goes, the session ends or we stop."""
        if known.standalone is None:
            known.standalone = EventStream(known.buffer, primes=known.client.facts.understands_resuming)
            known.client.standalone = known.standalone.post
        stream = known.standalone
        known.client.is_listening = lambda: stream.is_attached
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_at_disconnect, receive, tasks.cancel_scope)
            tasks.start_soon(_finish_after, known.session.closed, stream)
            tasks.start_soon(_finish_after, self._stopping, stream)
            tasks.start_soon(self._keep_alive, stream)
            await stream.pump(send, replay)
            tasks.cancel_scope.cancel()

    async def _keep_alive(self, stream: EventStream) -> None:
        while True:
            stream.ping()
            with self._hub.clock.move_on_after(self._patience.keepalive):
                await anyio.sleep_forever()


def _loss_of(event: EventId, known: _HttpClient, *, was_ours: bool) -> JsonObject:
    """The end of a request whose response nobody has; if its work went on, whoever has our tools can look for it."""
    what = (
        "The response to this request was not kept"
        if was_ours
        else "The hub was restarted, and the request was cut off"
    )
    remedy = "it may have been carried out all the same"
    if not known.client.service.endpoint:
        remedy = "list_tasks and await_activity tell what became of a call"
    return error_message(event.request_id, PeerError(INTERNAL_ERROR, f"{what}: {remedy}"))


def _belongs(session: Session, service: Service, principal: str) -> bool:
    origin = session.origin
    return origin.principal == principal and origin.endpoint == service.endpoint and origin.workspace is None


async def _cancel_at_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    await watch_for_disconnect(receive)
    scope.cancel()


async def _finish_after(event: anyio.Event, stream: EventStream) -> None:
    await event.wait()
    stream.finish()
