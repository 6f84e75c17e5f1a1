"""Warnings about the event log, said sparingly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from structlog import get_logger

from emceepee.clock import Clock
from emceepee.hub.telemetry import Telemetry

__all__ = ["EventWarnings"]

log = get_logger(__name__)

WARNING_SECONDS = 60.0
"""Between two warnings of the same kind; those between are counted, here and in the metrics."""


class EventWarnings:
    def __init__(self, clock: Clock, telemetry: Telemetry) -> None:
        self._clock = clock
        self._telemetry = telemetry
        self._warned: dict[str, tuple[float, int]] = {}
        """When each kind was said last, and how often it was not said since."""

    def warn(self, name: str, facts: Mapping[str, Any]) -> None:
        # A flood would have us say it several times a second.
        now, (said_at, unsaid) = self._clock.monotonic(), self._warned.get(name, (-math.inf, 0))
        if now - said_at < WARNING_SECONDS:
            self._warned[name] = (said_at, unsaid + 1)
        else:
            self._warned[name] = (now, 0)
            log.warning(name, **facts, **({"unsaid": unsaid} if unsaid else {}))
        if name == "event_store_eviction":
            self._telemetry.events_evicted(facts["evicted_count"], facts["undelivered"])
