"""Time as an argument.

The core asks a clock for the time and answers "when is your next deadline?"; only the shell waits. `SystemClock` is
real time, `emceepee.testing.FakeClock` moves when a test says so.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

import anyio

__all__ = ["Clock", "SystemClock", "isoformat", "sleep"]


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch: what people are shown."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards: what deadlines are reckoned in."""
        ...

    def move_on_after(self, seconds: float | None) -> anyio.CancelScope:
        """A scope, to be entered at once, that is cancelled after `seconds` (never for None)."""
        ...


class SystemClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def move_on_after(self, seconds: float | None) -> anyio.CancelScope:
        return anyio.move_on_after(seconds)


async def sleep(clock: Clock, seconds: float) -> None:
    """Let `seconds` pass on `clock`."""
    if seconds > 0:
        with clock.move_on_after(seconds):
            await anyio.sleep_forever()


def isoformat(timestamp: float) -> str:
    """`timestamp` as the protocol writes times: UTC, milliseconds, `Z`."""
    return datetime.fromtimestamp(timestamp, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
