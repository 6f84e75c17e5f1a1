"""What servers said that nobody has to answer: notifications and logs, the newest of each.

Reading takes what is read out of the buffer, unless it only peeks. Logs make no events; a full buffer drops its oldest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from emceepee.clock import Clock, isoformat

__all__ = [
    "LOG_LEVELS",
    "LogEntry",
    "LogLevel",
    "LogSource",
    "Notification",
    "ServerBuffers",
    "is_as_severe",
    "known_level",
]

LogSource: TypeAlias = Literal["protocol", "stderr"]
LogLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

LOG_LEVELS: tuple[LogLevel, ...] = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""From the least to the most severe."""


def known_level(level: object) -> LogLevel:
    """The level that somebody named; what is none counts as info."""
    return next((known for known in LOG_LEVELS if known == level), "info")


def is_as_severe(level: LogLevel, least: LogLevel) -> bool:
    return LOG_LEVELS.index(level) >= LOG_LEVELS.index(least)


@dataclass(frozen=True, slots=True)
class Notification:
    server: str
    received_at: float
    method: str
    params: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        return {
            "server": self.server,
            "received_at": isoformat(self.received_at),
            "method": self.method,
            "params": self.params,
        }


@dataclass(frozen=True, slots=True)
class LogEntry:
    server: str
    received_at: float
    source: LogSource
    level: LogLevel
    logger: str | None
    data: Any

    def as_json(self) -> dict[str, Any]:
        return {
            "server": self.server,
            "received_at": isoformat(self.received_at),
            "source": self.source,
            "level": self.level,
            "logger": self.logger,
            "data": self.data,
        }


T = TypeVar("T", Notification, LogEntry)


class _Buffers(Generic[T]):
    """One bounded buffer per server."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: dict[str, deque[tuple[int, T]]] = {}
        self._arrivals = 0

    def add(self, entry: T) -> None:
        self._arrivals += 1
        self._entries.setdefault(entry.server, deque(maxlen=self._limit)).append((self._arrivals, entry))

    def read(self, wanted: Callable[[T], bool], limit: int | None, *, peek: bool) -> list[T]:
        """The wanted entries of all servers, oldest first; at most the newest `limit`."""
        # By arrival, not by time: the wall clock can step back.
        found = dict(sorted(item for entries in self._entries.values() for item in entries if wanted(item[1])))
        if limit is not None:
            found = dict(islice(found.items(), max(0, len(found) - limit), None))
        if not peek and found:
            for server, entries in self._entries.items():
                kept = (item for item in entries if item[0] not in found)
                self._entries[server] = deque(kept, maxlen=self._limit)
        return list(found.values())

    def forget(self, server: str) -> None:
        self._entries.pop(server, None)


class ServerBuffers:
    """The buffers of one session; they outlive a disconnect."""

    def __init__(self, clock: Clock, *, max_notifications: int = 100, max_logs: int = 500) -> None:
        self._clock = clock
        self._notifications: _Buffers[Notification] = _Buffers(max_notifications)
        self._logs: _Buffers[LogEntry] = _Buffers(max_logs)

    def add_notification(self, server: str, method: str, params: Mapping[str, Any]) -> None:
        self._notifications.add(Notification(server, self._clock.now(), method, params))

    def add_log(self, server: str, source: LogSource, entry: Mapping[str, Any]) -> None:
        """Keep a `notifications/message`, or a line of output dressed as one; an unknown level counts as info."""
        logger = entry.get("logger")
        self._logs.add(
            LogEntry(
                server=server,
                received_at=self._clock.now(),
                source=source,
                level=known_level(entry.get("level")),
                logger=logger if isinstance(logger, str) else None,
                data=entry.get("data"),
            )
        )

    def forget(self, server: str) -> None:
        """The server is gone for good."""
        self._notifications.forget(server)
        self._logs.forget(server)

    def notifications(self, server: str | None = None, *, peek: bool = False) -> list[Notification]:
        return self._notifications.read(lambda entry: server in (None, entry.server), None, peek=peek)

    def logs(
        self,
        server: str | None = None,
        *,
        level: LogLevel = "debug",
        source: LogSource | None = None,
        limit: int | None = None,
        peek: bool = False,
    ) -> list[LogEntry]:
        """Entries of at least `level`."""

        def wanted(entry: LogEntry) -> bool:
            is_asked_for = server in (None, entry.server) and source in (None, entry.source)
            return is_asked_for and is_as_severe(entry.level, level)

        return self._logs.read(wanted, limit, peek=peek)
