"""The keys of a session's deadline queue."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

__all__ = ["Timer", "TimerKind"]

TimerKind: TypeAlias = Literal["call", "task_ttl", "task_retention", "question", "idle", "journal"]


class Timer(NamedTuple):
    kind: TimerKind
    key: str
