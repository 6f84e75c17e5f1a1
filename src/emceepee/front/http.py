"""The HTTP front as an ASGI application: what faces clients, on the paths that they know.

`/mcp` is the hub's own tools, `/mcp/server/{name}` one server as it is, `/mcp/all` all of them; clients of both eras on
each. `/` says so to people; `/healthz` and `/metrics` are for whoever watches over us.
"""

from __future__ import annotations

from typing import Any, TypeAlias
from urllib.parse import parse_qs

from mcp_types import INVALID_REQUEST, PROTOCOL_VERSION_META_KEY, UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS, SUPPORTED_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from emceepee.config import HttpSettings
from emceepee.errors import PeerError
from emceepee.front.exchange import Posted, send_body, send_json
from emceepee.front.gate import Gate, OpenGate
from emceepee.front.handshake_http import HandshakeHttp
from emceepee.front.hint import is_browser, send_hint
from emceepee.front.hosts import HostCheck
from emceepee.front.jsonrpc import BadMessage, Batch, Message, Request, RequestId, error_message, parse
from emceepee.front.modern_http import ModernHttp
from emceepee.front.refusals import Refused
from emceepee.front.service import Service
from emceepee.front.services import Services
from emceepee.hub import Hub
from emceepee.observe import CONTENT_TYPE, Metrics
from emceepee.protocol import meta_of

__all__ = ["HttpFront"]

JsonObject: TypeAlias = dict[str, Any]

METHODS = ("GET", "POST", "DELETE")


class HttpFront:
    def __init__(
        self, hub: Hub, settings: HttpSettings, metrics: Metrics | None = None, gate: Gate | None = None
    ) -> None:
        self._hub = hub
        self._settings = settings
        self._metrics = metrics
        self._gate = gate or OpenGate()
        self._services = Services(hub)
        self._hosts = HostCheck(settings)
        self._handshake = HandshakeHttp(hub, settings.patience, may_spawn=settings.allow_spawn)
        self._modern = ModernHttp(hub, settings.patience, may_spawn=settings.allow_spawn)

    def stop(self) -> None:
        """End every open stream and request, so that the HTTP server can close its connections."""
        self._handshake.stop()
        self._modern.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served here, not {scope['type']}")
        try:
            await self._route(scope, receive, send)
        except Refused as refusal:
            message = error_message(refusal.request_id, refusal.error)
            await send_json(send, message, refusal.status, refusal.headers)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"].rstrip("/"), scope["method"]
        if method == "GET" and (document := self._gate.documents.get(path)) is not None:
            # Clients that are web pages have to read it before they have any credentials.
            await send_json(send, document, 200, ((b"access-control-allow-origin", b"*"),))
            return
        await self._hosts.check(scope)
        if path == "" and method in ("GET", "HEAD"):
            await send_hint(send)
            return
        if path == "/healthz":
            await send_json(send, {"status": "ok", "sessions": len(self._hub.sessions)})
            return
        if path == "/metrics" and self._metrics is not None:
            await self._gate.principal_of(scope)
            await send_body(send, self._metrics.exposition(), CONTENT_TYPE)
            return
        if path != "/mcp" and not path.startswith("/mcp/"):
            raise _not_found("the MCP endpoint is /mcp")
        if method not in METHODS:
            allow = ((b"allow", ", ".join(METHODS).encode()),)
            raise Refused(405, PeerError(INVALID_REQUEST, "Method not allowed"), allow)
        principal = await self._gate.principal_of(scope)
        service = self._services.find(path.removeprefix("/mcp").lstrip("/"), principal)
        if service is None:
            names = ", ".join(config.name for config in self._hub.registry.of(principal)) or "none"
            raise _not_found(f"there are /mcp, /mcp/all, and /mcp/server/{{name}} for these servers: {names}")
        await self._serve(service, principal, scope, receive, send)

    async def _serve(self, service: Service, principal: str, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        version = headers.get("mcp-protocol-version")
        if scope["method"] != "POST":
            if version in MODERN_PROTOCOL_VERSIONS:
                refusal = PeerError(INVALID_REQUEST, f"In {version} there is only POST")
                raise Refused(405, refusal, ((b"allow", b"POST"),))
            _check_version(version)
            if scope["method"] == "GET" and is_browser(headers):
                await send_hint(send, 406)
            elif scope["method"] == "GET":
                _check_accept(headers, "text/event-stream")
                await self._handshake.get(service, principal, headers, receive, send)
            else:
                await self._handshake.delete(service, principal, headers, send)
            return
        _check_accept(headers, "application/json", "text/event-stream")
        body = await _read_body(headers, receive, self._settings.max_body_bytes)
        try:
            message = parse(body)
        except BadMessage as error:
            raise Refused(400, error, request_id=error.request_id) from None
        if isinstance(message, Batch):
            await self._handshake.post_batch(service, principal, message, headers, receive=receive, send=send)
        elif _is_modern(version, message):
            workspace = parse_qs(scope["query_string"].decode("latin-1")).get("workspace", [None])[-1]
            await self._modern.post(
                service, Posted(message, headers, receive, send), principal=principal, workspace=workspace
            )
        else:
            _check_version(version, message.id if isinstance(message, Request) else None)
            await self._handshake.post(service, principal, Posted(message, headers, receive, send))


def _is_modern(version: str | None, message: Message) -> bool:
    """Whether a message speaks the modern era, by its header or by what it says of itself."""
    if version in MODERN_PROTOCOL_VERSIONS:
        return True
    if not isinstance(message, Request):
        return False
    meta = meta_of(message.params)
    if version in HANDSHAKE_PROTOCOL_VERSIONS:
        # One that contradicts its header: this era has an error for that.
        return meta.get(PROTOCOL_VERSION_META_KEY) in MODERN_PROTOCOL_VERSIONS
    return PROTOCOL_VERSION_META_KEY in meta


def _not_found(text: str) -> Refused:
    return Refused(404, PeerError(INVALID_REQUEST, f"Not found: {text}"))


def _check_accept(headers: Headers, *wanted: str) -> None:
    accepted = headers.get("accept", "")
    kinds = {part.split(";")[0].strip().lower() for part in accepted.split(",")}
    for kind in wanted:
        if not kinds & {kind, "*/*", kind.split("/")[0] + "/*"}:
            raise Refused(406, PeerError(INVALID_REQUEST, f"Not acceptable: the client must accept {kind}"))


def _check_version(version: str | None, request_id: RequestId | None = None) -> None:
    if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
        data = {"supported": list(SUPPORTED_PROTOCOL_VERSIONS), "requested": version}
        error = PeerError(UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", data)
        raise Refused(400, error, request_id=request_id)


async def _read_body(headers: Headers, receive: Receive, limit: int) -> bytes:
    too_large = Refused(413, PeerError(INVALID_REQUEST, f"The request body is larger than {limit} bytes"))
    declared = headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise too_large
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, PeerError(INVALID_REQUEST, "The request body ended early"))
        body += message.get("body", b"")
        if len(body) > limit:
            raise too_large
        if not message.get("more_body", False):
            return bytes(body)
