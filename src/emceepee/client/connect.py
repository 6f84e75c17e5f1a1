"""Opening a connection: which transport, which era, and what runs beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

from emceepee.client.asked import AskingTransport
from emceepee.client.connection import ServerConnection
from emceepee.client.inbound import Inbound
from emceepee.client.listening import Listener
from emceepee.client.liveness import watch_liveness
from emceepee.client.options import ClientOptions, ClientSink
from emceepee.client.receiver import ReceiverTasks
from emceepee.client.targets import Http, Target, transports_for
from emceepee.clock import Clock, SystemClock
from emceepee.concurrency import companions
from emceepee.errors import ConnectFailed, ConnectionLost, RequestTimedOut, SessionGone, WireError
from emceepee.wire.negotiation import EraChoice, Negotiated, negotiate, take_up
from emceepee.wire.peer import Peer, open_peer
from emceepee.wire.transport import Transport

__all__ = ["connect"]


@asynccontextmanager
async def connect(
    target: Target,
    *,
    options: ClientOptions | None = None,
    sink: ClientSink | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[ServerConnection]:
    """Connect to one server: `connect("http://…/mcp")`, `connect(Stdio("npx", ["-y", "server"]))`, `connect(Sse(url))`.

    Without a `sink`, questions come through `questions()` and notifications are dropped. Servers are told that we can
    be asked (`ClientOptions.elicitation`, `sampling`), and a call that asks waits for the answer: whoever does not read
    `questions()` should switch both off. A question that nobody reads is warned of in the log.

    Raises:
        ConnectFailed: no connection could be made; it says why.
    """
    options = options or ClientOptions()
    clock = clock or SystemClock()
    async with AsyncExitStack() as stack:
        server = await _taken_up(stack, target, options, sink, clock)
        yield server or await _begun(stack, target, options, sink, clock)


async def _taken_up(
    stack: AsyncExitStack, target: Target, options: ClientOptions, sink: ClientSink | None, clock: Clock
) -> ServerConnection | None:
    """The connection in the session that `target` names, if it names one and it can be taken up."""
    if not isinstance(target, Http) or (session := target.session) is None:
        return None
    (transport,) = transports_for(replace(target, fallback=False), clock)
    inbound = _inbound(stack, options, sink)
    try:
        opening = _connection(transport, inbound, options, clock, lambda peer: take_up(peer, session))
        return await stack.enter_async_context(opening)
    except SessionGone:
        return None
    except ConnectFailed:
        if target.insists:
            raise
        return None
    except WireError as error:
        raise _connect_failed(transport, error, inbound) from error


async def _begun(
    stack: AsyncExitStack, target: Target, options: ClientOptions, sink: ClientSink | None, clock: Clock
) -> ServerConnection:
    """A connection that was negotiated anew."""
    inbound = _inbound(stack, options, sink)
    plain = replace(target, session=None) if isinstance(target, Http) else target
    transports = transports_for(plain, clock, inbound.on_stderr)
    errors: list[WireError] = []
    for transport, era in _attempts(transports, options.era):
        agree = partial(negotiate, identity=options.identity(), choice=era)
        try:
            return await stack.enter_async_context(_connection(transport, inbound, options, clock, agree))
        except WireError as error:
            errors.append(error)
            if not _may_differ(error):
                raise _connect_failed(transport, errors[0], inbound) from error
    raise _connect_failed(transports[0], errors[0], inbound) from errors[0]


def _inbound(stack: AsyncExitStack, options: ClientOptions, sink: ClientSink | None) -> Inbound:
    inbound = Inbound(options, sink)
    stack.callback(inbound.close)
    return inbound


def _attempts(transports: tuple[Transport, ...], era: EraChoice) -> Iterator[tuple[Transport, EraChoice]]:
    """What to try, in which order."""
    for transport in transports:
        if transport.kind == "sse":
            yield transport, "handshake" if era in ("auto", "handshake_first") else era
        else:
            yield transport, era
        if transport.kind == "stdio" and era == "auto":
            # Some programs exit at the sight of anything but `initialize`: start them again, and say that first.
            yield transport, "handshake"


def _may_differ(error: WireError) -> bool:
    """Whether another way to say hello could do better: not if this one took too long, or was not even heard."""
    return not isinstance(error, RequestTimedOut) and not (isinstance(error, ConnectionLost) and not error.was_taken)


def _connect_failed(transport: Transport, error: WireError, inbound: Inbound) -> ConnectFailed:
    if isinstance(error, ConnectFailed):
        return error
    if not (count := inbound.stray_lines):
        return ConnectFailed(transport.target, str(error))
    wrote = (
        "it wrote a line that is no MCP message" if count == 1 else f"it wrote {count} lines that are no MCP messages"
    )
    return ConnectFailed(transport.target, f"{error}; {wrote}", inbound.first_stray_line)


@asynccontextmanager
async def _connection(
    transport: Transport,
    inbound: Inbound,
    options: ClientOptions,
    clock: Clock,
    agree: Callable[[Peer], Awaitable[Negotiated]],
) -> AsyncIterator[ServerConnection]:
    asking = AskingTransport(transport)
    async with open_peer(asking, clock, inbound) as peer, companions() as tasks:
        receiver = ReceiverTasks(options, clock, peer.notify) if options.receiver_tasks else None
        inbound.bind(peer.state, receiver, tasks.start_soon, clock, asking)
        tasks.start_soon(inbound.lose_with, peer.closed)
        negotiated = await agree(peer)
        listener = Listener(peer, clock)
        inbound.on_acknowledged = listener.on_acknowledged
        server = ServerConnection(peer, negotiated, inbound, listener, tasks.start_soon)
        if server.era == "modern":
            if options.log_level is not None:
                await server.set_log_level(options.log_level)
            listener.start(server.capabilities)
            tasks.start_soon(listener.run)
        if receiver is not None:
            tasks.start_soon(receiver.run)
        if transport.kind == "http":
            tasks.start_soon(watch_liveness, peer, server, clock, options.idle_ping)
        try:
            yield server
        finally:
            inbound.is_closing = True
            peer.state.leaves_session = options.leaves_session()
