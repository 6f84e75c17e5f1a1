"""Notices that an HTTP server has died while nobody was talking to it.

Where there is a stream, its end tells. Where there is none, silence is broken with a ping, but only while no work is
under way: a server that is busy with a long call may not get round to answering, and is not dead.
"""

from __future__ import annotations

import anyio

from emceepee.client.connection import ServerConnection
from emceepee.clock import Clock
from emceepee.errors import ConnectionLost, RequestTimedOut
from emceepee.wire.peer import Peer

__all__ = ["watch_liveness"]

PING_TIMEOUT = 10.0
"""Seconds for an idle server to answer a ping."""


async def watch_liveness(peer: Peer, server: ServerConnection, clock: Clock, interval: float) -> None:
    while not peer.closed.is_set():
        with clock.move_on_after(max(0.0, peer.last_heard + interval - clock.monotonic())):
            await peer.closed.wait()
        silent_for = clock.monotonic() - peer.last_heard
        if silent_for < interval or peer.closed.is_set():
            continue
        if not peer.is_idle:
            with clock.move_on_after(interval):
                await peer.closed.wait()
            continue
        try:
            await server.ping(timeout=PING_TIMEOUT)
        except (ConnectionLost, RequestTimedOut) as error:
            peer.hang_up(f"it does not answer any more: {error}")
            return
        await anyio.lowlevel.checkpoint()
