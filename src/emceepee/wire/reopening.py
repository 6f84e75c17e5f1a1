"""When and from where a broken event stream is opened again.

Pure: `http_stream.py` waits and opens.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from httpx2 import ServerSentEvent

__all__ = ["MAX_TRIES", "STEADY_SECONDS", "Reopening"]

MAX_TRIES = 3
"""In a row, without success: enough for a hiccup, and a dead server is still noticed within seconds."""

DELAY_SECONDS = 1.0
"""Between tries, where the server has not set its own `retry`."""

STEADY_SECONDS = 1.0
"""A stream that was open for so long was a good one, even if nothing came: proxies cut idle streams all the time."""

LONGEST_CONFLICT_SECONDS = 30.0
"""Between tries to open a stream that the server believes to be read already: it will find out, sooner or later."""

AT_ONCE_SECONDS = 5.0
"""An immediate try is allowed once in this time: a server that ends every stream at once must not make us spin."""

LONGEST_RETRY_SECONDS = 60.0
SHORTEST_RETRY_SECONDS = 0.01
"""A server may set `retry`, but neither put us to sleep for a day nor make us spin."""


@dataclass(slots=True)
class Reopening:
    """What is known of one stream over all its connections."""

    last_event_id: str | None = None
    tries: int = 0
    """Since the last success."""
    conflicts: int = 0
    """Refusals since then that said that somebody reads the stream already."""
    _retry_seconds: float | None = field(default=None)
    _last_at_once: float | None = field(default=None)

    def saw(self, event: ServerSentEvent) -> None:
        """Remember where to go on, and how long to wait, from `event`."""
        if event.id:
            self.last_event_id = event.id
        if event.retry is not None:
            self._retry_seconds = min(max(event.retry / 1000, SHORTEST_RETRY_SECONDS), LONGEST_RETRY_SECONDS)

    def delay(self, now: float) -> float:
        """Seconds to wait before the next try, which begins at `now`: the server's `retry`, else none, then one."""
        if self.conflicts:
            return min(DELAY_SECONDS * 2.0 ** min(self.conflicts - 1, 32), LONGEST_CONFLICT_SECONDS)
        if self._retry_seconds is not None:
            return self._retry_seconds
        if self._last_at_once is None or now - self._last_at_once >= AT_ONCE_SECONDS:
            self._last_at_once = now
            return 0.0
        return DELAY_SECONDS

    def headers(self) -> dict[str, str]:
        return {} if self.last_event_id is None else {"last-event-id": self.last_event_id}
