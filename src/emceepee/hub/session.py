"""Everything the hub holds for one client, and the loop that keeps its time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from typing import Any, Literal

import anyio
import anyio.abc
from structlog import get_logger
from structlog.contextvars import bound_contextvars

from emceepee.client import Question as ServerQuestion
from emceepee.concurrency import task_group
from emceepee.core.events import Event
from emceepee.core.idling import Idleness
from emceepee.core.questions import SURVIVING_ARRIVALS, Question, QuestionKind
from emceepee.core.state import SessionState
from emceepee.core.tasks import Task
from emceepee.core.timers import Timer
from emceepee.errors import HubStopping, ServerDisconnected, SessionClosed
from emceepee.hub.board import Desk, Reader
from emceepee.hub.call import Call
from emceepee.hub.calls import CallRunner
from emceepee.hub.journal import SessionMemories, StoreJournal
from emceepee.hub.link import Link
from emceepee.hub.news import ServerNews
from emceepee.hub.origin import Origin
from emceepee.hub.questions import QuestionDesk
from emceepee.hub.recollection import Recollection
from emceepee.hub.shared import Shared
from emceepee.hub.spent_states import SpentStates
from emceepee.hub.warnings import EventWarnings
from emceepee.timekeeper import Timekeeper

__all__ = ["Session"]

log = get_logger(__name__)

DURABLE_TRIES = 100
"""How often we wait for writes before a response: what came meanwhile has to be durable as well, if it is to be told. A
flood does not count (`late_events.py`), so this is far more than it takes."""


class Session:
    """Run by the hub: `run` opens it, `close` ends it."""

    def __init__(
        self,
        session_id: str,
        shared: Shared,
        origin: Origin | None = None,
        memories: SessionMemories | None = None,
    ) -> None:
        self.id = session_id
        self.log_name = sha256(session_id.encode()).hexdigest()[:8]
        """What logs call it: whoever reads the id there could use the session."""
        self.origin = origin or Origin()
        self.connects_to_all = False
        """Whether it wants a link to every server that there is, and not only to those that are used."""
        self.clock = shared.clock
        self.settings = shared.settings
        self.registry = shared.registry.of(self.origin.principal)
        self._shared = shared
        self._memories = memories
        self._time: Timekeeper[Timer] = Timekeeper(self.clock, self._fire)
        self._journal = StoreJournal(shared.store, session_id, self.origin, self.clock, self._time.deadlines)
        self.state = SessionState(
            self.clock,
            self.settings.limits,
            self._time.deadlines,
            journal=self._journal,
            on_warning=EventWarnings(self.clock, shared.telemetry).warn,
        )
        self.news = ServerNews(self, self.state, self.origin, shared)
        self._board = shared.boards.of(self.origin.principal)
        self._reader = Reader(self.state.events.append)
        self.links: dict[str, Link] = {}
        self.closed = anyio.Event()
        self._closing = anyio.Event()
        self._end: type[SessionClosed] = SessionClosed
        """What whoever still waits is told when it ends."""
        self._is_suspended = False
        self._tasks: anyio.abc.TaskGroup
        self.calls: CallRunner
        self.questions: QuestionDesk
        self._recollection: Recollection
        self._waits: set[anyio.CancelScope] = set()
        self._close_listeners: list[Callable[[], object]] = []
        self._holds = 0
        saved_at = None if memories is None else memories.last_active_at
        self._idleness = Idleness(
            self.clock, self.settings.session_idle_ms / 1000, self._journal.save_activity, saved_at=saved_at
        )

    async def run(
        self,
        *,
        on_open: Callable[[], None] = lambda: None,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Be there until `close`, then end everything at once: questions rejected, calls cancelled, links closed.

        `on_open` is called when the session can be used, before it looks at the registry for the first time.
        """
        try:
            async with task_group() as self._tasks:
                self.calls = CallRunner(
                    self.state,
                    self.clock,
                    self._tasks,
                    max_live=self.settings.limits.max_tasks,
                    telemetry=self._shared.telemetry,
                    on_promoted=self._on_call_promoted,
                    on_native=self._on_call_native,
                    on_ended=self._on_call_ended,
                )
                self.questions = QuestionDesk(
                    self.state,
                    self.calls,
                    self.clock,
                    self._shared.telemetry,
                    board=self._board,
                    has_tools=self.origin.is_for_tools,
                )
                if self.origin.is_for_tools:
                    self.on_closed(self._board.join(self._reader, is_new=self._memories is None))
                self._recollection = Recollection(
                    self.state, self.calls, self.questions, self._journal, self.durable, self._known_link
                )
                self._tasks.start_soon(self._time.run)
                self._arm_idle_timer()
                on_open()
                if self._memories is not None:
                    # Its client may never come back: its servers are connected when something needs them.
                    self._recollection.recall(self._memories)
                task_status.started()
                try:
                    await self._closing.wait()
                    # What the next hub asks again is not refused by this one.
                    spared = SURVIVING_ARRIVALS if self._is_suspended else frozenset()
                    end = self._end()
                    await self.questions.reject_all(end.message.rstrip("."), spare=spared)
                    self.calls.fail_all(end)
                    for wait in self._waits:
                        wait.cancel()
                finally:
                    self._tasks.cancel_scope.cancel()
        finally:
            self._closing.set()
            self.closed.set()
            for listener in self._close_listeners:
                listener()

    def on_closed(self, listener: Callable[[], object]) -> None:
        """Have `listener` called when everything of the session has ended."""
        self._close_listeners.append(listener)

    def close(self) -> None:
        """End for good: nothing of it is kept."""
        if not self._closing.is_set():
            self._journal.erase()
            self._closing.set()

    def leave(self) -> None:
        """End with the client of a pipe: what is kept are the results of its tasks, for the next one to `inherit`."""
        finished = [task for task in self.state.tasks.find(terminal=True) if task.is_terminal]
        if not finished or not self.origin.is_for_tools:
            self.close()
        elif not self._closing.is_set():
            self._journal.leave(finished)
            self._closing.set()

    def inherit(self, left: Session) -> None:
        """Take over the tasks of a session whose client has left."""
        for task in left.state.tasks.find(terminal=True):
            self.state.tasks.restore(task)
            self._journal.save_task(task)
        left.close()

    def suspend(self) -> None:
        """End with the hub: what is in the store stays there, for the next one."""
        self._journal.stop()
        self._end = HubStopping
        self._is_suspended = True
        self._closing.set()

    async def durable(self) -> None:
        """Wait until what has happened to it so far is written down: before that, nobody may hear of it."""
        for _ in range(DURABLE_TRIES):
            if not self._journal.owes:
                return
            await self._journal.pay()

    @property
    def spent_states(self) -> SpentStates:
        return self._journal.spent_states

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    # Questions

    def open_questions(self, kind: QuestionKind | None = None, *, server: str | None = None) -> list[Question]:
        """What its client can answer with the tools: its own questions, and those posted for its principal."""
        own = self.state.questions.pending(kind, server=server)
        return [*own, *self._board.pending(kind, server=server)] if self.origin.is_for_tools else own

    @contextmanager
    def desk_for(self, request_id: str, kind: QuestionKind) -> Iterator[Desk]:
        """Where the answer to one of the open questions goes.

        Raises:
            RequestNotFound: it is not open, or not any more.
        """
        if self.origin.is_for_tools and self._board.knows(request_id):
            with self._board.answering(request_id, kind, self._reader) as desk:
                yield desk
        else:
            yield self.questions

    # Servers

    def link(self, server: str) -> Link:
        """The session's link to a registered server.

        Raises:
            ServerNotFound: there is none of that name.
            SessionClosed: it is too late for that.
        """
        if self.is_closing:
            raise self._end
        config = self.registry.get(server)
        link = self.links.get(server)
        if link is None:
            link = self.links[server] = Link(
                config,
                self.news,
                self.clock,
                self._tasks,
                session_log_name=self.log_name,
                find_target=self._shared.marked_target,
                sessions=self._journal.server_sessions,
                wishes=self._journal.wishes(server),
                question_timeout_ms=self.settings.limits.question_timeout_ms,
                backoff=self.settings.backoff,
                roots=self.settings.roots,
                # Between two sides of the same era nothing has to be translated.
                prefers_handshake=bool(self.origin.endpoint) and self.origin.workspace is None,
                keeps_logs=self.origin.is_for_tools,
            )
        return link

    def spawn(self, run: Callable[..., Coroutine[Any, Any, Any]], *args: object) -> None:
        """Have something done for as long as the session lives."""
        self._tasks.start_soon(run, *args)

    def connect_all(self) -> None:
        """Begin to connect to every server, now and when one is added."""
        if not self.connects_to_all:
            self.connects_to_all = True
            for config in self.registry:
                self.link(config.name).start()

    def _known_link(self, server: str) -> Link | None:
        return self.link(server) if server in self.registry else None

    async def drop_link(self, server: str, reason: str) -> None:
        """Disconnect from a server on purpose: its calls and tasks fail, its questions are rejected."""
        if (link := self.links.pop(server, None)) is None:
            return
        self.calls.fail_all(ServerDisconnected(server, reason), server)
        await self.questions.reject_all(reason, server)
        link.close(reason)
        link.wishes.clear()
        self.news.lists_changed(server)

    def announce(self, event: Literal["server_added", "server_removed"], server: str, **facts: Any) -> None:
        """Tell the client of a change in the registry."""
        self.state.events.append(event, server, {"name": server, **facts})

    # What becomes of questions and calls

    def on_server_question(self, link: Link, question: ServerQuestion) -> None:
        self.questions.park(link.name, question)
        self._recollection.on_question(question)

    def _on_call_promoted(self, call: Call) -> None:
        self.questions.keep_for_task(call)

    def _on_call_native(self, call: Call) -> None:
        self._recollection.on_native(call)

    def _on_call_ended(self, call: Call) -> None:
        self.questions.withdraw_of(call)
        self._recollection.on_call_ended(call)

    # Waiting

    async def wait_for_event(self, timeout: float | None = None) -> Event | None:
        """The next event, or None after `timeout` seconds.

        Raises:
            SessionClosed: there will be no next event.
        """
        arrived = anyio.Event()
        found: list[Event] = []

        def wake(event: Event) -> None:
            found.append(event)
            arrived.set()

        if self.is_closing:
            raise self._end
        remove = self.state.events.add_waiter(wake)
        wait = anyio.CancelScope()
        self._waits.add(wait)
        try:
            with wait, self.clock.move_on_after(timeout):
                await arrived.wait()
        finally:
            remove()
            self._waits.discard(wait)
        if wait.cancelled_caught:
            raise self._end
        return found[0] if found else None

    async def wait_for_task(self, task_id: str, timeout: float | None) -> Task:
        """The task once it is terminal (which its TTL makes sure of), once a question of it opens, or after `timeout`.

        Raises:
            TaskNotFound: there is no such task.
        """
        with self.clock.move_on_after(timeout):
            while not self.state.tasks.get(task_id).is_terminal and not self.state.questions.pending(task_id=task_id):
                await self.wait_for_event()
        return self.state.tasks.get(task_id)

    async def wait_for_end(self, task_id: str) -> Task:
        """The task once it is terminal, whatever is asked for it meanwhile.

        Raises:
            TaskNotFound: there is no such task.
        """
        while not self.state.tasks.get(task_id).is_terminal:
            await self.wait_for_event()
        return self.state.tasks.get(task_id)

    # Time

    def in_logs(self) -> AbstractContextManager[None]:
        """What the body logs, and what the tasks log that it starts, names the session."""
        return bound_contextvars(session=self.log_name)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """While the body runs, the session is not idle."""
        self._holds += 1
        self._idleness.touch()
        try:
            yield
        finally:
            self._holds -= 1
            self._idleness.touch()

    @property
    def is_in_use(self) -> bool:
        """Whether a request, a stream, a call or a task is live."""
        return self._holds > 0 or len(self.calls) > 0 or self.state.tasks.live_count > 0

    def _arm_idle_timer(self) -> None:
        self.state.deadlines.set(Timer("idle", self.id), self._idleness.next_look())

    async def _fire(self, timer: Timer) -> None:
        match timer.kind:
            case "call":
                if (call := self.calls.of_timer(timer)) is not None and call.task_id is None:
                    self.calls.promote(call, "timeout")
            case "task_ttl":
                self.calls.expire(timer.key)
            case "task_retention":
                self.state.tasks.forget(timer.key)
            case "question":
                await self.questions.expire(timer.key)
            case "journal":
                self._journal.write_late()
            case "idle":
                self._look_for_activity()

    def _look_for_activity(self) -> None:
        if self.is_in_use:
            self._idleness.touch()
        if self._idleness.is_over():
            log.info("session_idle_timeout", idle_ms=self.settings.session_idle_ms)
            self.close()
        else:
            self._arm_idle_timer()
