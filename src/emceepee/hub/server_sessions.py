"""The sessions at servers that outlive their connections: a link that comes back goes on in the one that it had.

Those that native tasks live in (`core/anchors.py` says which these are) are written down, too, so that a link of the
next hub takes them up again in place of a handshake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from emceepee.client import ServerSession
from emceepee.config import ServerConfig
from emceepee.core.anchors import Anchors
from emceepee.core.tasks import Task

__all__ = ["KeptSession", "ServerSessions"]

JsonObject: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class KeptSession:
    """A session, and where it is: its id is nobody else's business."""

    url: str
    session: ServerSession

    def as_json(self) -> JsonObject:
        return {"url": self.url, "session_id": self.session.session_id, "answer": dict(self.session.answer)}

    @classmethod
    def from_json(cls, value: JsonObject) -> KeptSession:
        return cls(value["url"], ServerSession(value["session_id"], value["answer"]))


class ServerSessions:
    """Those of one client's session; `save` is told what is to be kept for a server, and None for nothing any more."""

    def __init__(self, save: Callable[[str, KeptSession | None], None]) -> None:
        self._save = save
        self._anchors = Anchors()
        self._newest: dict[str, KeptSession] = {}
        self._declared: dict[str, Mapping[str, Any]] = {}
        """What each server was told in its newest session that we can do; not known of those from before a restart."""

    def restore(self, server: str, kept: KeptSession) -> None:
        """Put back what was written down before a restart."""
        self._newest[server] = kept

    def clear(self) -> None:
        """The client's session is over: the sessions at servers are ended with their connections."""
        self._anchors.clear()

    def on_task(self, task: Task) -> None:
        """Something was heard of a task."""
        match self._anchors.note(task):
            case "first" if (kept := self._newest.get(task.server)) is not None:
                self._save(task.server, kept)
            case "last":
                self._save(task.server, None)
            case _:
                pass

    def on_connected(
        self, config: ServerConfig, session: ServerSession | None, declared: Mapping[str, Any] | None = None
    ) -> None:
        """A link is connected, in a session that another one can take up, or in none such.

        If it is a new session, the server was told of the capabilities that are `declared`.
        """
        before = self._newest.pop(config.name, None)
        if session is not None and config.url is not None:
            self._newest[config.name] = KeptSession(config.url, session)
        after = self._newest.get(config.name)
        if before != after:
            self._declared[config.name] = declared or {}
        if self._anchors.hold(config.name) and before != after:
            self._save(config.name, after)

    def are_needed(self, server: str) -> bool:
        """Whether native tasks live at `server`, so that its session must not end with the connection."""
        return self._anchors.hold(server)

    def to_take_up(self, config: ServerConfig, declared: Mapping[str, Any] | None = None) -> ServerSession | None:
        """The session that the next connection should go on in.

        It was begun with what we declared then: where that is not what would be `declared` now, only tasks are reason
        enough to go on in it.
        """
        kept = self._newest.get(config.name)
        if kept is None or kept.url != config.url:
            return None
        is_as_declared = self._declared.get(config.name, declared or {}) == (declared or {})
        return kept.session if is_as_declared or self._anchors.hold(config.name) else None

    def forget(self, server: str) -> None:
        """The link to `server` was closed on purpose; another one, be it of the same name, has a session of its own."""
        self._newest.pop(server, None)
        self._declared.pop(server, None)
