"""The HTTP+SSE transport of 2024-11-05: one long GET stream from the server, POSTs to the address that it names.

There is no resuming here: the stream is the connection, and when it ends, the channel is lost.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import TypeAlias

import anyio
import httpx2
from mcp.shared._httpx_utils import stream_within_origin
from mcp.shared.message import SessionMessage

from emceepee.clock import Clock, SystemClock
from emceepee.errors import ConnectFailed
from emceepee.wire.ends import ChannelEnd, carry
from emceepee.wire.envelope import decode, encode
from emceepee.wire.http_client import (
    DELIVERY_TIMEOUT,
    checked_url,
    drain,
    events_of,
    http_client,
    is_event_stream,
    refusal,
    shown_url,
    trouble,
)
from emceepee.wire.outbox import Outbox, Posting
from emceepee.wire.transport import Channel, TransportKind

__all__ = ["SseTransport"]

Events: TypeAlias = AsyncGenerator[httpx2.ServerSentEvent]

ENDPOINT_SECONDS = 10.0
"""For the first event of the stream, which a working server sends at once."""


class SseTransport:
    """Reaches a server whose event stream is at `url`. `headers` go with every request."""

    kind: TransportKind = "sse"

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        max_event_bytes: int | None = None,
        auth: httpx2.Auth | None = None,
    ) -> None:
        self._url = url
        self._clock = clock or SystemClock()
        self._auth = auth
        self._headers = headers
        self._max_event_bytes = max_event_bytes

    @property
    def target(self) -> str:
        return shown_url(self._url)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Channel]:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(http_client(self.target, self._headers, self._auth))
            events, endpoint = await self._listen(client, stack)
            connection = _Connection(client, endpoint, events, ChannelEnd(self._clock), self._clock)
            yield await stack.enter_async_context(carry(connection.end, connection.run, connection.goodbye))

    async def _listen(self, client: httpx2.AsyncClient, stack: AsyncExitStack) -> tuple[Events, httpx2.URL]:
        """Open the event stream on `stack`, and read as far as the endpoint."""
        url = checked_url(self._url)
        try:
            with anyio.fail_after(ENDPOINT_SECONDS):
                response = await stack.enter_async_context(
                    stream_within_origin(client, "GET", url, headers={"accept": "text/event-stream"})
                )
                if not response.is_success or not is_event_stream(response):
                    raise ConnectFailed(self.target, await _no_stream(response))
                events = await stack.enter_async_context(aclosing(events_of(response, self._max_event_bytes)))
                return events, await self._endpoint(events, url)
        except TimeoutError:
            raise ConnectFailed(self.target, f"no endpoint within {ENDPOINT_SECONDS:g} s") from None
        except httpx2.HTTPError as error:
            raise ConnectFailed(self.target, trouble(error)) from error

    async def _endpoint(self, events: Events, url: httpx2.URL) -> httpx2.URL:
        async for event in events:
            if event.event == "endpoint":
                endpoint = _joined(url, event.data)
                if endpoint is None:
                    raise ConnectFailed(self.target, "the server names an endpoint outside its own origin")
                return endpoint
        raise ConnectFailed(self.target, "the event stream ended before it named an endpoint")


class _Connection:
    """One open event stream and the POSTs that belong to it."""

    def __init__(
        self, client: httpx2.AsyncClient, endpoint: httpx2.URL, events: Events, end: ChannelEnd, clock: Clock
    ) -> None:
        self.end = end
        end.state.session_id = endpoint.params.get("sessionId") or endpoint.params.get("session_id")
        self._client = client
        self._endpoint = endpoint
        self._events = events
        self._outbox = Outbox(end, clock, self._post)

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read)
            await self._outbox.run(tasks)

    async def goodbye(self) -> None:
        """Nothing: this transport ends by closing the stream."""

    async def _read(self) -> None:
        try:
            async for event in self._events:
                if event.event == "message" and event.data:
                    await self._take(event.data)
        except httpx2.HTTPError as error:
            self.end.lose(trouble(error))
        else:
            self.end.lose("the server ended the event stream")

    async def _take(self, data: str) -> None:
        try:
            messages = decode(data)
        except ValueError as error:
            await self.end.deliver(error)
            return
        for message in messages:
            await self.end.deliver(SessionMessage(message), len(data))

    async def _post(self, posting: Posting) -> None:
        async with stream_within_origin(
            self._client,
            "POST",
            self._endpoint,
            content=encode(posting.item.message),
            headers=self._headers(posting),
            timeout=DELIVERY_TIMEOUT,
        ) as response:
            posting.accepted.set()
            if response.is_success:
                await drain(response)
            else:
                await self.end.fail(posting.item, await refusal(response))

    def _headers(self, posting: Posting) -> httpx2.Headers:
        headers = httpx2.Headers({"accept": "application/json", "content-type": "application/json"})
        if self.end.state.protocol_version is not None:
            headers["mcp-protocol-version"] = self.end.state.protocol_version
        headers.update(posting.headers)
        return headers


async def _no_stream(response: httpx2.Response) -> str:
    if response.is_success:
        return f"there is no event stream, but {response.headers.get('content-type', 'no content type')}"
    return (await refusal(response)).message


def _joined(url: httpx2.URL, endpoint: str) -> httpx2.URL | None:
    """`endpoint` as seen from `url`, or None if messages would leave the server's origin."""
    try:
        joined = url.join(endpoint)
    except httpx2.InvalidURL:
        return None
    return joined if (joined.scheme, joined.host, joined.port) == (url.scheme, url.host, url.port) else None
