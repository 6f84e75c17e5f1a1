"""The timed passes: rounds of calls that alternate between the ways, with the CPU time each process spent on them."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import anyio

from bench.calls import Echo, Way
from bench.processes import Served

__all__ = ["Leg", "run_rounds", "warm_up"]

WARM_UP_CALLS = 50
"""Enough for connections, caches and the interpreter's adaptive code to settle."""

TEXT = "The quick brown fox jumps over the lazy dog."


@dataclass
class Leg:
    """What was measured on one way."""

    rounds: list[list[float]] = field(default_factory=list)
    """Latencies in seconds, one list per round."""
    busy_s: float = 0.0
    """Wall time of all rounds together."""
    cpu_s: dict[str, float] = field(default_factory=dict)
    """CPU time by process over all rounds."""

    @property
    def calls(self) -> int:
        return sum(len(latencies) for latencies in self.rounds)


async def warm_up(ways: Mapping[Way, Echo], concurrency: int) -> None:
    for echo in ways.values():
        await _one_round(echo, WARM_UP_CALLS, concurrency)


async def run_rounds(
    ways: Mapping[Way, Echo], processes: Mapping[str, Served], *, rounds: int, calls: int, concurrency: int
) -> dict[Way, Leg]:
    """Alternate rounds of each way; which of them begins alternates too, so that neither profits from its place."""
    legs: dict[Way, Leg] = {way: Leg() for way in ways}
    order = list(ways)
    for _ in range(rounds):
        for way in order:
            before, began = _cpu(processes), time.perf_counter()
            legs[way].rounds.append(await _one_round(ways[way], calls, concurrency))
            legs[way].busy_s += time.perf_counter() - began
            for name, used in _cpu(processes).items():
                legs[way].cpu_s[name] = legs[way].cpu_s.get(name, 0.0) + used - before[name]
        order.reverse()
    return legs


async def _one_round(echo: Echo, calls: int, concurrency: int) -> list[float]:
    latencies: list[float] = []
    waiting = iter(range(calls))

    async def worker() -> None:
        # The workers share one iterator: each takes the next call as soon as its last one is answered.
        for _ in waiting:
            began = time.perf_counter()
            await echo(TEXT)
            latencies.append(time.perf_counter() - began)

    if concurrency == 1:
        await worker()  # no task group in the way of the sequential figures
        return latencies
    async with anyio.create_task_group() as workers:
        for _ in range(concurrency):
            workers.start_soon(worker)
    return latencies


def _cpu(processes: Mapping[str, Served]) -> dict[str, float]:
    return {"client": time.process_time(), **{name: process.cpu_s() for name, process in processes.items()}}
