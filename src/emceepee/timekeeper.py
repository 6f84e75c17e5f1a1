"""Runs a deadline queue: one task sleeps until the earliest deadline, whatever sets it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import anyio

from emceepee.clock import Clock
from emceepee.core.deadlines import DeadlineQueue

__all__ = ["Timekeeper"]

K = TypeVar("K", bound=Hashable)


class Timekeeper(Generic[K]):
    """Set deadlines in `deadlines` at any time; while `run` runs, `fire` is called with each key when it is due."""

    def __init__(self, clock: Clock, fire: Callable[[K], Awaitable[None]]) -> None:
        self.deadlines: DeadlineQueue[K] = DeadlineQueue(self._wake)
        self._clock = clock
        self._fire = fire
        self._earlier = anyio.Event()

    async def run(self) -> None:
        while True:
            self._earlier = anyio.Event()
            deadline = self.deadlines.next_deadline()
            seconds = None if deadline is None else max(0.0, deadline - self._clock.monotonic())
            with self._clock.move_on_after(seconds):
                await self._earlier.wait()
            for key in self.deadlines.pop_due(self._clock.monotonic()):
                await self._fire(key)

    def _wake(self) -> None:
        self._earlier.set()
