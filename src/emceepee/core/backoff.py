"""How long to wait before the next try."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Backoff"]


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubles from `first` to `longest`, give or take `jitter`, so that not everybody comes back at once."""

    first: float = 1.0
    longest: float = 180.0
    jitter: float = 0.1

    def delay(self, attempt: int, chance: float) -> float:
        """Seconds before try number `attempt` (from 1); `chance` is a random number from 0 to 1."""
        # Beyond some power the shift would be huge, and the answer is the longest delay anyway.
        base = min(self.first * 2.0 ** min(attempt - 1, 32), self.longest)
        return float(base * (1 + self.jitter * (2 * chance - 1)))
