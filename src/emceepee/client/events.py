"""What happens on a connection, as typed events that anyone may follow.

`TaskCreated` and `TaskStatus` are the updates of `call_tool_stream` as well; what is told here alone is named `…Event`,
apart from the errors. The server is the authority on its tasks; events and the cache of tasks are a convenience.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from emceepee.client.questions import Question, Settled
from emceepee.client.tasks import RemoteTask
from emceepee.errors import EmceepeeError

__all__ = [
    "ConnectionEvent",
    "Error",
    "EventFeed",
    "Progress",
    "QuestionArrivedEvent",
    "QuestionSettledEvent",
    "Result",
    "TaskCancelledEvent",
    "TaskCompletedEvent",
    "TaskCreated",
    "TaskFailedEvent",
    "TaskStatus",
    "TasksListedEvent",
    "Update",
]

logger = logging.getLogger(__name__)

MAX_UNREAD = 1000
"""Per subscriber; one that reads slower misses the newest events, and the log says so."""


@dataclass(frozen=True, slots=True)
class TaskCreated:
    task: RemoteTask
    immediate_response: str | None = None
    """What the server wants a model to be told meanwhile."""


@dataclass(frozen=True, slots=True)
class TaskStatus:
    task: RemoteTask


@dataclass(frozen=True, slots=True)
class TaskCompletedEvent:
    task_id: str
    result: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TaskFailedEvent:
    task_id: str
    error: EmceepeeError


@dataclass(frozen=True, slots=True)
class TaskCancelledEvent:
    task_id: str


@dataclass(frozen=True, slots=True)
class TasksListedEvent:
    tasks: tuple[RemoteTask, ...]


@dataclass(frozen=True, slots=True)
class QuestionArrivedEvent:
    question: Question


@dataclass(frozen=True, slots=True)
class QuestionSettledEvent:
    question: Question
    how: Settled


@dataclass(frozen=True, slots=True)
class Progress:
    progress: float
    total: float | None
    message: str | None


@dataclass(frozen=True, slots=True)
class Result:
    result: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Error:
    error: EmceepeeError


Update: TypeAlias = TaskCreated | TaskStatus | Progress | Result | Error
ConnectionEvent: TypeAlias = (
    TaskCreated
    | TaskStatus
    | TaskCompletedEvent
    | TaskFailedEvent
    | TaskCancelledEvent
    | TasksListedEvent
    | QuestionArrivedEvent
    | QuestionSettledEvent
)


class EventFeed:
    """Fans events out to whoever subscribed."""

    def __init__(self) -> None:
        self._subscribers: set[MemoryObjectSendStream[ConnectionEvent]] = set()

    @property
    def has_subscribers(self) -> bool:
        return bool(self._subscribers)

    def emit(self, event: ConnectionEvent) -> None:
        for subscriber in tuple(self._subscribers):
            try:
                subscriber.send_nowait(event)
            except anyio.WouldBlock:
                logger.warning("a subscriber of events is too slow, and misses a %s", type(event).__name__)
            except anyio.BrokenResourceError:
                self._subscribers.discard(subscriber)

    @contextmanager
    def subscribe(self) -> Iterator[AsyncIterator[ConnectionEvent]]:
        """`with server.events.subscribe() as events: async for event in events: …`; ends with the connection."""
        send, receive = anyio.create_memory_object_stream[ConnectionEvent](MAX_UNREAD)
        self._subscribers.add(send)
        try:
            yield receive
        finally:
            self._subscribers.discard(send)
            send.close()
            receive.close()

    def close(self) -> None:
        for subscriber in self._subscribers:
            subscriber.close()
        self._subscribers.clear()
