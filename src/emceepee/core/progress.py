"""Progress passed on to a client, and made up where there is none.

A client that gave a progress token restarts its timer on every notification, so silence has to be filled; and the value
has to grow each time, whatever the server sends.
"""

from __future__ import annotations

import math
from typing import Any

__all__ = ["ProgressRelay"]

HEARTBEAT_STEP = 0.001
"""Small enough not to overtake a server that counts in whole steps, or in hundredths, for hours."""


class ProgressRelay:
    """Turns a server's progress and our heartbeats into one sequence that grows strictly."""

    def __init__(self) -> None:
        self._last: float | None = None

    def passed_on(self, progress: float, total: float | None, message: str | None) -> dict[str, Any]:
        """The parameters to send for a server's own notification."""
        grows = math.isfinite(progress) and (self._last is None or progress > self._last)
        value = self._last = progress if grows else self._next()
        params: dict[str, Any] = {"progress": value}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        return params

    def heartbeat(self, message: str) -> dict[str, Any]:
        """The parameters to send when nothing was heard for a while."""
        self._last = self._next()
        return {"progress": self._last, "message": message}

    def _next(self) -> float:
        """A little more than last time; beside a huge value the step is lost, and the next float is taken."""
        if self._last is None:
            return 0.0
        return max(self._last + HEARTBEAT_STEP, math.nextafter(self._last, math.inf))
