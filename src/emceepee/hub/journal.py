"""A session's records in the store, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from emceepee.config import ServerConfig
from emceepee.core.events import Event
from emceepee.core.journal import Journal
from emceepee.core.tasks import Task
from emceepee.hub.origin import LOCAL, Origin
from emceepee.store import Key, Store

__all__ = [
    "Memories",
    "SessionMemories",
    "StoreJournal",
    "forget_server",
    "recall",
    "save_secret",
    "save_server",
    "save_session",
]

JsonObject: TypeAlias = dict[str, Any]

NOBODY = ""
"""The owner of what belongs to no session, and of the local user's servers; those of others have their principal."""


class StoreJournal(Journal):
    """Writes a session down; after `stop` it writes no more, so that a hub that ends changes nothing that is kept."""

    def __init__(self, store: Store, session_id: str) -> None:
        self._store = store
        self._session_id = session_id
        self._is_stopped = False

    def stop(self) -> None:
        self._is_stopped = True

    def erase(self) -> None:
        """The session is over."""
        self.stop()
        self._store.delete_owner(self._session_id)

    def save_task(self, task: Task) -> None:
        if not self._is_stopped:
            self._store.put(Key("task", self._session_id, task.task_id), asdict(task))

    def forget_task(self, task_id: str) -> None:
        if not self._is_stopped:
            self._store.delete(Key("task", self._session_id, task_id))

    def save_event(self, event: Event) -> None:
        if not self._is_stopped:
            self._store.put(Key("event", self._session_id, event.id), asdict(event))

    def forget_event(self, event_id: str) -> None:
        if not self._is_stopped:
            self._store.delete(Key("event", self._session_id, event_id))

    def forget_events(self, last_event_id: str) -> None:
        if not self._is_stopped:
            self._store.delete_up_to(Key("event", self._session_id, last_event_id))


@dataclass(slots=True)
class SessionMemories:
    """What is left of a session from before a restart."""

    origin: Origin = field(default_factory=Origin)
    tasks: list[Task] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


@dataclass(slots=True)
class Memories:
    servers: list[tuple[ServerConfig, str]] = field(default_factory=list)
    """Those that clients added, each with the principal whose it is."""
    sessions: dict[str, SessionMemories] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)


def save_session(store: Store, session_id: str, created_at: float, origin: Origin) -> None:
    store.put(Key("session", session_id, session_id), {"created_at": created_at, "origin": origin.as_json()})


def save_server(store: Store, config: ServerConfig, principal: str) -> None:
    store.put(_server_key(config.name, principal), config.model_dump(mode="json"))


def save_secret(store: Store, name: str, value: str) -> None:
    store.put(Key("secret", NOBODY, name), {"value": value})


def forget_server(store: Store, name: str, principal: str) -> None:
    store.delete(_server_key(name, principal))


def _server_key(name: str, principal: str) -> Key:
    return Key("server", NOBODY if principal == LOCAL else principal, name)


def recall(records: Mapping[Key, JsonObject]) -> Memories:
    """What the records say; tasks and events without a session are nobody's, and left out."""
    memories = Memories()
    for key, value in records.items():
        if key.kind == "session":
            memories.sessions[key.owner] = SessionMemories(Origin(**value.get("origin", {})))
        elif key.kind == "server":
            memories.servers.append((ServerConfig.model_validate(value), key.owner or LOCAL))
        elif key.kind == "secret":
            memories.secrets[key.id] = value["value"]
    for key, value in sorted(records.items()):
        if (session := memories.sessions.get(key.owner)) is None:
            continue
        if key.kind == "task":
            session.tasks.append(Task(**value))
        elif key.kind == "event":
            session.events.append(Event(**value))
    return memories
