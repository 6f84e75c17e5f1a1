"""Counting new TCP connections per call, in a pass of its own.

Every leg (client to server, client to hub, hub to server) goes through a small TCP relay in this process that counts
what it accepts. That is exact whatever the peers' HTTP libraries do and whoever else opens sockets on the machine, and
it costs time, which is why nothing is timed in this pass. Connections of the warm-up (handshake, the GET stream) are
not counted, so what remains is what each call costs.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, SocketAttribute, SocketStream

from bench.calls import Mode, Way, echo_through
from bench.processes import hub

__all__ = ["count_connections"]

WARM_UP_CALLS = 5


@dataclass
class Relay:
    """A listening relay: where it listens, and how many connections it has accepted."""

    url: str
    accepted: int = 0


async def count_connections(
    server_url: str, hub_command: Sequence[str] | None, mode: Mode, calls: int
) -> dict[str, float]:
    """New connections per sequential call on each leg; the hub's two legs only where there is a hub."""
    async with _relay(server_url) as server:
        (direct,) = await _count("direct", server.url, [server], mode, calls)
    if hub_command is None:
        return {"client to server": direct}
    async with _relay(server_url) as server, hub(hub_command, server.url) as running, _relay(running.url) as front:
        to_hub, to_server = await _count("hub", front.url, [front, server], mode, calls)
    return {"client to server": direct, "client to hub": to_hub, "hub to server": to_server}


async def _count(way: Way, url: str, relays: Sequence[Relay], mode: Mode, calls: int) -> list[float]:
    async with echo_through(way, url, mode) as echo:
        for _ in range(WARM_UP_CALLS):
            await echo("warm")
        before = [relay.accepted for relay in relays]
        for _ in range(calls):
            await echo("counted")
        return [(relay.accepted - start) / calls for relay, start in zip(relays, before, strict=True)]


@asynccontextmanager
async def _relay(target_url: str) -> AsyncIterator[Relay]:
    """A relay to the address of `target_url`, whose own URL has the same path."""
    target = urlsplit(target_url)
    assert target.hostname is not None
    assert target.port is not None
    host, port = target.hostname, target.port
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    local_port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - anyio's attribute, not Django's
    relay = Relay(f"http://127.0.0.1:{local_port}{target.path}")

    async def serve(near: SocketStream) -> None:
        relay.accepted += 1
        async with near, await anyio.connect_tcp(host, port) as far, anyio.create_task_group() as pumps:
            pumps.start_soon(_pump, near, far)
            await _pump(far, near)
            pumps.cancel_scope.cancel()

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield relay
        tasks.cancel_scope.cancel()


async def _pump(source: ByteReceiveStream, sink: ByteSendStream) -> None:
    """Carry bytes until either side is gone; a peer that resets its connection is no error of ours."""
    try:
        async for chunk in source:
            await sink.send(chunk)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
