"""One session's own connection to one server.

A link connects when it is first needed, shares one attempt among all who wait for it, and connects again after a loss.
What comes from the server goes to the session through `LinkSink`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal, Protocol, TypeAlias

import anyio
import anyio.abc
from structlog import get_logger

from emceepee.client import ClientOptions, Http, Question, ServerConnection, Sse, Stdio, Target, connect
from emceepee.clock import Clock
from emceepee.config import ServerConfig
from emceepee.core.buffers import LogSource
from emceepee.errors import ServerDisconnected, ToolNotFound, WireError

__all__ = ["Link", "LinkSink", "LinkStatus", "target_of"]

LinkStatus: TypeAlias = Literal["not_connected", "connecting", "connected", "error", "disconnected"]
JsonObject: TypeAlias = dict[str, Any]
log = get_logger(__name__)

SIMILAR_NAMES = 3
"""How many names are offered to someone who mistyped one."""


class LinkSink(Protocol):
    """Where a link tells what happens."""

    def on_link_connected(self, link: Link) -> None: ...

    def on_link_lost(self, link: Link, reason: str) -> None: ...

    def on_question(self, link: Link, question: Question) -> None: ...

    def on_notification(self, link: Link, method: str, params: Mapping[str, Any]) -> None: ...

    def on_log(self, link: Link, source: LogSource, entry: Mapping[str, Any]) -> None: ...


@dataclass(slots=True)
class _Attempt:
    """One try to connect, for everybody who waits for it."""

    done: anyio.Event = field(default_factory=anyio.Event)
    server: ServerConnection | None = None
    error: str | None = None


class Link:
    """Owned by a session's task group; `close` ends it for good."""

    def __init__(
        self,
        config: ServerConfig,
        sink: LinkSink,
        clock: Clock,
        tasks: anyio.abc.TaskGroup,
        *,
        find_target: Callable[[ServerConfig], Target],
        question_timeout_ms: int,
    ) -> None:
        self._question_timeout_ms = question_timeout_ms
        self.config = config
        self._find_target = find_target
        self.status: LinkStatus = "not_connected"
        self.last_error: str | None = None
        self.connected_at: float | None = None
        self.server: ServerConnection | None = None
        self.tools: dict[str, JsonObject] = {}
        """The server's tools by name, as of the last time that it was asked; kept over a disconnect."""
        self.times_connected = 0
        self.subscriptions: dict[str, None] = {}
        """The resources that the client wants to be told of; asked for again after a reconnect."""
        self._sink = sink
        self._clock = clock
        self._tasks = tasks
        self._attempt: _Attempt | None = None
        self._scope = anyio.CancelScope()
        self._era: Literal["auto", "handshake", "modern"] = config.era
        self._refreshing = False

    @property
    def name(self) -> str:
        return self.config.name

    def start(self) -> None:
        """Begin to connect, unless that is under way or done."""
        if self._attempt is None and self.status != "disconnected":
            self._attempt = _Attempt()
            self.status = "connecting"
            self._tasks.start_soon(self._own_connection, self._attempt)

    async def connected(self) -> ServerConnection:
        """The connection, after connecting if need be.

        Raises:
            ServerDisconnected: it cannot be had.
        """
        if self.server is not None:
            return self.server
        self.start()
        if (attempt := self._attempt) is None:
            raise ServerDisconnected(self.name, self.last_error or "it was disconnected on purpose")
        await attempt.done.wait()
        if attempt.server is None:
            raise ServerDisconnected(self.name, attempt.error or "the connection was closed")
        return attempt.server

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
        self.status = "disconnected"
        self.last_error = reason
        self._scope.cancel()

    def _options(self) -> ClientOptions:
        # The answer to a question with a task takes as long as to any other, whatever time the server names.
        return ClientOptions(era=self._era, receiver_tasks=True, min_receiver_task_ttl_ms=self._question_timeout_ms)

    # The owner task

    async def _own_connection(self, attempt: _Attempt) -> None:
        reason = "the connection was closed"
        try:
            with self._scope:
                options = self._options()
                async with connect(
                    self._find_target(self.config), options=options, sink=self, clock=self._clock
                ) as server:
                    await self.refresh_tools(server)
                    for uri in tuple(self.subscriptions):
                        await server.subscribe(uri)
                    self._opened(attempt, server)
                    await server.closed.wait()
                    reason = server.lost_reason
        except WireError as error:
            reason = getattr(error, "reason", str(error))
        except Exception as error:
            log.exception("link_failed", server=self.name)
            reason = f"{type(error).__name__} in the hub"
        finally:
            self._ended(attempt, reason)

    def _opened(self, attempt: _Attempt, server: ServerConnection) -> None:
        self.server = attempt.server = server
        self.status = "connected"
        self.last_error = None
        self.connected_at = self._clock.now()
        self.times_connected += 1
        # Remembered, so that a server which ignores the probe makes us wait for it only once.
        self._era = server.era
        attempt.done.set()
        self._sink.on_link_connected(self)

    def _ended(self, attempt: _Attempt, reason: str) -> None:
        was_connected = attempt.server is not None
        self.server = None
        self._attempt = None
        if self.status == "disconnected":
            reason = self.last_error or reason
        else:
            self.status = "not_connected" if was_connected else "error"
            self.last_error = reason
            if not was_connected:
                self._era = self.config.era
        attempt.error = reason
        attempt.done.set()
        if was_connected:
            self._sink.on_link_lost(self, reason)
        else:
            log.warning("server_connect_failed", server=self.name, error=reason)

    # What comes from the server

    def on_question(self, question: Question) -> None:
        self._sink.on_question(self, question)

    def on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        self._sink.on_notification(self, method, params)
        if method == "notifications/tools/list_changed" and self.server is not None and not self._refreshing:
            self._refreshing = True
            self._tasks.start_soon(self._refresh_in_background, self.server)

    def on_log(self, source: LogSource, entry: Mapping[str, Any]) -> None:
        self._sink.on_log(self, source, entry)

    async def _refresh_in_background(self, server: ServerConnection) -> None:
        self._refreshing = False
        try:
            await self.refresh_tools(server)
        except WireError as error:
            log.warning("list_tools_failed", server=self.name, error=str(error))


def target_of(config: ServerConfig) -> Target:
    if config.command is not None:
        return Stdio(config.command, config.args, config.env, config.cwd)
    url = config.url or ""
    if config.transport == "sse":
        return Sse(url, config.headers)
    return Http(url, config.headers, fallback=config.transport == "auto")
