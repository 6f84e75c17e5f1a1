"""The boundary between a peer and whatever carries its messages.

A transport is a recipe: `open()` gives a channel, and may be called again for the next connection to the same server.
Implementations: `http.py`, `sse.py`, `stdio.py`, `memory.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import RequestId

__all__ = [
    "CLOSE_TIMEOUT",
    "HTTP_STATUS",
    "NEVER_TAKEN",
    "TRANSPORT_FAILURE",
    "Channel",
    "ChannelState",
    "RequestId",
    "StrayLine",
    "Transport",
    "TransportKind",
    "is_passing_refusal",
    "is_transport_failure",
    "was_never_taken",
]

STRAY_SHOWN = 200
"""Characters of a stray line that people are shown."""

TransportKind: TypeAlias = Literal["http", "sse", "stdio", "memory"]


@dataclass(slots=True)
class ChannelState:
    """What a channel and its peer tell each other beside the messages.

    The peer writes `protocol_version` once it is negotiated; the transport writes the rest, if nothing else is said.
    """

    protocol_version: str | None = None
    """Goes into the `MCP-Protocol-Version` header of every later HTTP request."""
    session_id: str | None = None
    leaves_session: bool = False
    """Whether the session is to live on at the server when the channel is closed; written by whoever closes it."""
    process_id: int | None = None
    was_heard: bool = True
    """False once it is known that the server has taken nothing of what we said: it ended for reasons of its own."""
    lost_reason: str | None = None
    """Why the channel ended by itself, in a few words for people; None while it is open, or if we closed it."""
    on_interrupted: Callable[[RequestId], None] = lambda _request_id: None
    """Called when the server has closed the response stream of a request before its response, to be asked again."""
    on_abandoned: Callable[[RequestId], None] = lambda _request_id: None
    """Called by the peer when nobody waits for a response any more, and the server is not told; the transport's."""


@dataclass(slots=True)
class Channel:
    """One open connection.

    `read` yields messages, and exceptions for what could not be parsed, and ends when the connection is lost: by then
    `state.lost_reason` is set. A message that arrived on the response stream of one of our requests carries
    `ServerMessageMetadata(related_request_id=<the id of that request>)`; any other message carries None.
    `write` takes messages; `ClientMessageMetadata.headers` are HTTP headers for that message alone.
    """

    read: ReadStream[SessionMessage | Exception]
    write: WriteStream[SessionMessage]
    state: ChannelState = field(default_factory=ChannelState)


class StrayLine(ValueError):
    """A program wrote a line to its output that is no message; `shown` is its beginning."""

    def __init__(self, line: str) -> None:
        self.shown = line.strip()[:STRAY_SHOWN]
        super().__init__(f"not a JSON-RPC message: {self.shown!r}")


class Transport(Protocol):
    """How to reach one server."""

    @property
    def kind(self) -> TransportKind: ...

    @property
    def target(self) -> str:
        """The server's address as people may see it: without headers, environment, user info or query."""
        ...

    def open(self) -> AbstractAsyncContextManager[Channel]:
        """Open a connection, to be entered and left by one and the same task.

        Leaving it takes at most `CLOSE_TIMEOUT` seconds, also under cancellation, and leaves no task, socket or
        process behind.

        Raises:
            ConnectFailed: there is nothing to connect to (where that shows before the first message).
        """
        ...


TRANSPORT_FAILURE = "emceepee/transport-failure"
"""A key in the `data` of errors that a transport makes up for a request it could not carry: a server of its own may use
any error code, so the code cannot tell."""


NEVER_TAKEN = "emceepee/never-taken"
"""Beside it: the server has refused the request as a whole, so that nothing of it has happened."""


HTTP_STATUS = "http_status"
"""A key in the `data` of errors that stand for an HTTP response without a JSON-RPC message in it."""


def is_transport_failure(data: object) -> bool:
    return isinstance(data, dict) and TRANSPORT_FAILURE in data


def is_passing_refusal(data: object) -> bool:
    """Whether an error stands for an HTTP status that says: not now. That is a gateway's word, and not the server's."""
    status = data.get(HTTP_STATUS) if isinstance(data, dict) else None
    return isinstance(status, int) and (status in (408, 429) or status >= 500)


def was_never_taken(data: object) -> bool:
    return isinstance(data, dict) and NEVER_TAKEN in data


CLOSE_TIMEOUT = 3.0
"""Every stdio server of the hub has to be gone within the 5 seconds of a graceful shutdown."""
