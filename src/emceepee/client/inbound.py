"""What a server sends on its own: questions, notifications, logs.

`Inbound` is the handler of a connection's peer. It turns requests into questions, says whose they are, and waits with
the server for the answer.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import anyio
from structlog import get_logger

from emceepee.client.options import ClientOptions, ClientSink
from emceepee.client.questions import KIND_OF_METHOD, Question
from emceepee.core.questions import Arrival, Belonging, QuestionKind, belonging
from emceepee.errors import PeerError
from emceepee.wire.transport import ChannelState

__all__ = ["Inbound"]

JsonObject: TypeAlias = dict[str, Any]
log = get_logger(__name__)

METHOD_NOT_FOUND = -32601

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
        self._in_flight: dict[int, object] = {}
        self._open: set[Question] = set()
        # Unbounded by itself; bounded by MAX_OPEN_QUESTIONS.
        self._is_iterated = False
        self._queue_in, self._queue_out = anyio.create_memory_object_stream[Question](math.inf)

    def bind(self, state: ChannelState) -> None:
        """The channel whose end is also the end of every question that came over it."""
        self._state = state

    # What the peer hands over

    async def on_request(self, method: str, params: Mapping[str, Any], related: int | None) -> JsonObject:
        if method == "ping":
            return {}
        if method == "roots/list" and self._options.roots is not None:
            return {"roots": [{"uri": uri} for uri in self.roots]}
        if (kind := self._declared_kind(method)) is None:
            raise PeerError(METHOD_NOT_FOUND, f"Method not found: {method}")
        question = self.ask(kind, params, arrival="request", belongs_to=self._belonging(related))
        return await self.wait_for_answer(question)

    async def on_notification(self, method: str, params: Mapping[str, Any], related: int | None) -> None:
        if self._sink is None:
            return
        if method == "notifications/message":
            self._sink.on_log("protocol", params)
        elif method not in ("notifications/progress", "notifications/cancelled"):
            self._sink.on_notification(method, params)

    def on_garbage(self, error: Exception) -> None:
        log.debug("server_sent_garbage", error=type(error).__name__)
        if self._sink is not None:
            self._sink.on_log("stderr", {"level": "warning", "data": "the server wrote something that is not JSON-RPC"})

    def on_stderr(self, line: str) -> None:
        if self._sink is not None:
            self._sink.on_log("stderr", {"level": "info", "data": line})

    # Questions

    def ask(
        self, kind: QuestionKind, params: Mapping[str, Any], *, arrival: Arrival, belongs_to: Belonging[Any]
    ) -> Question:
        """Put a question to whoever answers for this connection."""
        if len(self._open) >= MAX_OPEN_QUESTIONS:
            raise PeerError(-32000, f"{MAX_OPEN_QUESTIONS} questions are open already")
        question = Question(kind, params, arrival=arrival, belongs_to=belongs_to)
        self._open.add(question)
        if self._sink is not None:
            self._sink.on_question(question)
        else:
            self._queue_in.send_nowait(question)
        return question

    async def wait_for_answer(self, question: Question) -> JsonObject:
        """The answer; if we are cancelled first, the question is nobody's any more."""
        try:
            return await question.answer()
        finally:
            self._open.discard(question)
            if self._is_over:
                question.withdraw("lost", "the server disconnected")
            else:
                question.withdraw("withdrawn", "the server took it back")

    async def questions(self) -> AsyncIterator[Question]:
        self._is_iterated = True
        with self._queue_out:
            async for question in self._queue_out:
                if question.settled is None:
                    yield question

    @contextmanager
    def in_flight(self, request_id: int, origin: object) -> Iterator[None]:
        """While the body runs, questions on the response stream of `request_id` belong to `origin`."""
        self._in_flight[request_id] = origin
        try:
            yield
        finally:
            del self._in_flight[request_id]

    def close(self) -> None:
        """Nobody will be asked any more; whoever iterates over `questions` is done."""
        self._queue_in.close()
        if not self._is_iterated:
            self._queue_out.close()

    @property
    def _is_over(self) -> bool:
        return self.is_closing or (self._state is not None and self._state.lost_reason is not None)

    def _belonging(self, related: int | None) -> Belonging[Any]:
        exact = None if related is None else self._in_flight.get(related)
        return belonging(exact, list(self._in_flight.values()))

    def _declared_kind(self, method: str) -> QuestionKind | None:
        kind = KIND_OF_METHOD.get(method)
        declared = {"elicitation": self._options.elicitation, "sampling": self._options.sampling}
        return kind if kind is not None and declared[kind] else None
