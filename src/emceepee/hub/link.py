"""One session's own connection to one server.

A link connects when it is first needed, shares one attempt among all who wait for it, and connects again after a loss
as `core/links.py` says. What comes from the server goes to the session through `LinkSink`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, TypeAlias

import anyio
import anyio.abc
from structlog import get_logger
from structlog.contextvars import bound_contextvars

from emceepee.client import ClientOptions, EraChoice, Http, Question, ServerConnection, Target, connect
from emceepee.clock import Clock
from emceepee.config import ServerConfig
from emceepee.core.backoff import Backoff
from emceepee.core.buffers import LogSource
from emceepee.core.links import LinkIdentity, LinkLife, LinkStatus
from emceepee.errors import ServerDisconnected, ToolNotFound, WireError
from emceepee.hub.attempt import Attempt
from emceepee.hub.link_sink import LinkSink
from emceepee.hub.remedies import remedy_for
from emceepee.hub.seen_lists import SeenLists
from emceepee.hub.server_sessions import ServerSessions
from emceepee.hub.wishes import Wishes

__all__ = ["Link"]

JsonObject: TypeAlias = dict[str, Any]
log = get_logger(__name__)

NEW_WANTED = "a new connection was asked for"

PREPARATION_SECONDS = 60.0
"""For the answers that a connection cannot be used without; as long as for the handshake."""

SESSION_TRIES = 3
"""Refusals in a row after which a session may be given up that the server does not say to have forgotten: some gateways
answer 502 or 503 for the sessions of a server that is gone, for ever."""

PROGRAM_RESTARTS = 5
"""How often in a row a program is started again; after that it is broken, and somebody has to look at it."""

LAST_WORDS = 200
"""How much of a program's last line is quoted."""

SIMILAR_NAMES = 3
"""How many names are offered to someone who mistyped one."""


class Link:
    """Owned by a session's task group; `close` ends it for good."""

    def __init__(
        self,
        config: ServerConfig,
        sink: LinkSink,
        clock: Clock,
        tasks: anyio.abc.TaskGroup,
        *,
        session_log_name: str,
        find_target: Callable[[ServerConfig], Target],
        sessions: ServerSessions,
        wishes: Wishes,
        question_timeout_ms: int,
        backoff: Backoff,
        roots: Sequence[str] = (),
        prefers_handshake: bool = False,
        keeps_logs: bool = False,
    ) -> None:
        """With `keeps_logs`, a server that sends logs only to who asks is asked for them."""
        self._roots = roots
        self._keeps_logs = keeps_logs
        self.config = config
        self._first_choice: EraChoice = "handshake_first" if prefers_handshake and config.era == "auto" else config.era
        self.life = LinkLife(backoff, budget=PROGRAM_RESTARTS if config.is_program else None)
        self.tools: dict[str, JsonObject] = {}
        """The server's tools by name, as of the last time that it was asked; kept over a disconnect."""
        self.lists = SeenLists()
        self.wishes = wishes
        self._sink = sink
        self._clock = clock
        self._tasks = tasks
        self._session_log_name = session_log_name
        self._find_target = find_target
        self._sessions = sessions
        self._wants_new_session = False
        self._question_timeout_ms = question_timeout_ms
        self._attempt: Attempt | None = None
        self._hurry = anyio.Event()
        self._scope = anyio.CancelScope()
        self._era: EraChoice = self._first_choice
        self._refreshing = False
        self._is_stale = False
        """The tools have changed since the server was last asked for them."""
        self._last_failure = ""
        self._failure_count = 0
        """How often in a row that has kept it from connecting."""
        self._last_words = ""
        """What a program wrote last to its stderr: mostly why it ended."""

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def status(self) -> LinkStatus:
        return self.life.status

    @property
    def server(self) -> ServerConnection | None:
        """The connection, if there is one."""
        return None if self._attempt is None else self._attempt.usable

    def start(self) -> None:
        """Begin to connect, unless that is under way or done."""
        if self._attempt is None and self.status != "disconnected":
            self._attempt = Attempt()
            self._tasks.start_soon(self._own_connections)

    async def connected(self) -> ServerConnection:
        """The connection, after connecting if need be; who asks while we wait for the next try makes us try at once.

        Raises:
            ServerDisconnected: it cannot be had.
        """
        while True:
            if self._attempt is None and not self.life.has_given_up:
                self.start()
            if (attempt := self._attempt) is None:
                raise self.unavailable(self.life.last_error or "it is disconnected")
            if not attempt.done.is_set():
                self._hurry.set()
                await attempt.done.wait()
            if attempt.server is None and not attempt.is_retired:
                raise self.unavailable(attempt.error or "the connection was closed")
            if (server := attempt.usable) is not None:
                return server
            await attempt.over.wait()

    async def back(self) -> ServerConnection:
        """The connection, however long it takes until there is one again.

        Raises:
            ServerDisconnected: there will be none.
        """
        while (attempt := self._attempt) is not None:
            await attempt.done.wait()
            if (server := attempt.usable) is not None:
                return server
            await attempt.over.wait()
        raise self.unavailable(self.life.last_error or "it is disconnected")

    def unavailable(self, reason: str) -> ServerDisconnected:
        """What whoever needs the connection is told: it is gone, or never was there."""
        return ServerDisconnected(self.name, reason, None if self.life.times_connected else remedy_for(self.config))

    def reconnect(self) -> None:
        """Have a new connection made now, whatever became of the old one: in a new session, unless tasks need it."""
        self.life.forgive()
        self._wants_new_session = not self._sessions.are_needed(self.name)
        if (attempt := self._attempt) is not None and attempt.is_under_way:
            attempt.is_retired = True
            if attempt.server is not None:
                attempt.server.hang_up(NEW_WANTED)
            else:
                attempt.scope.cancel()
        self.start()

    async def server_for_tool(self, tool: str) -> ServerConnection:
        """The connection to call `tool` on; the server is asked again before a tool is declared unknown.

        Raises:
            ServerDisconnected: it cannot be had.
            ToolNotFound: the server has no such tool.
        """
        server = await self.connected()
        if tool not in self.tools:
            await self.refresh_tools(server)
            if tool not in self.tools:
                raise ToolNotFound(tool, self.name, get_close_matches(tool, self.tools, SIMILAR_NAMES))
        return server

    async def refresh_tools(self, server: ServerConnection) -> None:
        """Ask the server for its tools; one without the capability has none."""
        tools = await server.list_tools() if "tools" in server.capabilities else []
        self.tools = {tool["name"]: tool for tool in tools if isinstance(tool.get("name"), str)}

    def close(self, reason: str) -> None:
        """End the connection on purpose."""
        self._sessions.forget(self.name)
        self.life.closed(reason)
        self._scope.cancel()

    # The owner task

    async def _own_connections(self) -> None:
        """Connect, and again after every loss, until that is pointless or nobody wants it any more."""
        with self._scope, bound_contextvars(session=self._session_log_name, server=self.name):
            try:
                # It may have been closed before this task ran for the first time.
                while (attempt := self._attempt) is not None and self.status != "disconnected":
                    self.life.connecting()
                    reason = await self._connection(attempt)
                    await self._after(attempt, reason)
            finally:
                self._abandon()

    async def _connection(self, attempt: Attempt) -> str:
        """One connection from its beginning to its end; says why it ended."""
        attempt.is_under_way = True
        try:
            with attempt.scope:
                options = self._options()
                async with connect(self._target(options), options=options, sink=self, clock=self._clock) as server:
                    tools_before = self.tools
                    with self._clock.move_on_after(PREPARATION_SECONDS) as preparing:
                        await self._prepare(server)
                    if preparing.cancelled_caught:
                        return f"it did not say within {PREPARATION_SECONDS:g} s which tools it has"
                    self._opened(attempt, server, options, tools_before)
                    await server.closed.wait()
                    return server.lost_reason
        except WireError as error:
            return str(getattr(error, "reason", error))
        except Exception as error:
            log.exception("link_failed", server=self.name)
            return f"{type(error).__name__} in the hub"
        finally:
            attempt.is_under_way = False
        return NEW_WANTED

    async def _prepare(self, server: ServerConnection) -> None:
        await self.refresh_tools(server)
        await self.wishes.tell(server)

    def _target(self, options: ClientOptions) -> Target:
        """The server, with the session that we had there."""
        target = self._find_target(self.config)
        if not isinstance(target, Http) or self._wants_new_session:
            return target
        session = self._sessions.to_take_up(self.config, options.identity().capabilities)
        return replace(target, session=session, insists=self._failure_count < SESSION_TRIES)

    def _opened(
        self,
        attempt: Attempt,
        server: ServerConnection,
        options: ClientOptions,
        tools_before: dict[str, JsonObject],
    ) -> None:
        info = server.server_info
        identity = LinkIdentity(
            session_id=server.session_id,
            version=(str(info.get("name", "")), str(info.get("version", ""))),
            process_id=server.process_id,
        )
        kind = self.life.connected(identity, self._clock.now())
        # Remembered, so that a server which ignores the probe makes us wait for it only once.
        self._era = server.era
        self._wants_new_session = False
        self._sessions.on_connected(self.config, server.session, options.identity().capabilities)
        attempt.server = server
        self._last_failure, self._failure_count = "", 0
        attempt.done.set()
        self._sink.on_link_connected(self, kind, tools_changed=kind is not None and tools_before != self.tools)

    async def _after(self, attempt: Attempt, reason: str) -> None:
        """The attempt is over: wait until it is time for the next one, if there is to be one."""
        was_connected = attempt.server is not None
        plain_reason, reason = reason, self._explained(reason)
        retry = self.life.failed(reason, self._clock.now(), random.random())  # noqa: S311  # spreads load, hides nothing
        self._settle(attempt, reason)
        if attempt.is_retired:
            # It was ended on purpose, which must not be counted as a failure of the server's.
            self.life.forgive()
        if was_connected:
            self._sink.on_link_lost(self, plain_reason)
        elif not attempt.is_retired:
            self._era = self._first_choice
            self._log_failure(plain_reason)
        self._attempt = None if retry is None else Attempt()
        attempt.over.set()
        if retry is None:
            log.warning("server_given_up", server=self.name, error=plain_reason)
            return
        self._sink.on_link_reconnecting(self, retry)
        self._hurry = anyio.Event()
        if attempt.is_retired:
            return
        with self._clock.move_on_after(retry.delay):
            await self._hurry.wait()

    def _log_failure(self, reason: str) -> None:
        """The same failure again is said quietly; a server that is away for days must not fill the log."""
        event = "server_reconnect_failed" if self.life.times_connected else "server_connect_failed"
        if reason != self._last_failure:
            self._last_failure, self._failure_count = reason, 1
            log.warning(event, server=self.name, error=reason)
        else:
            self._failure_count += 1
            log.debug(event, server=self.name, error=reason, count=self._failure_count)

    def _explained(self, reason: str) -> str:
        """Why a program failed, with its own last words; they are for clients, and not for our log."""
        words, self._last_words = self._last_words, ""
        return f'{reason}; it wrote: "{words[:LAST_WORDS]}"' if words and self.config.is_program else reason

    def _abandon(self) -> None:
        """The link ends with an attempt under way: whoever waits for it, or uses its connection, is told."""
        if (attempt := self._attempt) is None:
            return
        self._attempt = None
        reason = self.life.last_error or "the link was closed"
        self._settle(attempt, reason)
        attempt.over.set()
        if attempt.server is not None:
            self._sink.on_link_lost(self, reason)

    def _settle(self, attempt: Attempt, reason: str) -> None:
        attempt.error = reason
        attempt.done.set()

    def _options(self) -> ClientOptions:
        # The answer to a question with a task takes as long as to any other, whatever time the server names.
        options = ClientOptions(
            era=self._era,
            receiver_tasks=True,
            min_receiver_task_ttl_ms=self._question_timeout_ms,
            roots=self._roots,
            find_roots=self._sink.find_roots,
            # All of them, as a server of the handshake era sends them to whoever sets no level.
            log_level="debug" if self._keeps_logs else None,
            leaves_session=lambda: self._sessions.are_needed(self.name),
        )
        if (declared := self._sink.capabilities_of_client()) is None:
            return options
        return replace(
            options,
            elicitation="elicitation" in declared,
            sampling="sampling" in declared,
            receiver_tasks="tasks" in declared,
            roots=self._roots if "roots" in declared else None,
            capabilities=declared,
        )

    # What comes from the server

    def on_question(self, question: Question) -> None:
        self._sink.on_question(self, question)

    def on_notification(self, method: str, params: Mapping[str, Any], origin: object) -> None:
        self._sink.on_notification(self, method, params, origin)
        if method == "notifications/tools/list_changed" and self.server is not None:
            self._is_stale = True
            if not self._refreshing:
                self._refreshing = True
                self._tasks.start_soon(self._refresh_in_background, self.server)

    def on_log(self, source: LogSource, entry: Mapping[str, Any], origin: object) -> None:
        if source == "stderr" and str(entry.get("data", "")).strip():
            self._last_words = str(entry["data"]).strip()
        self._sink.on_log(self, source, entry, origin)

    def on_interrupted(self, origin: object) -> None:
        self._sink.on_interrupted(self, origin)

    async def _refresh_in_background(self, server: ServerConnection) -> None:
        """Ask again as long as the tools change meanwhile, but one question at a time, however often we are told."""
        try:
            while self._is_stale:
                self._is_stale = False
                await self.refresh_tools(server)
        except WireError as error:
            log.warning("list_tools_failed", server=self.name, error=str(error))
        finally:
            self._refreshing = False
