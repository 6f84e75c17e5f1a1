"""The registry of servers and the sessions of all clients."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable

import anyio
import anyio.abc
from structlog import get_logger

from emceepee.client import Target
from emceepee.client.leftovers import end_leftovers
from emceepee.clock import Clock, SystemClock
from emceepee.concurrency import task_group
from emceepee.config import HubSettings, ServerConfig
from emceepee.errors import EmceepeeError, HubStopping
from emceepee.hub.journal import Memories, forget_server, recall, save_secret, save_server, save_session
from emceepee.hub.origin import LOCAL, Origin
from emceepee.hub.registry import ServerRegistry
from emceepee.hub.session import Session
from emceepee.hub.shared import Shared
from emceepee.hub.targets import target_of
from emceepee.hub.telemetry import Telemetry
from emceepee.ids import secure_ids
from emceepee.store import MemoryStore, Store

__all__ = ["Hub", "TooManySessions"]

log = get_logger(__name__)


class TooManySessions(EmceepeeError):
    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"{limit} sessions are open already")


class Hub:
    """Run it in a task group with `run`, end it with `close`."""

    def __init__(
        self,
        servers: Iterable[ServerConfig] = (),
        *,
        settings: HubSettings | None = None,
        clock: Clock | None = None,
        find_target: Callable[[ServerConfig], Target] = target_of,
        telemetry: Telemetry | None = None,
        store: Store | None = None,
        restore_programs: bool = True,
        has_local_user: bool = True,
    ) -> None:
        """`restore_programs` says whether programs that clients added before a restart may be started again,
        `has_local_user` whether there are clients that need not say who they are."""
        self._restore_programs = restore_programs
        self._has_local_user = has_local_user
        self.clock = clock or SystemClock()
        self.settings = settings or HubSettings()
        self.registry = ServerRegistry(servers)
        self.telemetry = telemetry or Telemetry()
        self.store = store or MemoryStore()
        self._shared = Shared(
            self.registry,
            self.settings,
            self.clock,
            find_target,
            self.telemetry,
            self.store,
            someone_answers=self._someone_answers,
        )
        self.sessions: dict[str, Session] = {}
        self._ids = secure_ids(self.clock)
        self._opening = 0
        self._secrets: dict[str, str] = {}
        self._workspaces: dict[str, str] = {}
        self._opening_workspaces: dict[str, anyio.Event] = {}
        self._closing = anyio.Event()
        self.closed = anyio.Event()
        """Set when every session has ended after `close`."""
        self._tasks: anyio.abc.TaskGroup

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Be there until `close`, then end all sessions side by side; what the store keeps of them is left in it.

        Raises:
            StoreError: the store cannot be used.
        """
        async with self.store.opened(), task_group() as self._tasks:
            records = await self.store.load()
            if self.store.place is not None and (count := end_leftovers(self.store.place)):
                log.warning("leftover_programs_ended", count=count)
            await self._restore(recall(records))
            task_status.started()
            await self._closing.wait()
            log.info("registry_shutdown_start", server_count=len(self.registry), session_count=len(self.sessions))
            for session in tuple(self.sessions.values()):
                session.suspend()
        log.info("registry_shutdown_complete")
        self.closed.set()

    def close(self) -> None:
        self._closing.set()

    async def open_session(self, origin: Origin | None = None, *, connect: bool = True) -> Session:
        """A new session; with `connect` it begins at once to connect to every server.

        Raises:
            TooManySessions: the limit of the settings is reached.
            HubStopping: it is too late for that.
        """
        if self._closing.is_set():
            raise HubStopping
        if len(self.sessions) + self._opening >= self.settings.max_sessions:
            raise TooManySessions(self.settings.max_sessions)
        session = Session(self._ids(), self._shared, origin)
        save_session(self.store, session.id, self.clock.now(), session.origin)
        await self._open(session)
        if connect:
            session.connect_all()
        # Its id is about to be told, and has to be known to the next hub as well.
        await self.store.sync()
        return session

    async def workspace(self, origin: Origin) -> Session:
        """The session that stands for a workspace of a principal, opened when it is first named.

        Raises:
            TooManySessions: as for `open_session`.
        """
        key = origin.key
        while True:
            session = self.sessions.get(self._workspaces.get(key, ""))
            if session is not None and not session.is_closing:
                return session
            if key not in self._opening_workspaces:
                break
            await self._opening_workspaces[key].wait()
        opened = self._opening_workspaces[key] = anyio.Event()
        try:
            session = await self.open_session(origin, connect=False)
            self._workspaces[key] = session.id
            return session
        finally:
            del self._opening_workspaces[key]
            opened.set()

    def inherit(self, heir: Session) -> None:
        """Give a session the results that clients of the same principal have left."""
        for session in self.sessions_of(heir.origin.principal):
            if session.origin.is_left:
                heir.inherit(session)

    def sessions_of(self, principal: str) -> list[Session]:
        """The open sessions of a principal, oldest first."""
        return [session for session in self._open_sessions() if session.origin.principal == principal]

    async def _open(self, session: Session) -> None:
        self._opening += 1
        try:
            await self._tasks.start(self._run_session, session)
        finally:
            self._opening -= 1

    async def _restore(self, memories: Memories) -> None:
        """Be who we were before a restart, as far as that was written down."""
        self._secrets.update(memories.secrets)
        for config, principal in memories.servers:
            if config.is_program and not self._restore_programs:
                log.warning("server_not_restored", server=config.name, reason="starting programs is not allowed")
            elif principal != LOCAL:
                self.registry.put(config, principal)
            elif self._has_local_user and config.name not in self.registry.of(LOCAL):
                self.registry.put(config, LOCAL)
        for session_id, memory in memories.sessions.items():
            try:
                session = Session(session_id, self._shared, memory.origin, memory)
                await self._open(session)
            except Exception:
                # It stays in the store as it is; all others are needed.
                log.exception("session_not_restored")
                continue
            if session.origin.workspace is not None:
                self._workspaces[session.origin.key] = session.id
        if memories.sessions:
            log.info("sessions_restored", count=len(self.sessions))

    def _someone_answers(self, principal: str) -> bool:
        return any(session.origin.is_for_tools and session.connects_to_all for session in self.sessions_of(principal))

    def knows_server(self, name: str, principal: str) -> bool:
        """Whether there is a server of that name for this principal."""
        return name in self.registry.of(principal)

    def secret(self, name: str) -> bytes:
        """A key of 32 bytes that outlives a restart, made when it is first asked for."""
        if name not in self._secrets:
            self._secrets[name] = secrets.token_hex(32)
            save_secret(self.store, name, self._secrets[name])
        return bytes.fromhex(self._secrets[name])

    async def put_server(self, config: ServerConfig, by: Session | None = None) -> None:
        """Add or update a server, for the principal of `by` or for everybody.

        Other sessions than `by` that can see it are told, and connect to it as well.
        """
        owner = None if by is None else by.origin.principal
        if self.registry.find(config.name, owner or LOCAL) == config:
            return
        seen = self._seen(config.name)
        self.registry.put(config, owner)
        if owner is not None:
            save_server(self.store, config, owner)
        await self._tell_of(config.name, seen, by)

    async def remove_server(self, name: str, by: Session | None = None) -> None:
        """Remove a server of the principal of `by`, or one of everybody's.

        Raises:
            ServerNotFound: there is none of that name.
            NotAllowed: it is not theirs.
        """
        principal = LOCAL if by is None else by.origin.principal
        seen = self._seen(name)
        self.registry.remove(name, principal)
        forget_server(self.store, name, principal)
        await self._tell_of(name, seen)

    def _seen(self, name: str) -> list[tuple[Session, ServerConfig | None]]:
        """What the open sessions see under a name."""
        return [(session, session.registry.find(name)) for session in self._open_sessions()]

    async def _tell_of(
        self, name: str, seen: list[tuple[Session, ServerConfig | None]], by: Session | None = None
    ) -> None:
        """Have the sessions take up what they see now under a name, instead of what they saw."""
        changes = [(session, before, session.registry.find(name)) for session, before in seen]
        for session, before, now in changes:
            if before == now:
                continue
            if before is not None:
                await session.drop_link(name, "Server removed" if now is None else "Server updated")
            if now is None:
                session.state.buffers.forget(name)
                session.announce("server_removed", name)
            elif session is not by:
                session.announce("server_added", name, updated=before is not None)
                if session.connects_to_all and not session.is_closing and name in session.registry:
                    session.link(name).start()
        await self.store.sync()

    def _open_sessions(self) -> list[Session]:
        return [session for session in self.sessions.values() if not session.is_closing]

    async def _run_session(self, session: Session, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        with session.in_logs():
            await self._run_to_its_end(session, task_status)

    async def _run_to_its_end(self, session: Session, task_status: anyio.abc.TaskStatus[None]) -> None:
        try:
            await session.run(on_open=lambda: self.sessions.update({session.id: session}), task_status=task_status)
        except Exception:
            log.exception("session_crashed")
        finally:
            self.sessions.pop(session.id, None)
            if self._workspaces.get(session.origin.key) == session.id:
                del self._workspaces[session.origin.key]
