"""What one can connect to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import httpx2

from emceepee.clock import Clock
from emceepee.wire.http import HttpTransport
from emceepee.wire.negotiation import ServerSession
from emceepee.wire.sse import SseTransport
from emceepee.wire.stdio import StdioTransport
from emceepee.wire.transport import Transport

__all__ = ["Http", "Sse", "Stdio", "Target", "transports_for"]


@dataclass(frozen=True, slots=True)
class Http:
    """A server behind a URL: Streamable HTTP, and with `fallback` legacy SSE if that does not work."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    fallback: bool = True
    session: ServerSession | None = field(default=None, repr=False)
    """Of an earlier connection, to be taken up again if the server still knows it."""
    insists: bool = True
    """Whether no other session will do as long as a gateway refuses to say whether the server still knows that one."""
    auth: httpx2.Auth | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Sse:
    """A server behind a URL that speaks the HTTP+SSE transport of 2024-11-05."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    auth: httpx2.Auth | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Stdio:
    """A program that is started for this connection and ends with it."""

    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None


Target: TypeAlias = str | Http | Sse | Stdio | Transport


def transports_for(
    target: Target, clock: Clock, on_stderr: Callable[[str], None] | None = None
) -> tuple[Transport, ...]:
    """The transports to try for `target`, in their order; whether there can be a server is for these to say."""
    match target:
        case str():
            return transports_for(Http(target), clock)
        case Http():
            session_id = None if target.session is None else target.session.session_id
            http = HttpTransport(
                target.url, headers=target.headers, clock=clock, session_id=session_id, auth=target.auth
            )
            sse = SseTransport(target.url, headers=target.headers, clock=clock, auth=target.auth)
            return (http, sse) if target.fallback else (http,)
        case Sse():
            return (SseTransport(target.url, headers=target.headers, clock=clock, auth=target.auth),)
        case Stdio():
            stdio = StdioTransport(
                target.command, target.args, env=target.env, cwd=target.cwd, on_stderr=on_stderr, clock=clock
            )
            return (stdio,)
        case _:
            return (target,)
