"""What was sent on the event streams of one session, kept for a client that lost its connection.

This is apart from the session's event log: replay repeats what was sent on a stream, and nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal, TypeAlias

from emceepee.front.event_ids import STANDALONE, EventId, read_event_id

__all__ = ["Kind", "Replay", "ReplayBuffer"]

Kind: TypeAlias = Literal["news", "message", "response"]
"""What an event holds, by how much it would be missed."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What a client has missed of one stream and is still kept, oldest first."""

    stream: int
    frames: Sequence[bytes]
    lacks_response: bool = False
    """Whether the response that the stream ends with was missed, and is not kept any more."""


@dataclass(slots=True)
class _Stream:
    label: str
    frames: OrderedDict[int, bytes] = field(default_factory=OrderedDict)
    is_closed: bool = False
    last: int = 0
    response: int = 0
    """The number of the frame with the response; 0 while there is none."""


class ReplayBuffer:
    """Bounded by count and bytes over all streams of its session.

    The oldest frames go first, and of streams that are not over yet the news: a client that comes back may miss how its
    call got on, but not what it was asked, and least of all the response.
    """

    def __init__(self, name: str = "", *, max_events: int = 1000, max_bytes: int = 8 * 1024 * 1024) -> None:
        """`name` is in every id, so that those of another buffer, or of the same session before a restart, are none."""
        self._name = name
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._numbers = count(1)
        self._streams: dict[int, _Stream] = {}
        self._orders: dict[Kind, OrderedDict[tuple[int, int], None]] = {
            "news": OrderedDict(),
            "message": OrderedDict(),
            "response": OrderedDict(),
        }
        """What is kept, in the order in which it goes."""
        self._bytes = 0

    def __len__(self) -> int:
        return sum(map(len, self._orders.values()))

    @property
    def size(self) -> int:
        return self._bytes

    @property
    def streams(self) -> int:
        """How many streams are known: those that are open, and those of which something is kept."""
        return len(self._streams)

    def open(self, label: str = STANDALONE) -> int:
        """A new stream; `label` says in its ids what it answers."""
        number = next(self._numbers)
        self._streams[number] = _Stream(label)
        return number

    def next_id(self, stream: int) -> str:
        """The id of the event that `add` takes next: unique within the session, and telling its stream."""
        known = self._streams[stream]
        return str(EventId(self._name, stream, known.label, known.last + 1))

    def add(self, stream: int, frame: bytes, kind: Kind = "message") -> None:
        """Keep an event as it goes out, under its `next_id`."""
        kept = self._streams[stream]
        kept.last += 1
        kept.frames[kept.last] = frame
        if kind == "response":
            kept.response = kept.last
        self._orders[kind][stream, kept.last] = None
        self._bytes += len(frame)
        while len(self) > self._max_events or (self._bytes > self._max_bytes and len(self) > 1):
            self._evict()

    def after(self, event_id: str) -> Replay | None:
        """What was sent on the stream of `event_id` after it and is kept; None if that stream is not known."""
        event = read_event_id(event_id)
        kept = None if event is None or event.buffer != self._name else self._streams.get(event.stream)
        if event is None or kept is None or event.label != kept.label or event.number > kept.last:
            return None
        seen = event.number
        frames = [frame for at, frame in kept.frames.items() if at > seen]
        return Replay(event.stream, frames, kept.response > seen and kept.response not in kept.frames)

    def stream_of(self, event_id: str) -> int | None:
        """The stream that an id of this buffer's is of, whether or not it is still known."""
        event = read_event_id(event_id)
        return event.stream if event is not None and event.buffer == self._name else None

    def close(self, stream: int) -> None:
        """All of it has been delivered once, and may go; it is forgotten when nothing of it is kept any more."""
        if (kept := self._streams.get(stream)) is not None:
            kept.is_closed = True
            for number in kept.frames:
                self._unlist(stream, number)
                self._orders["news"][stream, number] = None
            self._drop_if_done(stream, kept)

    def empty(self, stream: int) -> None:
        """What was sent on it has been taken back; whatever follows goes on with its ids."""
        if (kept := self._streams.get(stream)) is not None:
            for number, frame in kept.frames.items():
                self._unlist(stream, number)
                self._bytes -= len(frame)
            kept.frames.clear()
            kept.response = 0

    def forget(self, stream: int) -> None:
        """Nobody will come back for this stream."""
        self.empty(stream)
        self._streams.pop(stream, None)

    def _evict(self) -> None:
        order = next(order for order in self._orders.values() if order)
        (stream, number), _ = order.popitem(last=False)
        kept = self._streams[stream]
        self._bytes -= len(kept.frames.pop(number))
        self._drop_if_done(stream, kept)

    def _unlist(self, stream: int, number: int) -> None:
        for order in self._orders.values():
            order.pop((stream, number), None)

    def _drop_if_done(self, stream: int, kept: _Stream) -> None:
        if kept.is_closed and not kept.frames:
            del self._streams[stream]
