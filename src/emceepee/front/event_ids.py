"""The ids of events: which buffer, stream and event, and the request that the stream answers.

A hub that was restarted knows nothing of the streams before it. What it has to tell a client that comes back for one is
in the id itself: that a response is waited for, and for which request.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote

from emceepee.front.jsonrpc import RequestId

__all__ = ["STANDALONE", "EventId", "label_of", "read_event_id"]

STANDALONE = ""
"""The label of a stream that answers no request."""

MAX_DIGITS = 18

MAX_LABEL = 64
"""A request's id that is longer, in an id that is sent with each event, would cost more than it is good for."""


@dataclass(frozen=True, slots=True)
class EventId:
    buffer: str
    stream: int
    label: str
    number: int

    def __str__(self) -> str:
        label = self.label and f".{self.label}"
        return f"{self.buffer}-{self.stream}{label}-{self.number}"

    @property
    def request_id(self) -> RequestId | None:
        """The request that the stream answers; None if it answers none, or one whose id is too long."""
        kind, text = self.label[:1], self.label[1:]
        if kind == "n":
            number = _number(text.removeprefix("-"))
            return None if number is None else number * (-1 if text.startswith("-") else 1)
        return unquote(text) if kind == "s" else None


def label_of(request_id: RequestId) -> str:
    """What tells a request in the ids of its stream's events."""
    label = f"n{request_id}" if isinstance(request_id, int) else f"s{quote(request_id, safe='')}"
    limit = MAX_DIGITS if isinstance(request_id, int) else MAX_LABEL
    return label if len(label) <= limit else "x"


def read_event_id(text: str) -> EventId | None:
    """An id as we write them, whoever wrote this one."""
    buffer, _, rest = text.partition("-")
    place, _, last = rest.rpartition("-")
    first, dot, label = place.partition(".")
    stream, number = _number(first), _number(last)
    if stream is None or number is None or len(label) > MAX_LABEL or bool(dot) != bool(label):
        return None
    return EventId(buffer, stream, label, number)


def _number(text: str) -> int | None:
    """A number of ours; one with more digits than we will ever write is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS else None
