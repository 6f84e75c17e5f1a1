"""What is done to the world, in an order that a seed decides."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from random import Random
from time import monotonic

import anyio
import anyio.abc

from tests.chaos.records import Records
from tests.chaos.world import World

__all__ = ["chaos"]

PAUSE_S = (0.05, 0.45)
"""Between two blows: long enough for something to begin, too short for it to settle."""

STOPPED_S = (0.1, 1.5)
SLOWED_S = (0.3, 1.5)
DOWN_S = (0.0, 0.3)
"""How long a server, or the hub, stays away before it is started again."""

WEIGHTS = {
    "kill a stdio server": 7,
    "kill an HTTP server": 5,
    "stop and continue a server": 2,
    "slow an HTTP server": 1,
    "cut an HTTP server's connections": 3,
    "kill the hub": 2,
}


async def chaos(world: World, records: Records, rng: Random, is_over: Callable[[], bool]) -> None:
    """Blow after blow until it is over; then everything runs again."""
    async with anyio.create_task_group() as healing:
        while not is_over():
            await anyio.sleep(rng.uniform(*PAUSE_S))
            blow = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            if await _strike(blow, world, records, rng, healing):
                records.counts[f"blow: {blow}"] += 1


async def _strike(blow: str, world: World, records: Records, rng: Random, healing: anyio.abc.TaskGroup) -> bool:
    """Whether there was anything to strike."""
    server = rng.choice(world.http)
    match blow:
        case "kill the hub":
            records.kills.append((world.hub.life, monotonic()))
            await world.hub.kill()
            await anyio.sleep(rng.uniform(*DOWN_S))
            await world.hub.start()
        case "kill a stdio server":
            if not (pids := world.stdio_pids()):
                return False
            try:
                os.kill(rng.choice(pids), signal.SIGKILL)
            except ProcessLookupError:
                # It has ended since we looked.
                return False
        case "kill an HTTP server":
            await server.kill()
            await anyio.sleep(rng.uniform(*DOWN_S))
            await server.start()
        case "stop and continue a server":
            pids = world.stdio_pids() + [server.process.pid for server in world.http if server.process is not None]
            if not pids:
                return False
            pid = rng.choice(pids)
            os.kill(pid, signal.SIGSTOP)
            healing.start_soon(_continue, pid, rng.uniform(*STOPPED_S))
        case "slow an HTTP server":
            server.relay.delay_s = rng.uniform(0.02, 0.2)
            healing.start_soon(_hasten, world, rng.uniform(*SLOWED_S))
        case _:
            return server.relay.cut() > 0
    return True


async def _continue(pid: int, after_s: float) -> None:
    await anyio.sleep(after_s)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


async def _hasten(world: World, after_s: float) -> None:
    await anyio.sleep(after_s)
    for server in world.http:
        server.relay.delay_s = 0.0
