"""How fast a source may be read that nobody asked to speak.

Pure: whoever reads asks after each piece how long to wait before the next one.
"""

from __future__ import annotations

from emceepee.clock import Clock

__all__ = ["Pace"]

PAUSE_SECONDS = 0.02
"""The shortest wait: a timer for every single message would cost more than the message."""


class Pace:
    """A bucket of `burst` pieces, filled again at `per_second`.

    Who takes more is told to wait until what was taken is paid for; with that, a source gets its burst at full speed
    and `per_second` from then on.
    """

    def __init__(self, clock: Clock, *, burst: float, per_second: float) -> None:
        self._clock = clock
        self._burst = burst
        self._per_second = per_second
        self._left = burst
        self._at = clock.monotonic()

    def try_take(self) -> bool:
        """Take one, if there is one to be had without waiting."""
        self._fill()
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def take(self, pieces: float = 1.0) -> float:
        """Take some; returns the seconds to wait before the next, mostly 0."""
        self._fill()
        # No single piece costs more than all that may come at once, however large it is.
        self._left -= min(pieces, self._burst)
        owed = -self._left / self._per_second
        return owed if owed >= PAUSE_SECONDS else 0.0

    def _fill(self) -> None:
        now = self._clock.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
