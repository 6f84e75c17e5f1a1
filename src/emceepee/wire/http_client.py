"""What both HTTP transports need of an HTTP client: its settings, and what a server's refusal means.

The client is `httpx2`'s; redirects are followed within the server's origin only, by the SDK's own helper.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from functools import cache

import anyio
import httpx2
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth
from mcp.shared._httpx_utils import redirect_note
from mcp_types import CONNECTION_CLOSED, ErrorData, JSONRPCError

from emceepee.errors import ConnectFailed
from emceepee.wire.envelope import decode
from emceepee.wire.transport import HTTP_STATUS

__all__ = [
    "CONNECT_TIMEOUT",
    "DELIVERY_TIMEOUT",
    "DRAIN_SECONDS",
    "NotAuthorized",
    "checked_url",
    "drain",
    "events_of",
    "http_client",
    "is_event_stream",
    "refusal",
    "shown_url",
    "tls",
    "trouble",
]

CONNECT_TIMEOUT = 10.0
"""A host that drops packets must not hold a call for the minutes that TCP would."""

KEEPALIVE_SECONDS = 3.0
"""Shorter than the 5 seconds after which uvicorn and Node close idle connections: a POST must not race with that."""

DELIVERY_TIMEOUT = httpx2.Timeout(CONNECT_TIMEOUT, read=60.0)
"""For messages that have no answer: the server has only to accept them, and stuck ones would pile up."""

DRAIN_SECONDS = 0.25
"""For the rest of a response that we need no more: read to its end, its TCP connection can be used again."""

UNAUTHORIZED = -32001
"""Code of the error that stands for HTTP 401 and 403; from the range that the protocol leaves to implementations."""

BODY_SHOWN = 200
"""Characters of an error page that people are shown."""

BODY_READ = 64 * 1024
"""Bytes of a refusal that are looked at; a JSON-RPC error is far smaller."""


class NotAuthorized(httpx2.RequestError):
    """The server wants an authorisation that we do not have; the text says what to do."""


@cache
def tls() -> ssl.SSLContext:
    """Reading the certificates takes tens of milliseconds: once per process, not once per connection."""
    return httpx2.create_ssl_context()


def http_client(target: str, headers: Mapping[str, str] | None, auth: httpx2.Auth | None = None) -> httpx2.AsyncClient:
    """A client without a limit on connections: every open call holds one while its questions are answered on others.

    Raises:
        ConnectFailed: the headers cannot be sent.
    """
    try:
        return httpx2.AsyncClient(
            headers=dict(headers or {}),
            auth=auth,
            verify=tls(),
            timeout=httpx2.Timeout(CONNECT_TIMEOUT, read=None, write=None, pool=None),
            limits=httpx2.Limits(keepalive_expiry=KEEPALIVE_SECONDS),
        )
    except UnicodeEncodeError as error:
        raise ConnectFailed(target, "a header has characters that HTTP cannot carry") from error


def checked_url(url: str) -> httpx2.URL:
    """`url`, parsed.

    Raises:
        ConnectFailed: there can be no server at such an address.
    """
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise ConnectFailed(shown_url(url), f"this is not a URL: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConnectFailed(shown_url(url), "this is not an http or https URL")
    return parsed


def shown_url(url: str) -> str:
    """`url` as people may see it: without user, password and query, where keys are kept as well."""
    try:
        return str(httpx2.URL(url).copy_with(userinfo=b"", query=None, fragment=None))
    except httpx2.InvalidURL:
        return "a URL that is none"


def is_event_stream(response: httpx2.Response) -> bool:
    content_type: str = response.headers.get("content-type", "")
    return content_type.partition(";")[0].strip().lower() == "text/event-stream"


async def events_of(response: httpx2.Response, max_event_bytes: int | None) -> AsyncGenerator[httpx2.ServerSentEvent]:
    """The events of `response`, as a generator that can be closed."""
    async for event in httpx2.EventSource(response, max_event_size=max_event_bytes):
        yield event


async def drain(response: httpx2.Response) -> None:
    """Read what is left of `response`, within reason, so that its connection goes back to the pool."""
    with anyio.move_on_after(DRAIN_SECONDS), suppress(httpx2.HTTPError):
        async for _ in response.aiter_raw():
            pass


async def refusal(response: httpx2.Response) -> ErrorData:
    """What a response that is no success says: the server's own JSON-RPC error, or one made from the status."""
    body = await _beginning(response)
    return _rpc_error(body) or _status_error(response, body)


async def _beginning(response: httpx2.Response) -> bytes:
    body = b""
    with anyio.move_on_after(CONNECT_TIMEOUT):
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > BODY_READ:
                break
    return body


def _rpc_error(body: bytes) -> ErrorData | None:
    try:
        messages = decode(body)
    except ValueError:
        return None
    return next((message.error for message in messages if isinstance(message, JSONRPCError)), None)


def _status_error(response: httpx2.Response, body: bytes) -> ErrorData:
    status = f"HTTP {response.status_code} {response.reason_phrase}".strip()
    data = {HTTP_STATUS: response.status_code}
    if response.status_code in (401, 403):
        return ErrorData(code=UNAUTHORIZED, message=f"the server answered {status}: {_remedy(response)}", data=data)
    page = " ".join(body.decode("utf-8", "replace").split())[:BODY_SHOWN]
    text = f"the server answered {status}{redirect_note(response)}" + (f": {page}" if page else "")
    return ErrorData(code=CONNECTION_CLOSED, message=text, data=data)


def _remedy(response: httpx2.Response) -> str:
    scopes = extract_scope_from_www_auth(response)
    if scopes is not None and extract_field_from_www_auth(response, "error") == "insufficient_scope":
        wanted = ", ".join(f'"{scope}"' for scope in scopes.split())
        return f"it needs more scopes: set oauth.scopes of its entry to [{wanted}], and run `emceepee login` again"
    return "it needs credentials, such as an Authorization header"


def trouble(error: httpx2.HTTPError) -> str:
    """What went wrong on the way, in a few words for people."""
    match error:
        case NotAuthorized():
            return str(error)
        case httpx2.ConnectTimeout():
            return f"the server cannot be reached within {CONNECT_TIMEOUT:g} s"
        case httpx2.ConnectError():
            return f"the server cannot be reached: {error}"
        case _:
            return f"the connection to the server failed: {str(error) or type(error).__name__}"
