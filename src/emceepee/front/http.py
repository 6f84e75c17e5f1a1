"""The Streamable HTTP front for handshake clients, as an ASGI application.

`POST` carries a message, `GET` holds a stream open for the session, `DELETE` ends the session. One `ClientSession`
stands for each `Mcp-Session-Id`; the hub's session behind it outlives every single connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import anyio
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.requests import Request as HttpRequest
from starlette.types import Receive, Scope, Send

from emceepee.config import HttpSettings
from emceepee.errors import PeerError, SessionClosed
from emceepee.front.endpoint import Endpoint
from emceepee.front.exchange import PING, SSE_HEADERS, Exchange, send_body, send_json
from emceepee.front.jsonrpc import Notification, Request, error_message, parse, result_message
from emceepee.front.served import ServedRequest, cancelled
from emceepee.hub import Hub, Session
from emceepee.hub.hub import TooManySessions
from emceepee.observe import CONTENT_TYPE, Metrics

__all__ = ["HttpFront"]

JsonObject: TypeAlias = dict[str, Any]

SESSION_NOT_FOUND = PeerError(INVALID_REQUEST, "Session not found: initialize again")


class BadRequest(Exception):
    """Refused before it reached a session: an HTTP status and what to say."""

    def __init__(self, status: int, error: PeerError, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        self.status = status
        self.error = error
        self.headers = headers
        super().__init__(str(error))


class ClientSession:
    """A hub's session as it is served over HTTP: the requests that are under way in it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.served: dict[str | int, ServedRequest] = {}

    def cancel(self, params: Mapping[str, Any]) -> None:
        """`notifications/cancelled`; one for a request that was answered already is ignored."""
        cancelled(self.served, params)


class HttpFront:
    """`/mcp` for clients, `/healthz` and `/metrics` for whoever watches over us."""

    def __init__(self, hub: Hub, settings: HttpSettings, metrics: Metrics | None = None) -> None:
        self._metrics = metrics
        self._hub = hub
        self._settings = settings
        self._endpoint = Endpoint(hub, may_spawn=settings.allow_spawn)
        self._security = TransportSecurityMiddleware(_allowed(settings))
        self._sessions: dict[str, ClientSession] = {}
        self._stopping = anyio.Event()

    def stop(self) -> None:
        """End every open stream and request, so that the HTTP server can close its connections."""
        self._stopping.set()
        for client in self._sessions.values():
            for served in tuple(client.served.values()):
                served.end("timed_out")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served here, not {scope['type']}")
        try:
            await self._route(scope, receive, send)
        except BadRequest as refusal:
            await send_json(send, error_message(None, refusal.error), refusal.status, refusal.headers)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"].rstrip("/"), scope["method"]
        if path == "/healthz":
            await send_json(send, {"status": "ok", "sessions": len(self._hub.sessions)})
            return
        if path == "/metrics" and self._metrics is not None:
            await send_body(send, self._metrics.exposition(), CONTENT_TYPE)
            return
        if path != "/mcp":
            raise BadRequest(404, PeerError(INVALID_REQUEST, "Not found: the MCP endpoint is /mcp"))
        handlers: dict[str, Callable[[Headers, Receive, Send], Awaitable[None]]] = {
            "POST": self._post,
            "GET": self._get,
            "DELETE": self._delete,
        }
        if method not in handlers:
            allow = ((b"allow", b"GET, POST, DELETE"),)
            raise BadRequest(405, PeerError(INVALID_REQUEST, "Method not allowed"), allow)
        refused = await self._security.validate_request(HttpRequest(scope), is_post=method == "POST")
        if refused is not None:
            raise BadRequest(refused.status_code, PeerError(INVALID_REQUEST, bytes(refused.body).decode()))
        await handlers[method](Headers(scope=scope), receive, send)

    # The three verbs

    async def _post(self, headers: Headers, receive: Receive, send: Send) -> None:
        _check_accept(headers, "application/json", "text/event-stream")
        _check_version(headers)
        body = await _read_body(headers, receive, self._settings.max_body_bytes)
        try:
            message = parse(body)
        except PeerError as error:
            raise BadRequest(400, error) from None
        if isinstance(message, Request) and message.method == "initialize":
            await self._initialize(message, send)
            return
        client = self._find(headers)
        if isinstance(message, Request):
            await self._serve(client, message, receive, send)
            return
        if isinstance(message, Notification) and message.method == "notifications/cancelled":
            client.cancel(message.params)
        await send_json(send, None, 202)

    async def _get(self, headers: Headers, receive: Receive, send: Send) -> None:
        """A stream for what belongs to no request; nothing does yet, but clients take its end for ours."""
        _check_accept(headers, "text/event-stream")
        _check_version(headers)
        session = self._find(headers).session
        with session.in_use():
            await send({"type": "http.response.start", "status": 200, "headers": list(SSE_HEADERS)})
            await self._until_over(session, receive, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _delete(self, headers: Headers, receive: Receive, send: Send) -> None:
        client = self._find(headers)
        self._forget(client)
        client.session.close()
        # Once we have said that it is over, it must not come back.
        await client.session.durable()
        await send_json(send, None, 200)

    # Sessions

    async def _initialize(self, request: Request, send: Send) -> None:
        try:
            result = self._endpoint.initialize(request.params)
            session = await self._hub.open_session()
        except (TooManySessions, SessionClosed) as error:
            raise BadRequest(503, PeerError(INTERNAL_ERROR, str(error))) from None
        except PeerError as error:
            await send_json(send, error_message(request.id, error), 400)
            return
        self._admit(session)
        header = ((b"mcp-session-id", session.id.encode()),)
        await send_json(send, result_message(request.id, result), 200, header)

    def _find(self, headers: Headers) -> ClientSession:
        session_id = headers.get("mcp-session-id")
        if session_id is None:
            raise BadRequest(400, PeerError(INVALID_REQUEST, "Missing Mcp-Session-Id: initialize first"))
        client = self._sessions.get(session_id)
        if client is None and (session := self._hub.sessions.get(session_id)) is not None:
            # It was opened before a restart, and its client has come back.
            client = self._admit(session)
        if client is None or client.session.is_closing:
            raise BadRequest(404, SESSION_NOT_FOUND)
        return client

    def _admit(self, session: Session) -> ClientSession:
        client = self._sessions[session.id] = ClientSession(session)
        session.on_closed(lambda: self._sessions.pop(session.id, None))
        return client

    def _forget(self, client: ClientSession) -> None:
        self._sessions.pop(client.session.id, None)
        for served in tuple(client.served.values()):
            served.end("cancelled")

    # Serving

    async def _serve(self, client: ClientSession, request: Request, receive: Receive, send: Send) -> None:
        if request.id in client.served:
            raise BadRequest(400, PeerError(INVALID_REQUEST, f"Request id {request.id!r} is in use"))
        exchange = Exchange(
            request.id,
            request.params,
            receive=receive,
            send=send,
            clock=self._hub.clock,
            keepalive=self._settings.keepalive_seconds,
        )
        client.served[request.id] = exchange.request
        try:
            await exchange.run(lambda served: self._endpoint.respond(client.session, request, served))
        finally:
            del client.served[request.id]

    async def _until_over(self, session: Session, receive: Receive, send: Send) -> None:
        """Hold a stream open until the client goes, the session ends or we stop."""
        async with anyio.create_task_group() as tasks:

            async def watch_client() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                tasks.cancel_scope.cancel()

            async def watch(event: anyio.Event) -> None:
                await event.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch_client)
            tasks.start_soon(watch, session.closed)
            tasks.start_soon(watch, self._stopping)
            while True:
                await send({"type": "http.response.body", "body": PING, "more_body": True})
                with self._hub.clock.move_on_after(self._settings.keepalive_seconds):
                    await anyio.sleep_forever()


def _allowed(settings: HttpSettings) -> TransportSecuritySettings:
    """Loopback names with any port, and the host that we were told to bind: anything else is DNS rebinding."""
    hosts = ["127.0.0.1", "localhost", "[::1]", settings.host]
    return TransportSecuritySettings(
        allowed_hosts=[pattern for host in hosts for pattern in (host, f"{host}:*")],
        allowed_origins=[
            pattern for host in hosts for scheme in ("http", "https") for pattern in _origins(scheme, host)
        ],
    )


def _origins(scheme: str, host: str) -> tuple[str, str]:
    return f"{scheme}://{host}", f"{scheme}://{host}:*"


def _check_accept(headers: Headers, *wanted: str) -> None:
    accepted = headers.get("accept", "")
    kinds = {part.split(";")[0].strip().lower() for part in accepted.split(",")}
    for kind in wanted:
        if not kinds & {kind, "*/*", kind.split("/")[0] + "/*"}:
            raise BadRequest(406, PeerError(INVALID_REQUEST, f"Not acceptable: the client must accept {kind}"))


def _check_version(headers: Headers) -> None:
    version = headers.get("mcp-protocol-version")
    if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
        data = {"supported": list(HANDSHAKE_PROTOCOL_VERSIONS), "requested": version}
        raise BadRequest(400, PeerError(UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", data))


async def _read_body(headers: Headers, receive: Receive, limit: int) -> bytes:
    too_large = BadRequest(413, PeerError(INVALID_REQUEST, f"The request body is larger than {limit} bytes"))
    declared = headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise too_large
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BadRequest(400, PeerError(INVALID_REQUEST, "The request body ended early"))
        body += message.get("body", b"")
        if len(body) > limit:
            raise too_large
        if not message.get("more_body", False):
            return bytes(body)
