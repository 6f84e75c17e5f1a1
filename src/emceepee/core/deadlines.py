"""One queue for all timers of a session.

Owners set a deadline under a key and forget it; whoever drives the session asks `next_deadline`, sleeps until then and
takes what is due. There is no timer per object, so nothing is left behind when an object goes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["DeadlineQueue"]

K = TypeVar("K", bound=Hashable)

_COMPACT_ABOVE = 64
"""Below this size, dead heap entries are not worth a rebuild."""


class DeadlineQueue(Generic[K]):
    """Deadlines by key; setting a key again moves it. Setting and discarding are O(log n) amortised."""

    def __init__(self, on_earlier: Callable[[], None] = lambda: None) -> None:
        """`on_earlier` is called when a deadline is set that comes before all others: sleepers must sleep less."""
        self._on_earlier = on_earlier
        self._at: dict[K, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, key: K) -> bool:
        return key in self._at

    def set(self, key: K, at: float) -> None:
        self._sequence += 1
        self._at[key] = (at, self._sequence)
        is_earliest = not self._heap or at < self._heap[0][0]
        heapq.heappush(self._heap, (at, self._sequence, key))
        if len(self._heap) > _COMPACT_ABOVE and len(self._heap) > 2 * len(self._at):
            self._heap = [(at, sequence, key) for key, (at, sequence) in self._at.items()]
            heapq.heapify(self._heap)
        if is_earliest:
            self._on_earlier()

    def get(self, key: K) -> float | None:
        entry = self._at.get(key)
        return None if entry is None else entry[0]

    def discard(self, key: K) -> None:
        self._at.pop(key, None)

    def next_deadline(self) -> float | None:
        """The earliest deadline, or None."""
        self._drop_dead_entries()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> list[K]:
        """Remove and return the keys whose time has come, earliest first."""
        due: list[K] = []
        while (at := self.next_deadline()) is not None and at <= now:
            key = heapq.heappop(self._heap)[2]
            del self._at[key]
            due.append(key)
        return due

    def _drop_dead_entries(self) -> None:
        while self._heap:
            _, sequence, key = self._heap[0]
            entry = self._at.get(key)
            if entry is not None and entry[1] == sequence:
                return
            heapq.heappop(self._heap)
