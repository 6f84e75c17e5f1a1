"""A session's records in the store, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from pydantic import ValidationError
from structlog import get_logger

from emceepee.clock import Clock
from emceepee.config import ServerConfig, problems_of
from emceepee.core.deadlines import DeadlineQueue
from emceepee.core.events import Event
from emceepee.core.journal import Journal
from emceepee.core.questions import Question
from emceepee.core.tasks import Task
from emceepee.core.timers import Timer
from emceepee.hub.late_events import LateEvents
from emceepee.hub.origin import LOCAL, Origin
from emceepee.hub.server_sessions import KeptSession, ServerSessions
from emceepee.hub.spent_states import SpentStates
from emceepee.hub.wishes import Wishes
from emceepee.store import Key, Store

__all__ = [
    "Memories",
    "SessionMemories",
    "StoreJournal",
    "WaitingCall",
    "forget_server",
    "recall",
    "save_secret",
    "save_server",
    "save_session",
]

JsonObject: TypeAlias = dict[str, Any]

log = get_logger(__name__)

NOBODY = ""
"""The owner of what belongs to no session, and of the local user's servers; those of others have their principal."""


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A call that waits for answers, beside what its task says of it."""

    method: str
    resumption: JsonObject
    is_forwarded: bool = False
    """It is a client's own request, whose result goes to that client as it is."""


class StoreJournal(Journal):
    """Writes a session down; after `stop` it writes no more, so that a hub that ends changes nothing that is kept.

    It knows what it owes: what has to be durable before the session's client hears of anything. What other sessions
    write is no concern of this one.
    """

    def __init__(
        self, store: Store, session_id: str, origin: Origin, clock: Clock, deadlines: DeadlineQueue[Timer]
    ) -> None:
        self._store = store
        self._session_id = session_id
        self._origin = origin
        self._clock = clock
        self._late = LateEvents(Timer("journal", session_id), clock, deadlines)
        self._is_stopped = False
        self._owed = 0
        self._paid = 0
        self.server_sessions = ServerSessions(self._save_server_session)
        self._kept_wishes: dict[str, JsonObject] = {}
        self.spent_states = SpentStates(self._save_spent_state)

    @property
    def owes(self) -> bool:
        return self._paid < self._owed

    async def pay(self) -> None:
        """Wait until all that is owed now is durable."""
        owed = self._owed
        await self._store.sync()
        self._paid = max(self._paid, owed)

    def stop(self) -> None:
        if not self._is_stopped:
            for event in self._late.take_all():
                self._put_event(event)
        self._is_stopped = True

    def erase(self) -> None:
        """The session is over."""
        self._late.take_all()
        self.stop()
        self.server_sessions.clear()
        self._store.delete_owner(self._session_id)
        self._owed += 1

    def leave(self, finished: Iterable[Task]) -> None:
        """The session is over, but for the tasks that have ended."""
        self.erase()
        save_session(self._store, self._session_id, self._clock.now(), replace(self._origin, is_left=True))
        for task in finished:
            self._store.put(Key("task", self._session_id, task.task_id), asdict(task))

    def write_late(self) -> None:
        """The time has come for what could wait."""
        for event in self._late.due():
            if not self._is_stopped:
                self._put_event(event)

    def save_activity(self, active_at: float) -> None:
        """When the session was in use last."""
        if not self._is_stopped:
            save_session(self._store, self._session_id, active_at, self._origin)

    def save_task(self, task: Task) -> None:
        if not self._is_stopped:
            self._keep("task", task.task_id, asdict(task))
            self.server_sessions.on_task(task)

    def forget_task(self, task_id: str) -> None:
        self._keep("task", task_id, None)

    def save_question(self, question: Question) -> None:
        self._keep("question", question.request_id, asdict(question))

    def forget_question(self, request_id: str) -> None:
        self._keep("question", request_id, None)

    def save_waiting_call(self, task_id: str, call: WaitingCall) -> None:
        self._keep("waiting_call", task_id, asdict(call))

    def forget_waiting_call(self, task_id: str) -> None:
        self._keep("waiting_call", task_id, None)

    def save_event(self, event: Event) -> None:
        if not self._is_stopped and not self._late.takes(event):
            self._put_event(event)
            self._owed += 1

    def forget_event(self, event_id: str) -> None:
        # No response waits for this: at worst the event is told again after a crash.
        if not self._late.forget(event_id) and not self._is_stopped:
            self._store.delete(Key("event", self._session_id, event_id))

    def forget_events(self, last_event_id: str) -> None:
        self._late.forget_up_to(last_event_id)
        if not self._is_stopped:
            self._store.delete_up_to(Key("event", self._session_id, last_event_id))

    def save_events_lost(self, count: int) -> None:
        key = Key("events_lost", self._session_id, self._session_id)
        if self._is_stopped:
            return
        if count:
            self._store.put(key, {"count": count})
        else:
            self._store.delete(key)

    def wishes(self, server: str) -> Wishes:
        """What the client has asked a server for once and for all; `restore_wishes` says what that was before."""
        return Wishes(partial(self._keep, "wishes", server), self._kept_wishes.pop(server, None))

    def restore_wishes(self, server: str, kept: JsonObject) -> None:
        self._kept_wishes[server] = kept

    def _save_server_session(self, server: str, kept: KeptSession | None) -> None:
        self._keep("server_session", server, None if kept is None else kept.as_json())

    def _save_spent_state(self, nonce: str, expires_at: float | None) -> None:
        self._keep("spent_state", nonce, None if expires_at is None else {"expires_at": expires_at})

    def _keep(self, kind: str, name: str, value: JsonObject | None) -> None:
        """Write a record, or with None delete it; the next response waits for that."""
        if self._is_stopped:
            return
        key = Key(kind, self._session_id, name)
        if value is None:
            self._store.delete(key)
        else:
            self._store.put(key, value)
        self._owed += 1

    def _put_event(self, event: Event) -> None:
        # By hand: `asdict` copies everything in it, which takes longer than all the rest.
        facts = {"id": event.id, "created_at": event.created_at, "type": event.type, "server": event.server}
        self._store.put(Key("event", self._session_id, event.id), {**facts, "data": dict(event.data)})


@dataclass(slots=True)
class SessionMemories:
    """What is left of a session from before a restart."""

    last_active_at: float
    origin: Origin = field(default_factory=Origin)
    tasks: list[Task] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    events_lost: int = 0
    questions: list[Question] = field(default_factory=list)
    waiting_calls: dict[str, WaitingCall] = field(default_factory=dict)
    """By task."""
    server_sessions: dict[str, KeptSession] = field(default_factory=dict)
    wishes: dict[str, JsonObject] = field(default_factory=dict)
    """By server."""
    spent_states: dict[str, float] = field(default_factory=dict)
    """When each expires."""


@dataclass(slots=True)
class Memories:
    servers: list[tuple[ServerConfig, str]] = field(default_factory=list)
    """Those that clients added, each with the principal whose it is."""
    sessions: dict[str, SessionMemories] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)


def save_session(store: Store, session_id: str, active_at: float, origin: Origin) -> None:
    store.put(Key("session", session_id, session_id), {"last_active_at": active_at, "origin": origin.as_json()})


def save_server(store: Store, config: ServerConfig, principal: str) -> None:
    store.put(_server_key(config.name, principal), config.model_dump(mode="json"))


def save_secret(store: Store, name: str, value: str) -> None:
    store.put(Key("secret", NOBODY, name), {"value": value})


def forget_server(store: Store, name: str, principal: str) -> None:
    store.delete(_server_key(name, principal))


def _server_key(name: str, principal: str) -> Key:
    return Key("server", NOBODY if principal == LOCAL else principal, name)


def recall(records: Mapping[Key, JsonObject]) -> Memories:
    """What the records say; tasks and events without a session are nobody's, and left out.

    So is a record that does not say what it should: it stays in the store, and costs nobody else.
    """
    memories = Memories()
    # Sessions come first: what belongs to them has to find them.
    for key, value in sorted(records.items(), key=lambda item: (item[0].kind != "session", item[0])):
        try:
            _recall_one(memories, key, value)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            log.error("record_left_out", kind=key.kind, error=f"{type(error).__name__}: {error}")
    return memories


def _recall_one(memories: Memories, key: Key, value: JsonObject) -> None:
    match key.kind:
        case "session":
            origin = Origin(**value.get("origin", {}))
            memories.sessions[key.owner] = SessionMemories(value["last_active_at"], origin)
        case "server":
            memories.servers += _recalled_server(key, value)
        case "secret":
            bytes.fromhex(value["value"])  # or there is a new one when it is asked for
            memories.secrets[key.id] = value["value"]
        case _ if (session := memories.sessions.get(key.owner)) is not None:
            _recall_of_session(session, key, value)


def _recall_of_session(session: SessionMemories, key: Key, value: JsonObject) -> None:
    match key.kind:
        case "task":
            session.tasks.append(Task(**value))
        case "event":
            session.events.append(Event(**value))
        case "events_lost":
            session.events_lost = value["count"]
        case "question":
            session.questions.append(Question(**value))
        case "waiting_call":
            session.waiting_calls[key.id] = WaitingCall(**value)
        case "server_session":
            session.server_sessions[key.id] = KeptSession.from_json(value)
        case "wishes":
            session.wishes[key.id] = value
        case "spent_state":
            session.spent_states[key.id] = value["expires_at"]


def _recalled_server(key: Key, value: JsonObject) -> list[tuple[ServerConfig, str]]:
    try:
        return [(ServerConfig.model_validate(value), key.owner or LOCAL)]
    except ValidationError as error:
        # What was good enough when it was stored must not keep the hub from starting.
        log.warning("server_not_restored", server=key.id, problems=problems_of(error))
        return []
