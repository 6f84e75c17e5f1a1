"""A clock that stands still until it is moved."""

from __future__ import annotations

import heapq
from itertools import count

import anyio
from anyio.lowlevel import checkpoint

__all__ = ["EPOCH", "FakeClock", "settle"]

EPOCH = 1_900_000_000.0
"""Where fake time begins: far enough from now that a mix-up with real time shows."""


TURNS = 20


class FakeClock:
    """Implements `emceepee.clock.Clock`; `advance` moves it and wakes whoever waited for that time."""

    def __init__(self) -> None:
        self._elapsed = 0.0
        self._scopes: list[tuple[float, int, anyio.CancelScope]] = []
        self._sequence = count()

    def now(self) -> float:
        return EPOCH + self._elapsed

    def monotonic(self) -> float:
        return self._elapsed

    def move_on_after(self, seconds: float | None) -> anyio.CancelScope:
        scope = anyio.CancelScope()
        if seconds is not None and seconds <= 0:
            scope.cancel()
        elif seconds is not None:
            heapq.heappush(self._scopes, (self._elapsed + seconds, next(self._sequence), scope))
        return scope

    async def advance(self, seconds: float) -> None:
        """Move time, stopping at each moment that somebody waits for, and let everything run that this sets off."""
        end = self._elapsed + seconds
        await settle()
        while self._scopes and self._scopes[0][0] <= end:
            self._elapsed, _, scope = heapq.heappop(self._scopes)
            scope.cancel()
            await settle()
        self._elapsed = end
        await settle()


async def settle() -> None:
    """Let all other tasks run until each of them waits for something."""
    for _ in range(3):
        # Most are done after a few turns; asking whether all wait costs a tenth of a second as long as one does not.
        for _ in range(TURNS):
            await checkpoint()
        await anyio.wait_all_tasks_blocked()
