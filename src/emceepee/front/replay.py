"""What was sent on the event streams of one session, kept for a client that lost its connection.

This is apart from the session's event log: replay repeats what was sent on a stream, and nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

__all__ = ["Replay", "ReplayBuffer"]


@dataclass(frozen=True, slots=True)
class Replay:
    """What a client has missed of one stream, oldest first."""

    stream: int
    frames: Sequence[bytes]


@dataclass(slots=True)
class _Stream:
    frames: OrderedDict[int, bytes] = field(default_factory=OrderedDict)
    last: int = 0
    evicted: int = 0
    """The number of the newest frame that is not kept any more."""


class ReplayBuffer:
    """Bounded by count and bytes over all streams of its session; the oldest frames go first."""

    def __init__(self, *, max_events: int = 1000, max_bytes: int = 8 * 1024 * 1024) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._numbers = count(1)
        self._streams: dict[int, _Stream] = {}
        self._order: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._order)

    @property
    def size(self) -> int:
        return self._bytes

    def open(self) -> int:
        """A new stream."""
        number = next(self._numbers)
        self._streams[number] = _Stream()
        return number

    def next_id(self, stream: int) -> str:
        """The id of the event that `add` takes next: unique within the session, and telling its stream."""
        return f"{stream}-{self._streams[stream].last + 1}"

    def add(self, stream: int, frame: bytes) -> None:
        """Keep an event as it goes out, under its `next_id`."""
        kept = self._streams[stream]
        kept.last += 1
        kept.frames[kept.last] = frame
        self._order[stream, kept.last] = None
        self._bytes += len(frame)
        while len(self._order) > self._max_events or (self._bytes > self._max_bytes and len(self._order) > 1):
            self._evict()

    def after(self, event_id: str) -> Replay | None:
        """What was sent on the stream of `event_id` after it; None if that is not known, or not all of it any more."""
        stream, _, number = event_id.partition("-")
        if not (stream.isascii() and stream.isdecimal() and number.isascii() and number.isdecimal()):
            return None
        kept = self._streams.get(int(stream))
        seen = int(number)
        if kept is None or seen > kept.last or seen < kept.evicted:
            return None
        return Replay(int(stream), [frame for at, frame in kept.frames.items() if at > seen])

    def forget(self, stream: int) -> None:
        """Nobody will come back for this stream."""
        if (kept := self._streams.pop(stream, None)) is not None:
            for number, frame in kept.frames.items():
                del self._order[stream, number]
                self._bytes -= len(frame)

    def _evict(self) -> None:
        (stream, number), _ = self._order.popitem(last=False)
        kept = self._streams[stream]
        self._bytes -= len(kept.frames.pop(number))
        kept.evicted = number
