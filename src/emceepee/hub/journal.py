"""A session's records in the store, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from emceepee.clock import Clock
from emceepee.config import ServerConfig
from emceepee.core.deadlines import DeadlineQueue
from emceepee.core.events import Event
from emceepee.core.journal import Journal
from emceepee.core.tasks import Task
from emceepee.core.timers import Timer
from emceepee.hub.origin import Origin
from emceepee.pace import Pace
from emceepee.store import Key, Store

__all__ = [
    "Memories",
    "SessionMemories",
    "StoreJournal",
    "forget_server",
    "recall",
    "save_server",
    "save_session",
]

JsonObject: TypeAlias = dict[str, Any]

NOBODY = ""
"""The owner of what belongs to no session."""


URGENT_NOTIFICATIONS = 200
URGENT_NOTIFICATIONS_PER_SECOND = 5
"""Of each server: these are written at once, and durable before they are told, like everything else. Those of a server
that sends more are written late, and only if nobody has been told of them by then."""

LATE_SECONDS = 1.0
"""After so long, and at most twice that. A log that is flooded keeps no notification for longer."""


class StoreJournal(Journal):
    """Writes a session down; after `stop` it writes no more, so that a hub that ends changes nothing that is kept.

    It knows what it owes: what has to be durable before the session's client hears of anything. What other sessions
    write is no concern of this one.
    """

    def __init__(self, store: Store, session_id: str, clock: Clock, deadlines: DeadlineQueue[Timer]) -> None:
        self._store = store
        self._session_id = session_id
        self._clock = clock
        self._is_stopped = False
        self._owed = 0
        self._paid = 0
        self._urgent: dict[str, Pace] = {}
        self._deadlines = deadlines
        self._late: tuple[dict[str, Event], dict[str, Event]] = ({}, {})
        """What is to be written late: the next time, and the time after that."""

    @property
    def owes(self) -> bool:
        return self._paid < self._owed

    async def pay(self) -> None:
        """Wait until all that is owed now is durable."""
        owed = self._owed
        await self._store.sync()
        self._paid = max(self._paid, owed)

    def stop(self) -> None:
        self.write_late()
        self.write_late()
        self._is_stopped = True

    def write_late(self) -> None:
        """Its time has come: write what has been there for a while, and is still to be told."""
        due, waiting = self._late
        self._late = (waiting, {})
        if self._is_stopped:
            return
        for event in due.values():
            self._put(event)
        if waiting:
            self._deadlines.set(self._timer, self._clock.monotonic() + LATE_SECONDS)

    @property
    def _timer(self) -> Timer:
        return Timer("journal", self._session_id)

    def erase(self) -> None:
        """The session is over."""
        self._is_stopped = True
        self._store.delete_owner(self._session_id)
        self._owed += 1

    def save_task(self, task: Task) -> None:
        if not self._is_stopped:
            self._store.put(Key("task", self._session_id, task.task_id), asdict(task))
            self._owed += 1

    def forget_task(self, task_id: str) -> None:
        if not self._is_stopped:
            self._store.delete(Key("task", self._session_id, task_id))

    def save_event(self, event: Event) -> None:
        if self._is_stopped:
            return
        if event.type != "notification" or self._is_urgent(event.server):
            self._put(event)
            self._owed += 1
            return
        self._late[1][event.id] = event
        if self._timer not in self._deadlines:
            self._deadlines.set(self._timer, self._clock.monotonic() + LATE_SECONDS)

    def forget_event(self, event_id: str) -> None:
        if any(late.pop(event_id, None) is not None for late in self._late):
            return
        if not self._is_stopped:
            self._store.delete(Key("event", self._session_id, event_id))

    def forget_events(self, last_event_id: str) -> None:
        for late in self._late:
            for event_id in [event_id for event_id in late if event_id <= last_event_id]:
                del late[event_id]
        if not self._is_stopped:
            self._store.delete_up_to(Key("event", self._session_id, last_event_id))

    def _put(self, event: Event) -> None:
        self._store.put(Key("event", self._session_id, event.id), _record(event))

    def _is_urgent(self, server: str) -> bool:
        pace = self._urgent.get(server)
        if pace is None:
            pace = self._urgent[server] = Pace(
                self._clock, burst=URGENT_NOTIFICATIONS, per_second=URGENT_NOTIFICATIONS_PER_SECOND
            )
        return pace.try_take()


@dataclass(slots=True)
class SessionMemories:
    """What is left of a session from before a restart."""

    origin: Origin = field(default_factory=Origin)
    tasks: list[Task] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


@dataclass(slots=True)
class Memories:
    servers: list[ServerConfig] = field(default_factory=list)
    sessions: dict[str, SessionMemories] = field(default_factory=dict)


def _record(event: Event) -> JsonObject:
    # By hand: `asdict` copies everything in it, which takes longer than all the rest.
    return {
        "id": event.id,
        "created_at": event.created_at,
        "type": event.type,
        "server": event.server,
        "data": dict(event.data),
    }


def save_session(store: Store, session_id: str, created_at: float, origin: Origin) -> None:
    store.put(Key("session", session_id, session_id), {"created_at": created_at, "origin": origin.as_json()})


def save_server(store: Store, config: ServerConfig) -> None:
    store.put(Key("server", NOBODY, config.name), config.model_dump(mode="json"))


def forget_server(store: Store, name: str) -> None:
    store.delete(Key("server", NOBODY, name))


def recall(records: Mapping[Key, JsonObject]) -> Memories:
    """What the records say; tasks and events without a session are nobody's, and left out."""
    memories = Memories()
    for key, value in records.items():
        if key.kind == "session":
            memories.sessions[key.owner] = SessionMemories(Origin(**value.get("origin", {})))
        elif key.kind == "server":
            memories.servers.append(ServerConfig.model_validate(value))
    for key, value in sorted(records.items()):
        if (session := memories.sessions.get(key.owner)) is None:
            continue
        if key.kind == "task":
            session.tasks.append(Task(**value))
        elif key.kind == "event":
            session.events.append(Event(**value))
    return memories
