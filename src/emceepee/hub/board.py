"""Where questions are posted that came to a session without our tools.

A client that talks to a server as it is may not be able to answer what the server asks, or walk away, and has no list
to look at. So its questions are put up for the principal: all of its sessions that have the tools show them, and
the first answer, be it from there or from the client itself, goes to the desk that the question came from.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol
from weakref import WeakValueDictionary

from emceepee.core.events import Emit, EventType
from emceepee.core.questions import EXPIRED_EVENT, REMEMBERED, REQUEST_EVENT, Question, QuestionKind, QuestionState
from emceepee.errors import RequestNotFound
from emceepee.hub.answers import ElicitationAction

__all__ = ["Board", "Boards", "Desk", "Reader"]


class Desk(Protocol):
    """Where answers are taken; see `QuestionDesk`, whose methods decide before they wait for anything."""

    async def answer_elicitation(
        self, request_id: str, action: ElicitationAction, content: dict[str, object] | None
    ) -> Question: ...

    async def answer_sampling(
        self,
        request_id: str,
        *,
        role: str,
        content: str | dict[str, object] | list[dict[str, object]],
        model: str,
        stop_reason: str | None = None,
    ) -> Question: ...

    async def reject(self, request_id: str, reason: str) -> Question: ...


@dataclass(eq=False, slots=True)
class Reader:
    """A session as the board sees it: `tell` puts an event into its log."""

    tell: Emit


@dataclass(slots=True)
class _Posted:
    question: Question
    desk: Desk
    answerer: Reader | None = None


class Board:
    """The posted questions of one principal, each with the desk that takes its answer."""

    def __init__(self) -> None:
        self._posted: dict[str, _Posted] = {}
        self._readers: dict[Reader, None] = {}
        self._settled: OrderedDict[str, QuestionState] = OrderedDict()

    def __len__(self) -> int:
        return len(self._posted)

    def join(self, reader: Reader, *, is_new: bool = True) -> Callable[[], None]:
        """Be told from now on, and if it `is_new` of what is posted already; the returned function ends it."""
        self._readers[reader] = None
        for posted in self._posted.values():
            if is_new:
                _tell_of(posted.question, reader)

        def leave() -> None:
            self._readers.pop(reader, None)

        return leave

    def post(self, question: Question, desk: Desk, *, is_new: bool = True) -> None:
        """Put a question up; one that is not new was told before a restart. Once more changes nothing."""
        if question.request_id in self._posted:
            return
        # Its task is another session's, and no business of the readers.
        shown = replace(question, task_id=None)
        self._posted[question.request_id] = _Posted(shown, desk)
        for reader in self._readers:
            if is_new:
                _tell_of(shown, reader)

    def settled(self, request_id: str, state: QuestionState, reason: str | None) -> None:
        """Its desk has no need of an answer any more: take it down, and tell all but the one that answered."""
        if (posted := self._posted.pop(request_id, None)) is None:
            return
        self._settled[request_id] = state
        if len(self._settled) > REMEMBERED:
            self._settled.popitem(last=False)
        event: EventType = "question_withdrawn"
        if state in ("expired", "rejected") and reason is not None:
            event = EXPIRED_EVENT[posted.question.kind]
        data = {"request_id": request_id, "reason": reason or "it was answered elsewhere"}
        for reader in self._readers:
            if reader is not posted.answerer:
                reader.tell(event, posted.question.server, data)

    def pending(self, kind: QuestionKind | None = None, *, server: str | None = None) -> list[Question]:
        """What is posted, oldest first."""
        return [
            posted.question
            for posted in self._posted.values()
            if (kind is None or posted.question.kind == kind) and (server is None or posted.question.server == server)
        ]

    def knows(self, request_id: str) -> bool:
        """Whether it is posted, or was not long ago."""
        return request_id in self._posted or request_id in self._settled

    @contextmanager
    def answering(self, request_id: str, kind: QuestionKind, answerer: Reader) -> Iterator[Desk]:
        """The desk to give an answer to; `answerer` need not be told how the question ended.

        Raises:
            RequestNotFound: it is not posted, or not any more.
        """
        posted = self._posted.get(request_id)
        if posted is None or posted.question.kind != kind:
            raise RequestNotFound(request_id, kind, self._settled.get(request_id))
        posted.answerer = answerer
        try:
            yield posted.desk
        finally:
            posted.answerer = None


class Boards:
    """One board for each principal, for as long as a session of it holds on to it."""

    def __init__(self) -> None:
        self._boards: WeakValueDictionary[str, Board] = WeakValueDictionary()

    def of(self, principal: str) -> Board:
        return self._boards.setdefault(principal, Board())


def _tell_of(question: Question, reader: Reader) -> None:
    reader.tell(REQUEST_EVENT[question.kind], question.server, question.as_json())
