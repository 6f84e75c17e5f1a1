"""Progress passed on to a client, and made up where there is none.

A client that gave a progress token restarts its timer on every notification, so silence has to be filled; and the value
has to grow each time, whatever the server sends.
"""

from __future__ import annotations

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
        value = progress if self._last is None or progress > self._last else self._last + HEARTBEAT_STEP
        self._last = value
        params: dict[str, Any] = {"progress": value}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        return params

    def heartbeat(self, message: str) -> dict[str, Any]:
        """The parameters to send when nothing was heard for a while."""
        self._last = 0.0 if self._last is None else self._last + HEARTBEAT_STEP
        return {"progress": self._last, "message": message}
