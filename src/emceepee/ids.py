"""Identifiers.

Task, request and session ids are ULIDs with fresh secure randomness each, so that knowing one tells nothing of another.
Event ids are monotonic: within a millisecond they count up, so that they sort in the order of the events.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeAlias

from emceepee.clock import Clock

__all__ = ["IdFactory", "MonotonicIds", "secure_ids"]

IdFactory: TypeAlias = Callable[[], str]

_RANDOM_BYTES = 10
"""A ULID is 6 bytes of milliseconds and 10 of randomness."""

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_SHIFTS = range(120, -1, -10)
"""A ULID is written in Crockford's base 32, two characters for ten bits: every event has one, so it must be cheap."""


def secure_ids(clock: Clock) -> IdFactory:
    """A factory of unguessable ids that sort by the millisecond they were made in."""

    def new_id() -> str:
        return _ulid(int(clock.now() * 1000), os.urandom(_RANDOM_BYTES))

    return new_id


class MonotonicIds:
    """A factory of ids each of which sorts after the one before, even if the clock steps back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._millisecond = 0
        self._random = 0

    def __call__(self) -> str:
        millisecond = int(self._clock.now() * 1000)
        if millisecond > self._millisecond:
            self._millisecond = millisecond
            # The highest bit stays free, so that counting up cannot overflow.
            self._random = int.from_bytes(os.urandom(_RANDOM_BYTES)) >> 1
        else:
            self._random += 1
        return _ulid(self._millisecond, self._random.to_bytes(_RANDOM_BYTES))


def _ulid(millisecond: int, random: bytes) -> str:
    bits = int.from_bytes(millisecond.to_bytes(6) + random)
    return "".join([_PAIRS[bits >> shift & 1023] for shift in _SHIFTS])
