"""What a server sends on its own: questions, notifications, logs.

`Inbound` is the handler of a connection's peer. It turns requests into questions and waits with the server for the
answer; whose they are is known to `origins.py`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias
from weakref import ref

import anyio

from emceepee.client.events import EventFeed, QuestionArrivedEvent, QuestionSettledEvent
from emceepee.client.options import ClientOptions, ClientSink
from emceepee.client.origins import Origins
from emceepee.client.questions import KIND_OF_METHOD, Question
from emceepee.client.receiver import METHODS as RECEIVER_METHODS
from emceepee.client.receiver import ReceiverTasks
from emceepee.client.resumption import Resumption, UnansweredRequest
from emceepee.client.urls import CompletedUrls
from emceepee.client.watch import TaskWatch
from emceepee.clock import Clock, sleep
from emceepee.core.questions import SURVIVING_ARRIVALS, Arrival, Belonging, QuestionKind
from emceepee.errors import PeerError
from emceepee.protocol import METHOD_NOT_FOUND
from emceepee.wire.peer import OnProgress
from emceepee.wire.transport import ChannelState, RequestId, StrayLine

__all__ = ["Inbound"]

JsonObject: TypeAlias = dict[str, Any]
logger = logging.getLogger(__name__)

TASK_NOTIFICATIONS = ("notifications/tasks/status", "notifications/tasks")

UNREAD_SECONDS = 5.0
"""How long a question waits for somebody to read it before we warn that nobody does."""

MAX_OPEN_QUESTIONS = 1000
"""Per connection; a server that asks more at once is refused, so that it cannot fill our memory."""


class Inbound:
    def __init__(self, options: ClientOptions, sink: ClientSink | None = None) -> None:
        self.roots: tuple[str, ...] = tuple(options.roots or ())
        self.is_closing = False
        """Set by the owner before it ends the connection."""
        self._state: ChannelState | None = None
        self._options = options
        self._sink = sink
        self.origins = Origins()
        self.watch = TaskWatch()
        self.completed_urls = CompletedUrls()
        self.events = EventFeed()
        self._followed: dict[object, tuple[object, Resumption]] = {}
        """The origins of tasks, each with what another connection needs to go on with it."""
        self._receiver: ReceiverTasks | None = None
        self._spawn: Callable[..., object] | None = None
        self._open: set[Question] = set()
        self.on_acknowledged: Callable[[], None] = lambda: None
        """Called when the server has taken up what we listen for."""
        self._untaken: dict[Question, None] = {}
        """Those of the open ones that `questions` has still to give out, oldest first."""
        self._is_read = False
        """Whether somebody has begun to read the questions, or has been told that nobody does."""
        self._clock: Clock | None = None
        self._is_lost = False
        self.stray_lines = 0
        self.first_stray_line = ""
        """What a program wrote to its output that is no message; if it is all that it wrote, it is no MCP server."""
        self._changed = anyio.Event()

    def bind(
        self, state: ChannelState, receiver: ReceiverTasks | None, spawn: Callable[..., object], clock: Clock
    ) -> None:
        """The channel whose end is also the end of every question that came over it, and what runs beside it."""
        self._state = state
        self._clock = clock
        # It may be the second try to connect.
        self._is_lost = False
        self.stray_lines, self.first_stray_line = 0, ""
        state.on_interrupted = self._interrupted
        self._receiver = receiver
        self._spawn = spawn

    def _interrupted(self, request_id: RequestId) -> None:
        if self._sink is not None and (origin := self.origins.of_request(request_id)) is not None:
            self._sink.on_interrupted(origin)

    # What the peer hands over

    async def on_request(
        self, method: str, params: Mapping[str, Any], related: int | None, request_id: RequestId | None
    ) -> JsonObject:
        if method == "ping":
            return {}
        if method == "roots/list" and self._options.roots is not None:
            return await self.list_roots()
        if method in RECEIVER_METHODS and self._receiver is not None:
            return await self._receiver.answer(method, params)
        if (kind := self._declared_kind(method)) is None:
            raise PeerError(METHOD_NOT_FOUND, f"Method not found: {method}")
        belongs_to = self.origins.belonging(related, params)
        if self._receiver is not None and isinstance(params.get("task"), Mapping):
            return self._ask_as_task(self._receiver, kind, params, belongs_to)
        question = self.ask(kind, params, arrival="request", belongs_to=belongs_to)
        with self._remembered(request_id, belongs_to.call):
            return await self.wait_for_answer(question)

    @contextmanager
    def remember(self, origin: object, resumption: Resumption) -> Iterator[None]:
        """While the body runs, `resumption` knows what a server waits for that belongs to `origin`."""
        key = object()
        self._followed[key] = (origin, resumption)
        try:
            yield
        finally:
            del self._followed[key]

    @contextmanager
    def _remembered(self, request_id: RequestId | None, origin: object) -> Iterator[None]:
        """While the body answers a request, and for good if the connection ends before it has."""
        session_id = None if self._state is None else self._state.session_id
        found = next((resumption for other, resumption in self._followed.values() if other is origin), None)
        if origin is None or found is None or session_id is None or request_id is None:
            yield
            return
        request = UnansweredRequest(session_id, request_id)
        found.unanswered.append(request)
        found.changed()
        try:
            yield
        finally:
            if not self._is_over and request in found.unanswered:
                found.unanswered.remove(request)
                found.changed()

    async def list_roots(self) -> JsonObject:
        """The answer to `roots/list`, however it was asked."""
        if self._options.find_roots is not None and (found := await self._options.find_roots()) is not None:
            return dict(found)
        return {"roots": [{"uri": uri} for uri in self.roots]}

    def _ask_as_task(
        self, receiver: ReceiverTasks, kind: QuestionKind, params: Mapping[str, Any], belongs_to: Belonging[Any]
    ) -> JsonObject:
        """The server does not wait: it gets a task at once, and asks for the answer later."""
        task = receiver.create(params["task"])
        question = self.ask(kind, params, arrival="receiver_task", belongs_to=belongs_to)
        if self._spawn is not None:
            self._spawn(receiver.serve, task, question)
        return {"task": task.as_wire()}

    def on_notification(self, method: str, params: Mapping[str, Any], related: int | None) -> None:
        if method in TASK_NOTIFICATIONS:
            self.watch.tell(params)
            return
        if method == "notifications/progress":
            self._pass_on_progress(params)
        if method == "notifications/subscriptions/acknowledged":
            self.on_acknowledged()
        if method == "notifications/elicitation/complete":
            self._complete_url(params)
        if self._sink is None:
            return
        if method == "notifications/message":
            self._sink.on_log("protocol", params, self.origins.belonging(related, params).call)
        elif method not in ("notifications/progress", "notifications/cancelled"):
            self._sink.on_notification(method, params, self.origins.belonging(related, params).call)

    def on_garbage(self, error: Exception) -> None:
        logger.debug("a server sent something that is no message: %s", type(error).__name__)
        line = error.shown if isinstance(error, StrayLine) else ""
        if line:
            self.stray_lines += 1
            self.first_stray_line = self.first_stray_line or line
        if self._sink is not None:
            text = "the server wrote something that is not JSON-RPC" + (f": {line}" if line else "")
            self._sink.on_log("stderr", {"level": "warning", "data": text}, None)

    def on_stderr(self, line: str) -> None:
        if self._sink is not None:
            self._sink.on_log("stderr", {"level": "info", "data": line}, None)

    # Questions

    def ask(
        self,
        kind: QuestionKind,
        params: Mapping[str, Any],
        *,
        arrival: Arrival,
        belongs_to: Belonging[Any],
        input_key: str | None = None,
    ) -> Question:
        """Put a question to whoever answers for this connection."""
        if len(self._open) >= MAX_OPEN_QUESTIONS:
            raise PeerError(-32000, f"{MAX_OPEN_QUESTIONS} questions are open already")
        question = Question(kind, params, arrival=arrival, belongs_to=belongs_to, input_key=input_key)
        self._open.add(question)
        question.on_settled(lambda _how, _reason: self._forget(question))
        self.events.emit(QuestionArrivedEvent(question))
        question.on_settled(lambda how, _reason: self.events.emit(QuestionSettledEvent(question, how)))
        if self._sink is not None:
            self._sink.on_question(question)
        else:
            self._untaken[question] = None
            self._wake()
            if not self._is_read and self._spawn is not None and self._clock is not None:
                self._spawn(self._warn_if_unread, ref(question), self._clock)
        return question

    async def _warn_if_unread(self, asked: ref[Question], clock: Clock) -> None:
        """Say once that a server waits for an answer that nobody can give."""
        await sleep(clock, UNREAD_SECONDS)
        question = asked()
        if question is None or question not in self._untaken or self._is_read or self.events.has_subscribers:
            return
        self._is_read = True
        logger.warning(
            "a server has asked (%s) and nobody reads questions(), so that it waits for ever: answer them, or "
            "connect with ClientOptions(elicitation=False, sampling=False)",
            question.kind,
        )

    def _forget(self, question: Question) -> None:
        self._open.discard(question)
        self._untaken.pop(question, None)

    async def wait_for_answer(self, question: Question) -> JsonObject:
        """The answer; if we are cancelled first, the question is nobody's any more."""
        try:
            return await question.answer()
        finally:
            if self._is_over:
                question.withdraw("lost", "the server disconnected")
            else:
                question.withdraw("withdrawn", "the server took it back")

    @property
    def can_be_elicited(self) -> bool:
        return self._options.elicitation

    async def questions(self) -> AsyncIterator[Question]:
        """Each goes to one who iterates; until the connection is lost, and all that live on without it are taken."""
        self._is_read = True
        while True:
            while self._untaken:
                question = next(iter(self._untaken))
                del self._untaken[question]
                yield question
            if self._is_lost:
                return
            await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def lose(self) -> None:
        """The connection is gone, and with it the questions that live on it."""
        if self._receiver is not None:
            self._receiver.close()
        for question in tuple(self._open):
            if question.arrival not in SURVIVING_ARRIVALS:
                question.withdraw("lost", "the server disconnected")
        self._is_lost = True
        self._wake()

    async def lose_with(self, closed: anyio.Event) -> None:
        await closed.wait()
        self.lose()

    def close(self) -> None:
        """Nobody will be asked any more; whoever iterates over `questions` is done."""
        self.lose()
        self.events.close()

    @property
    def _is_over(self) -> bool:
        return self.is_closing or (self._state is not None and self._state.lost_reason is not None)

    def _complete_url(self, params: Mapping[str, Any]) -> None:
        """The user is done at a URL: whoever is still to agree to open it need not."""
        elicitation_id = params.get("elicitationId")
        if not isinstance(elicitation_id, str):
            return
        self.completed_urls.add(elicitation_id)
        for question in tuple(self._open):
            # A blocking request is answered all the same, since its server waits for the answer.
            if question.arrival == "input_required" and question.params.get("elicitationId") == elicitation_id:
                question.withdraw("withdrawn", "the user is done at the URL")

    def _pass_on_progress(self, params: Mapping[str, Any]) -> None:
        on_progress, progress = self.origins.awaiting_progress(params.get("progressToken")), params.get("progress")
        if on_progress is not None and isinstance(progress, int | float) and self._spawn is not None:
            total, message = params.get("total"), params.get("message")
            self._spawn(
                _tell_progress,
                on_progress,
                float(progress),
                float(total) if isinstance(total, int | float) else None,
                message if isinstance(message, str) else None,
            )

    def _declared_kind(self, method: str) -> QuestionKind | None:
        kind = KIND_OF_METHOD.get(method)
        declared = {"elicitation": self._options.elicitation, "sampling": self._options.sampling}
        return kind if kind is not None and declared[kind] else None


async def _tell_progress(on_progress: OnProgress, progress: float, total: float | None, message: str | None) -> None:
    try:
        await on_progress(progress, total, message)
    except Exception:
        # It is the caller's, and must not cost the connection.
        logger.exception("a progress callback failed")
