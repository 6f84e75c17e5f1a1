"""Streamable HTTP towards a server, in both eras.

Owns the POSTs, the session id and the headers; `outbox.py` decides which POSTs run when, `http_stream.py` reads event
streams and resumes them. Ours rather than the SDK's, which lets one failed POST end the connection, opens a TCP
connection for each call and does not notice the death of an idle server.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
import httpx2
from mcp.shared._httpx_utils import request_within_origin, stream_within_origin
from mcp_types import METHOD_NOT_FOUND, JSONRPCRequest, RequestId
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from emceepee.clock import Clock, SystemClock
from emceepee.wire.ends import ChannelEnd, carry
from emceepee.wire.envelope import encode, undelivered
from emceepee.wire.http_client import (
    CONNECT_TIMEOUT,
    DELIVERY_TIMEOUT,
    checked_url,
    drain,
    http_client,
    is_event_stream,
    refusal,
    shown_url,
    trouble,
)
from emceepee.wire.http_stream import SESSION_GONE, Reply, ServerStream
from emceepee.wire.outbox import Outbox, Posting
from emceepee.wire.transport import Channel, TransportKind

__all__ = ["HttpTransport"]

logger = logging.getLogger(__name__)

ACCEPT = "application/json, text/event-stream"
"""The protocol wants both on a POST, and the server to choose."""

GOODBYE_SECONDS = 1.0
"""For the DELETE that ends a session: a courtesy, which a dead server must not make slow."""

PING_TIMEOUT = httpx2.Timeout(CONNECT_TIMEOUT)
"""For the ping that shows whether a session is known: a server that hangs must not hold the refusal back for long."""


class HttpTransport:
    """Reaches a server at `url`. `headers` go with every request, beneath those of the protocol."""

    kind: TransportKind = "http"

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        max_event_bytes: int | None = None,
        clock: Clock | None = None,
        auth: httpx2.Auth | None = None,
        session_id: str | None = None,
    ) -> None:
        """With `session_id`, channels take up a session that an earlier one left at the server."""
        self._url = url
        self._session_id = session_id
        self._headers = headers
        self._max_event_bytes = max_event_bytes
        self._clock = clock or SystemClock()
        self._auth = auth

    @property
    def target(self) -> str:
        return shown_url(self._url)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Channel]:
        url = checked_url(self._url)
        async with http_client(self.target, self._headers, self._auth) as client:
            connection = _Connection(client, url, ChannelEnd(self._clock), self._clock, self._max_event_bytes)
            if self._session_id is not None:
                connection.take_up(self._session_id)
            async with carry(connection.end, connection.run, connection.goodbye) as channel:
                yield channel


class _Connection:
    """One channel to the server: any number of TCP connections, at most one session."""

    def __init__(
        self, client: httpx2.AsyncClient, url: httpx2.URL, end: ChannelEnd, clock: Clock, max_event_bytes: int | None
    ) -> None:
        self.end = end
        self._client = client
        self._url = url
        self._clock = clock
        self._max_event_bytes = max_event_bytes
        self._outbox = Outbox(end, clock, self._post, is_modern=self._is_modern)
        self._replies: set[Reply] = set()
        self._server_stream = ServerStream(end, clock, self._get, self._replies, max_event_bytes)
        self._initialized = anyio.Event()
        self._is_unproven = False
        """Whether we have a session of which we do not know yet that the server still knows it."""

    def take_up(self, session_id: str) -> None:
        """Speak in a session that was begun on an earlier channel."""
        self.end.state.session_id = session_id
        # Ours to end only once whoever closes us says so: to look in vain must not cost what lives in it.
        self.end.state.leaves_session = True
        self._is_unproven = True

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen)
            await self._outbox.run(tasks)

    async def goodbye(self) -> None:
        """End the session at the server, if there is one that it may still know."""
        state = self.end.state
        if state.session_id is None or state.leaves_session or state.lost_reason is not None:
            return
        with anyio.move_on_after(GOODBYE_SECONDS):
            try:
                await request_within_origin(self._client, "DELETE", self._url, headers=self._headers())
            except httpx2.HTTPError as error:
                logger.debug("the session was not ended: %s", error)

    async def _listen(self) -> None:
        await self._initialized.wait()
        await self._server_stream.run()

    def _get(self, headers: dict[str, str]) -> AbstractAsyncContextManager[httpx2.Response]:
        return stream_within_origin(self._client, "GET", self._url, headers=self._headers(headers))

    async def _post(self, posting: Posting) -> None:
        message = posting.item.message
        if isinstance(message, JSONRPCRequest):
            await self._request(message, posting)
            return
        async with self._posted(posting, DELIVERY_TIMEOUT) as response:
            if response.is_success:
                await drain(response)
            else:
                await self._refused(posting, response)

    async def _request(self, message: JSONRPCRequest, posting: Posting) -> None:
        reply = Reply(message.id, self.end, self._clock, self._get, self._max_event_bytes)
        self._replies.add(reply)
        try:
            await self._converse(reply, posting)
        finally:
            self._replies.discard(reply)

    async def _converse(self, reply: Reply, posting: Posting) -> None:
        async with self._posted(posting, self._client.timeout) as response:
            if not response.is_success:
                await self._refused(posting, response)
                return
            if not is_event_stream(response):
                await reply.read_body(response)
                return
            await reply.read_stream(response)
        if not posting.modern and not posting.cancelled:
            await reply.resume()
        await reply.fail(undelivered("the response stream ended before the response"))

    @asynccontextmanager
    async def _posted(self, posting: Posting, timeout: httpx2.Timeout) -> AsyncGenerator[httpx2.Response]:
        """The answer to the POST of a message, from its headers on."""
        body, headers = encode(posting.item.message), self._posting_headers(posting)
        async with stream_within_origin(
            self._client, "POST", self._url, content=body, headers=headers, timeout=timeout
        ) as response:
            session_id = response.headers.get("mcp-session-id")
            if session_id and response.is_success and not posting.modern:
                self.end.state.session_id = session_id
            if posting.method == "notifications/initialized" or (self._is_unproven and response.is_success):
                self._is_unproven = False
                self._initialized.set()
            posting.accepted.set()
            yield response

    async def _refused(self, posting: Posting, response: httpx2.Response) -> None:
        if self.end.state.session_id is not None and not posting.modern and await self._is_gone(posting, response):
            await self.end.fail(posting.item, undelivered(SESSION_GONE, was_taken=False))
            self.end.lose(SESSION_GONE)
        else:
            await self.end.fail(posting.item, await refusal(response))

    async def _is_gone(self, posting: Posting, response: httpx2.Response) -> bool:
        """Whether a refusal is about our session: 404, and 400 of many servers to one that they do not know."""
        if response.status_code != 400 or self._is_unproven:
            return response.status_code in (400, 404)
        message = posting.item.message
        return isinstance(message, JSONRPCRequest) and await self._is_ping_refused(message.id)

    async def _is_ping_refused(self, request_id: RequestId) -> bool:
        """Whether a ping fares like the request, about which 400 leaves open if it was the request or the session."""
        ping = JSONRPCRequest(jsonrpc="2.0", id=f"ping-after-{request_id}", method="ping")
        headers = self._headers({"content-type": "application/json"})
        try:
            async with stream_within_origin(
                self._client, "POST", self._url, content=encode(ping), headers=headers, timeout=PING_TIMEOUT
            ) as response:
                if response.status_code in (400, 404):
                    # One that does not know the method has looked at it, so that it knows the session.
                    return (await refusal(response)).code != METHOD_NOT_FOUND
                await drain(response)
        except httpx2.HTTPError as error:
            logger.debug("whether the session is known could not be asked: %s", trouble(error))
        return False

    def _headers(self, more: Mapping[str, str] | None = None) -> httpx2.Headers:
        state = self.end.state
        headers = httpx2.Headers({"accept": ACCEPT})
        if state.protocol_version is not None:
            headers["mcp-protocol-version"] = state.protocol_version
        if state.session_id is not None:
            headers["mcp-session-id"] = state.session_id
        headers.update(more)
        return headers

    def _posting_headers(self, posting: Posting) -> httpx2.Headers:
        headers = self._headers({"content-type": "application/json"})
        if posting.modern:
            headers.pop("mcp-session-id", None)
        headers.update(posting.headers)
        return headers

    def _is_modern(self, posting: Posting) -> bool:
        # A probe names its era in its own headers, before any is negotiated.
        version = httpx2.Headers(posting.headers).get("mcp-protocol-version", self.end.state.protocol_version)
        return version in MODERN_PROTOCOL_VERSIONS
