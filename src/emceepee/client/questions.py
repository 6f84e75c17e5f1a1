"""A question of a server's, to be answered exactly once.

Questions arrive in several ways and are answered in one: `respond`. Whoever delivered the question waits for the answer
and sends it along the way that the arrival demands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import anyio

from emceepee.core.questions import Arrival, Belonging, QuestionKind
from emceepee.errors import PeerError, QuestionSettled

__all__ = ["KIND_OF_METHOD", "REJECTED", "CallRef", "Question", "Settled"]

Settled: TypeAlias = Literal["answered", "rejected", "withdrawn", "lost"]
"""How it ended: with an answer, with an error, taken back by the server, or with the connection."""

REJECTED = -1
"""The error code that a server is told when nobody will answer: what the protocol uses for a user's refusal."""

KIND_OF_METHOD: Mapping[str, QuestionKind] = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
}


@dataclass(frozen=True, eq=False, slots=True)
class CallRef:
    """The call that a question came from, for callers that gave no origin of their own."""

    method: str
    name: str


class Question:
    """An elicitation or sampling request that waits. `params` is the server's own, untouched."""

    def __init__(
        self,
        kind: QuestionKind,
        params: Mapping[str, Any],
        *,
        arrival: Arrival,
        belongs_to: Belonging[Any],
        input_key: str | None = None,
    ) -> None:
        self.kind = kind
        self.params = params
        self.arrival: Arrival = arrival
        self.belongs_to = belongs_to
        self.input_key = input_key
        """Its key in the server's `inputRequests`, if it came from there."""
        self.settled: Settled | None = None
        self._result: Mapping[str, Any] | PeerError | None = None
        self._done = anyio.Event()
        self._listeners: list[Callable[[Settled, str], None]] = []

    def __repr__(self) -> str:
        # Without the parameters: what a server asks and what it is told is nobody else's business.
        return f"<Question {self.kind} {self.arrival} {self.settled or 'pending'}>"

    @property
    def message(self) -> str | None:
        message = self.params.get("message")
        return message if isinstance(message, str) else None

    @property
    def answered_with(self) -> dict[str, Any] | None:
        """The answer; None for a question that has none, or not yet."""
        return dict(self._result) if self.settled == "answered" and isinstance(self._result, Mapping) else None

    async def respond(self, result: Mapping[str, Any]) -> None:
        """Answer with the protocol's own result: an `ElicitResult` or a `CreateMessageResult`.

        Raises:
            QuestionSettled: it has been answered already, or needs no answer any more.
        """
        self._settle("answered", "", result)

    async def accept(self, content: Mapping[str, Any] | None = None) -> None:
        """Answer an elicitation with what the user filled in."""
        await self.respond({"action": "accept"} if content is None else {"action": "accept", "content": dict(content)})

    async def decline(self) -> None:
        """Answer an elicitation with the user's explicit no."""
        await self.respond({"action": "decline"})

    async def cancel(self) -> None:
        """Answer an elicitation that the user dismissed without choosing."""
        await self.respond({"action": "cancel"})

    async def reject(self, reason: str = "The request was rejected", code: int = REJECTED, data: object = None) -> None:
        """Refuse to answer: the server gets an error, with these facts.

        Raises:
            QuestionSettled: as for `respond`.
        """
        self._settle("rejected", reason, PeerError(code, reason, data))

    def withdraw(self, how: Literal["withdrawn", "lost"], reason: str) -> None:
        """Nobody needs the answer any more; does nothing for a question that is settled."""
        if self.settled is None:
            self._settle(how, reason, PeerError(REJECTED, reason))

    def on_settled(self, listener: Callable[[Settled, str], None]) -> None:
        """Have `listener` told once, with a reason where nobody answered."""
        self._listeners.append(listener)

    async def answer(self) -> dict[str, Any]:
        """Wait for the answer.

        Raises:
            PeerError: it was rejected, or withdrawn.
        """
        await self._done.wait()
        if isinstance(self._result, PeerError):
            raise self._result
        return dict(self._result or {})

    def _settle(self, how: Settled, reason: str, result: Mapping[str, Any] | PeerError) -> None:
        if self.settled is not None:
            raise QuestionSettled(self.kind, self.settled)
        self.settled = how
        self._result = result
        self._done.set()
        for listener in self._listeners:
            listener(how, reason)
