"""What a session's links tell: recorded, told to its client, and passed on word for word to whoever listens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

import anyio
from structlog import get_logger

from emceepee.client import Question as ServerQuestion
from emceepee.core.buffers import LogSource
from emceepee.core.links import ReconnectKind, Retry
from emceepee.core.reconcile import ServerAnswer, reconcile, tasks_that_live_on
from emceepee.core.state import SessionState
from emceepee.errors import PeerError, WireError
from emceepee.hub.call import Call
from emceepee.hub.link import Link
from emceepee.hub.origin import Origin
from emceepee.hub.shared import Shared
from emceepee.protocol import INVALID_PARAMS

__all__ = ["OnNotification", "ServerNews"]

log = get_logger(__name__)

OnNotification: TypeAlias = Callable[[str, str, Mapping[str, Any]], None]
"""Told the server, the method and the parameters."""

ANSWER_SECONDS = 10.0
"""For what a server that is back has to say of its tasks, before the client is told that it is back."""

_QUIET_METHODS = frozenset({"notifications/initialized", "notifications/subscriptions/acknowledged"})
"""Notifications that only the connection itself needs."""

_CHANGED = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
    "resource_templates": "notifications/resources/list_changed",
}
"""What says that a list is another one."""

_OF_NO_CALL = ("/list_changed", "resources/updated")
"""Ends of methods that tell of the server, whichever stream they came on."""

_CARRIED = ("elicitation", "sampling", "roots", "tasks", "experimental")
"""Capabilities of a client that a server behind us can make use of."""


class _Owner(Protocol):
    """The session, as far as its news need it."""

    @property
    def connects_to_all(self) -> bool: ...

    def spawn(self, run: Callable[..., Any], *args: object) -> None: ...

    def on_server_question(self, link: Link, question: ServerQuestion) -> None: ...


class ServerNews:
    """Implements `LinkSink` for the links of one session."""

    def __init__(self, owner: _Owner, state: SessionState, origin: Origin, shared: Shared) -> None:
        self._owner = owner
        self._state = state
        self._origin = origin
        self._shared = shared
        self._listeners: dict[object, OnNotification] = {}
        self.roots_of_client: Callable[[], Awaitable[Mapping[str, Any] | None]] | None = None
        """How to ask a client for its roots that has some."""

    def listen(self, listener: OnNotification) -> Callable[[], None]:
        """Have `listener` told every notification of every server that belongs to no call; returns how to stop."""
        key = object()
        self._listeners[key] = listener

        def stop() -> None:
            self._listeners.pop(key, None)

        return stop

    def lists_changed(self, server: str) -> None:
        """To a client that sees all servers as one, a server that comes or goes is a change of its lists."""
        if self._owner.connects_to_all and not self._origin.is_for_tools:
            self.lists_may_have_changed(server)

    def lists_may_have_changed(self, server: str) -> None:
        for method in dict.fromkeys(_CHANGED.values()):
            self._pass_on(server, method, {}, None)

    # The life of a link

    def on_link_connected(self, link: Link, kind: ReconnectKind | None, *, tools_changed: bool) -> None:
        log.info("server_connected", server=link.name, **link.config.public())
        self._shared.telemetry.link_connected(link.name, again=kind is not None)
        if kind is None:
            capabilities = {} if link.server is None else dict(link.server.capabilities)
            data = {"name": link.name, "capabilities": capabilities}
            self._state.events.append("server_connected", link.name, data)
            self.lists_changed(link.name)
        else:
            self._owner.spawn(self._reconcile, link, kind, tools_changed)

    def on_link_lost(self, link: Link, reason: str) -> None:
        log.info("server_disconnected", server=link.name, reason=reason)
        self._shared.telemetry.link_lost(link.name)
        for task_id in self._living_on(link):
            self._state.tasks.update(task_id, status_message=f"{link.name} is away: {reason}")
        self._state.events.append("server_disconnected", link.name, {"name": link.name, "reason": reason})

    def on_link_reconnecting(self, link: Link, retry: Retry) -> None:
        delay_ms = round(retry.delay * 1000)
        # The first try is news; the log need not hear of each that follows.
        say = log.info if retry.attempt == 1 else log.debug
        say("server_reconnecting", server=link.name, attempt=retry.attempt, delay_ms=delay_ms)
        # Told once: a server that is away for hours would otherwise wake the client with every try.
        if retry.attempt == 1 and link.life.times_connected:
            data = {"name": link.name, "attempt": retry.attempt, "delay_ms": delay_ms}
            self._state.events.append("server_reconnecting", link.name, data)

    async def _reconcile(self, link: Link, kind: ReconnectKind, tools_changed: bool) -> None:
        """A server is back: ask it about its tasks, and tell what is left of what was."""
        before, after = await self._lists(link)
        found = reconcile(
            lists_before={"tools": None if tools_changed else link.tools, **before},
            lists_after={"tools": link.tools, **after},
            answers=await self._answers(link),
            questions_kept=len(self._state.questions.pending(server=link.name)),
        )
        data = {"name": link.name, "kind": kind, **found.as_json()}
        for task_id in self._living_on(link):
            self._state.tasks.update(task_id, status_message=f"{link.name} is back")
        self._state.events.append("server_reconnected", link.name, data)
        for method in dict.fromkeys(_CHANGED[name] for name in found.changed):
            self.on_notification(link, method, {})
        if kind == "restart" and not self._origin.is_for_tools:
            # Nobody knows which lists such a client has looked at.
            self.lists_may_have_changed(link.name)

    def _living_on(self, link: Link) -> tuple[str, ...]:
        questions = self._state.questions.pending(server=link.name)
        return tasks_that_live_on(self._state.tasks.live(link.name), questions)

    async def _lists(self, link: Link) -> tuple[Mapping[str, object], Mapping[str, object]]:
        """The lists that the client has looked at, as they were and as they are."""
        with self._shared.clock.move_on_after(ANSWER_SECONDS), suppress(WireError):
            if link.server is not None:
                return await link.lists.compare(link.server)
        return {}, {}

    async def _answers(self, link: Link) -> Mapping[str, ServerAnswer]:
        """What the server says of each of its tasks that we know of."""
        asked = {
            task.task_id: task.server_task_id
            for task in self._state.tasks.live(link.name)
            if task.server_task_id is not None
        }
        answers: dict[str, ServerAnswer] = dict.fromkeys(asked, "silent")

        async def ask(task_id: str) -> None:
            answers[task_id] = await _ask_about(link, asked[task_id])

        with self._shared.clock.move_on_after(ANSWER_SECONDS):
            async with anyio.create_task_group() as tasks:
                for task_id in asked:
                    tasks.start_soon(ask, task_id)
        return answers

    # What servers say and ask

    def on_question(self, link: Link, question: ServerQuestion) -> None:
        self._owner.on_server_question(link, question)

    def on_notification(self, link: Link, method: str, params: Mapping[str, Any], origin: object = None) -> None:
        if method not in _QUIET_METHODS:
            self._state.buffers.add_notification(link.name, method, params)
            self._state.events.append("notification", link.name, {"method": method, "params": dict(params)})
            self._pass_on(link.name, method, params, None if method.endswith(_OF_NO_CALL) else origin)

    def on_log(self, link: Link, source: LogSource, entry: Mapping[str, Any], origin: object = None) -> None:
        self._state.buffers.add_log(link.name, source, entry)
        if source == "protocol":
            self._pass_on(link.name, "notifications/message", entry, origin)

    def on_interrupted(self, link: Link, origin: object) -> None:
        if isinstance(origin, Call):
            origin.attendant.interrupted()

    def capabilities_of_client(self) -> Mapping[str, Any] | None:
        # What its own client cannot be asked, somebody else may answer; if there is nobody, the server should know.
        if self._origin.is_for_tools or self._shared.someone_answers(self._origin.principal):
            return None
        declared: Mapping[str, Any] = self._origin.client.get("capabilities", {})
        return {key: value for key, value in declared.items() if key in _CARRIED}

    async def find_roots(self) -> Mapping[str, Any] | None:
        return None if self.roots_of_client is None else await self.roots_of_client()

    def _pass_on(self, server: str, method: str, params: Mapping[str, Any], origin: object) -> None:
        """Word for word, to the client whose call it belongs to, or else to all who listen."""
        if isinstance(origin, Call):
            origin.attendant.notification(method, params)
            return
        for listener in tuple(self._listeners.values()):
            listener(server, method, params)


async def _ask_about(link: Link, server_task_id: str) -> ServerAnswer:
    if link.server is None:
        return "silent"
    try:
        task = await link.server.get_task(server_task_id)
    except PeerError as error:
        # Any other error says nothing of the task.
        return "unknown" if error.code == INVALID_PARAMS else "silent"
    except WireError:
        return "silent"
    return "finished" if task.is_terminal else "known"
