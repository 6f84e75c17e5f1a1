"""Time and identity for tests without an event loop, and how hard the property tests try."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import anyio
from hypothesis import HealthCheck, settings

from emceepee.core.events import Event, EventType
from emceepee.ids import IdFactory

__all__ = ["EXAMPLES", "START", "STATEFUL", "HandClock", "Recorder", "numbered"]

START = 1_800_000_000.0
"""Wall time when a `HandClock` begins, 2027-01-15T08:00:00Z."""

EXAMPLES = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For properties of values. No deadline: a busy machine is no defect."""

STATEFUL = settings(EXAMPLES, max_examples=60, stateful_step_count=40)
"""For state machines: long enough for several evictions, expiries and retentions in one run."""


class HandClock:
    """A clock that is moved by hand, in which wall time can be put wrong. The core never waits, so neither does it."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.wall_error = 0.0

    def now(self) -> float:
        return START + self.elapsed + self.wall_error

    def monotonic(self) -> float:
        return self.elapsed

    def move_on_after(self, seconds: float | None) -> anyio.CancelScope:
        raise AssertionError(f"the core wanted to wait {seconds} s")


class Recorder:
    """Stands in for the event log where only what was told matters."""

    def __init__(self) -> None:
        self.told: list[tuple[EventType, str, Mapping[str, Any]]] = []

    def __call__(self, event_type: EventType, server: str, data: Mapping[str, Any], /) -> Event:
        self.told.append((event_type, server, data))
        return Event(str(len(self.told)), START, event_type, server, data)

    def take(self) -> list[tuple[EventType, str, Mapping[str, Any]]]:
        """What was told since the last time."""
        told, self.told = self.told, []
        return told


def numbered(prefix: str) -> IdFactory:
    """Ids that can be read: `prefix-1`, `prefix-2`, and so on."""
    numbers = count(1)
    return lambda: f"{prefix}-{next(numbers)}"
