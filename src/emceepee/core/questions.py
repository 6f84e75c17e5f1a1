"""Elicitation and sampling requests that wait for an answer.

`TRANSITIONS` is the state machine of each kind. Who answers, and how the answer travels to the server, is decided
elsewhere; here it is recorded that a question is open, whose it is, and how it ended.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from emceepee.clock import Clock, isoformat
from emceepee.core.deadlines import DeadlineQueue
from emceepee.core.events import Emit, EventType
from emceepee.core.journal import Journal
from emceepee.core.timers import Timer
from emceepee.errors import ImpossibleTransition, RequestNotFound
from emceepee.ids import IdFactory

__all__ = [
    "EXPIRED_EVENT",
    "REMEMBERED",
    "REQUEST_EVENT",
    "SURVIVING_ARRIVALS",
    "TRANSITIONS",
    "Arrival",
    "Belonging",
    "Certainty",
    "Question",
    "QuestionKind",
    "QuestionState",
    "QuestionTable",
    "belonging",
]

QuestionKind: TypeAlias = Literal["elicitation", "sampling"]
Arrival: TypeAlias = Literal["request", "receiver_task", "input_required", "task_input"]
"""A blocking request, one with `params.task`, an `input_required` result, or a native task's `inputRequests`."""
SURVIVING_ARRIVALS: frozenset[Arrival] = frozenset({"input_required", "task_input"})
"""These questions do not live on a connection: the answer travels in a request of our own. They survive its loss, and a
restart of ours."""
Certainty: TypeAlias = Literal["exact", "sole", "unknown"]
QuestionState: TypeAlias = Literal[
    "pending", "accepted", "declined", "cancelled", "completed", "rejected", "expired", "withdrawn"
]

_LOST: frozenset[QuestionState] = frozenset({"rejected", "expired", "withdrawn"})

TRANSITIONS: Mapping[QuestionKind, frozenset[QuestionState]] = {
    "elicitation": _LOST | {"accepted", "declined", "cancelled"},
    "sampling": _LOST | {"completed"},
}
"""Where `pending` can go; every other state is terminal."""

REQUEST_EVENT: Mapping[QuestionKind, EventType] = {
    "elicitation": "elicitation_request",
    "sampling": "sampling_request",
}
EXPIRED_EVENT: Mapping[QuestionKind, EventType] = {
    "elicitation": "elicitation_expired",
    "sampling": "sampling_expired",
}

REMEMBERED = 200
"""How many settled questions are remembered, so that a second answer is told what became of the first."""

C = TypeVar("C", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Belonging(Generic[C]):
    """The call that a question came from, as far as that can be known."""

    call: C | None
    certainty: Certainty


def belonging(exact: C | None, in_flight: Sequence[C]) -> Belonging[C]:
    """Whose question it is: the call on whose own stream it came, else the only call in flight, else nobody's."""
    if exact is not None:
        return Belonging(exact, "exact")
    if len(in_flight) == 1:
        return Belonging(in_flight[0], "sole")
    return Belonging(None, "unknown")


@dataclass(frozen=True, slots=True)
class Question:
    request_id: str
    kind: QuestionKind
    server: str
    received_at: float
    expires_at: float
    params: Mapping[str, Any]
    arrival: Arrival
    certainty: Certainty
    task_id: str | None = None
    input_key: str | None = None
    """Its key in the server's `inputRequests`, if it came from there; never shown to a client."""

    @property
    def survives(self) -> bool:
        """Whether it outlives connections and restarts."""
        return self.arrival in SURVIVING_ARRIVALS

    def as_json(self) -> dict[str, Any]:
        return {
            "request_id": self.request_id,
            "kind": self.kind,
            "server": self.server,
            "received_at": isoformat(self.received_at),
            "expires_at": isoformat(self.expires_at),
            "task_id": self.task_id,
            "certainty": self.certainty,
            "message": self.params.get("message"),
            "params": self.params,
        }


class QuestionTable:
    """The open questions of one session, with their timeouts in the session's deadline queue."""

    def __init__(
        self,
        clock: Clock,
        ids: IdFactory,
        deadlines: DeadlineQueue[Timer],
        emit: Emit,
        *,
        timeout_ms: int = 600_000,
        journal: Journal | None = None,
        on_change: Callable[[str | None], None] = lambda _task_id: None,
    ) -> None:
        self._on_change = on_change
        self._journal = journal or Journal()
        self._clock = clock
        self._ids = ids
        self._deadlines = deadlines
        self._emit = emit
        self._timeout = timeout_ms / 1000
        self._open: dict[str, Question] = {}
        self._settled: OrderedDict[str, QuestionState] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def get(self, request_id: str, kind: QuestionKind) -> Question:
        question = self._open.get(request_id)
        if question is None or question.kind != kind:
            raise RequestNotFound(request_id, kind, self._settled.get(request_id))
        return question

    def pending(
        self, kind: QuestionKind | None = None, *, server: str | None = None, task_id: str | None = None
    ) -> list[Question]:
        """The open questions, oldest first."""
        return [
            question
            for question in self._open.values()
            if (kind is None or question.kind == kind)
            and (server is None or question.server == server)
            and (task_id is None or question.task_id == task_id)
        ]

    def add(
        self,
        kind: QuestionKind,
        server: str,
        params: Mapping[str, Any],
        *,
        arrival: Arrival,
        certainty: Certainty,
        task_id: str | None = None,
        input_key: str | None = None,
    ) -> Question:
        """Park a question and tell it."""
        now = self._clock.now()
        question = Question(
            request_id=self._ids(),
            kind=kind,
            server=server,
            received_at=now,
            expires_at=now + self._timeout,
            params=params,
            arrival=arrival,
            certainty=certainty,
            task_id=task_id,
            input_key=input_key,
        )
        self._open[question.request_id] = question
        self._journal.save_question(question)
        self._deadlines.set(Timer("question", question.request_id), self._clock.monotonic() + self._timeout)
        self._on_change(task_id)
        self._emit(REQUEST_EVENT[kind], server, question.as_json())
        return question

    def assign(self, request_id: str, task_id: str | None) -> Question:
        """The call that asked has become a task; or, with None, it was not the call that asked."""
        if (question := self._open.get(request_id)) is None:
            raise ImpossibleTransition(f"question {request_id}", self._settled.get(request_id, "unknown"), "assigned")
        before = question.task_id
        question = self._open[request_id] = replace(question, task_id=task_id)
        self._journal.save_question(question)
        for changed in {before, task_id}:
            self._on_change(changed)
        return question

    def restore(self, question: Question) -> None:
        """Put back a question from before a restart, with what is left of its time."""
        self._open[question.request_id] = question
        left = max(0.0, question.expires_at - self._clock.now())
        self._deadlines.set(Timer("question", question.request_id), self._clock.monotonic() + left)

    def settle(self, request_id: str, state: QuestionState, *, reason: str | None = None) -> Question:
        """Take a question off the list; one that nobody answered is told, with the reason."""
        question = self._open.get(request_id)
        if question is None:
            raise ImpossibleTransition(f"question {request_id}", self._settled.get(request_id, "unknown"), state)
        if state not in TRANSITIONS[question.kind]:
            raise ImpossibleTransition(f"question {request_id}", "pending", state)
        del self._open[request_id]
        self._deadlines.discard(Timer("question", request_id))
        self._remember(request_id, state)
        self._journal.forget_question(request_id)
        self._on_change(question.task_id)
        if state in _LOST:
            event: EventType = "question_withdrawn" if state == "withdrawn" else EXPIRED_EVENT[question.kind]
            self._emit(event, question.server, {"request_id": request_id, "reason": reason or state})
        return question

    def _remember(self, request_id: str, state: QuestionState) -> None:
        self._settled[request_id] = state
        if len(self._settled) > REMEMBERED:
            self._settled.popitem(last=False)
