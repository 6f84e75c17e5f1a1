"""Frozen pictures of a running hub, for every interface that shows it."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from emceepee.clock import isoformat
from emceepee.hub import Hub, Link, Session

__all__ = ["HubSnapshot", "LinkSnapshot", "SessionSnapshot", "snapshot_of", "snapshot_of_session"]


@dataclass(frozen=True, slots=True)
class LinkSnapshot:
    server: str
    status: str
    transport: str | None
    era: str | None
    connected_at: str | None
    last_error: str | None
    tools: int
    times_connected: int


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """One session as its own client may see it."""

    links: tuple[LinkSnapshot, ...]
    calls: int
    tasks: dict[str, int]
    questions: dict[str, int]
    events: int
    events_undelivered: int
    waiters: int


@dataclass(frozen=True, slots=True)
class HubSnapshot:
    """Sums over all sessions, which tell nothing of any one of them."""

    sessions: int
    servers: int
    links: dict[str, int]
    calls: int
    tasks: dict[str, int]
    questions: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def snapshot_of(hub: Hub) -> HubSnapshot:
    links: Counter[str] = Counter()
    tasks: Counter[str] = Counter()
    questions: Counter[str] = Counter()
    calls = 0
    for session in hub.sessions.values():
        links.update(link.status for link in session.links.values())
        tasks.update(_tasks(session))
        questions.update(_questions(session))
        calls += len(session.calls)
    return HubSnapshot(
        sessions=len(hub.sessions),
        servers=len(hub.registry),
        links=dict(links),
        calls=calls,
        tasks=dict(tasks),
        questions=dict(questions),
    )


def snapshot_of_session(session: Session) -> SessionSnapshot:
    return SessionSnapshot(
        links=tuple(_link(session.link(config.name)) for config in session.registry),
        calls=len(session.calls),
        tasks=_tasks(session),
        questions=_questions(session),
        events=len(session.state.events),
        events_undelivered=session.state.events.undelivered,
        waiters=session.state.events.waiters,
    )


def _link(link: Link) -> LinkSnapshot:
    server = link.server
    return LinkSnapshot(
        server=link.name,
        status=link.status,
        transport=None if server is None else server.transport,
        era=None if server is None else server.era,
        connected_at=None if link.life.connected_at is None else isoformat(link.life.connected_at),
        last_error=link.life.last_error,
        tools=len(link.tools),
        times_connected=link.life.times_connected,
    )


def _tasks(session: Session) -> dict[str, int]:
    return dict(Counter(task.status for task in session.state.tasks.find(terminal=True)))


def _questions(session: Session) -> dict[str, int]:
    return dict(Counter(question.kind for question in session.state.questions.pending()))
