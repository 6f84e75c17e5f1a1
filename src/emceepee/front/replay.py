"""What was sent on the event streams of one session, kept for a client that lost its connection.

This is apart from the session's event log: replay repeats what was sent on a stream, and nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

__all__ = ["Replay", "ReplayBuffer"]

MAX_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Replay:
    """What a client has missed of one stream, oldest first."""

    stream: int
    frames: Sequence[bytes]


@dataclass(slots=True)
class _Stream:
    frames: OrderedDict[int, bytes] = field(default_factory=OrderedDict)
    is_closed: bool = False
    last: int = 0
    evicted: int = 0
    """The number of the newest frame that is not kept any more."""


class ReplayBuffer:
    """Bounded by count and bytes over all streams of its session; the oldest frames go first."""

    def __init__(self, name: str = "", *, max_events: int = 1000, max_bytes: int = 8 * 1024 * 1024) -> None:
        """`name` is in every id, so that those of another buffer, or of the same session before a restart, are none."""
        self._name = name
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

    @property
    def streams(self) -> int:
        """How many streams are known: those that are open, and those of which something is kept."""
        return len(self._streams)

    def open(self) -> int:
        """A new stream."""
        number = next(self._numbers)
        self._streams[number] = _Stream()
        return number

    def next_id(self, stream: int) -> str:
        """The id of the event that `add` takes next: unique within the session, and telling its stream."""
        return f"{self._name}-{stream}-{self._streams[stream].last + 1}"

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
        stream = self.stream_of(event_id)
        kept = None if stream is None else self._streams.get(stream)
        if stream is None or kept is None:
            return None
        seen = _number(event_id.rpartition("-")[2])
        if seen is None or not kept.evicted <= seen <= kept.last:
            return None
        return Replay(stream, [frame for at, frame in kept.frames.items() if at > seen])

    def stream_of(self, event_id: str) -> int | None:
        """The stream that an id of this buffer's is of, whether or not it is still known."""
        name, _, rest = event_id.partition("-")
        stream, _, number = rest.partition("-")
        return _number(stream) if name == self._name and _number(number) is not None else None

    def close(self, stream: int) -> None:
        """Nothing more will be added to it; it is forgotten when nothing of it is kept any more."""
        if (kept := self._streams.get(stream)) is not None:
            kept.is_closed = True
            self._drop_if_done(stream, kept)

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
        self._drop_if_done(stream, kept)

    def _drop_if_done(self, stream: int, kept: _Stream) -> None:
        if kept.is_closed and not kept.frames:
            del self._streams[stream]


def _number(text: str) -> int | None:
    """A number of ours; one with more digits than we will ever write is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS else None
