"""What we ask one handshake client, by requests of our own."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

import anyio
from mcp_types import INTERNAL_ERROR

from emceepee.core.questions import Question, QuestionKind
from emceepee.errors import PeerError
from emceepee.front.client import ClientFacts
from emceepee.front.jsonrpc import Response
from emceepee.hub import Session
from emceepee.protocol import RELATED_TASK_META_KEY, with_meta

__all__ = ["Asking", "Post", "request_of"]

JsonObject: TypeAlias = dict[str, Any]
Post: TypeAlias = Callable[[JsonObject], None]


_METHOD_OF: Mapping[QuestionKind, str] = {
    "elicitation": "elicitation/create",
    "sampling": "sampling/createMessage",
}


def request_of(question: Question) -> JsonObject:
    """A question as a client is asked it, by a request or in a result; the task that its server has with us is ours."""
    params = {key: value for key, value in question.params.items() if key != "task"}
    return {"method": _METHOD_OF[question.kind], "params": params}


@dataclass(slots=True)
class _Waiting:
    answered: anyio.Event = field(default_factory=anyio.Event)
    outcome: Mapping[str, Any] = field(default_factory=dict)


class Asking:
    """Our own requests to one handshake client, which wait for its answers."""

    def __init__(self, session: Session, client: ClientFacts) -> None:
        self.client = client
        self._session = session
        # Not only a number: the client may answer something that was asked before a restart.
        name = secrets.token_hex(4)
        self._ids = (f"emceepee-{name}-{number}" for number in count(1))
        self._open: dict[str, str] = {}
        """The question that each of our requests asks."""
        self._requests: dict[str, _Waiting] = {}

    async def request(self, method: str, params: JsonObject, post: Post) -> Mapping[str, Any]:
        """Ask the client something that is nobody's question.

        Raises:
            PeerError: it answered with an error.
        """
        own_id = next(self._ids)
        waiting = self._requests[own_id] = _Waiting()
        try:
            post({"jsonrpc": "2.0", "id": own_id, "method": method, "params": params})
            await waiting.answered.wait()
        finally:
            del self._requests[own_id]
        if not isinstance(result := waiting.outcome.get("result"), Mapping):
            raise _error_in(waiting.outcome)
        return result

    def ask(self, question: Question, post: Post) -> None:
        own_id = next(self._ids)
        self._open[own_id] = question.request_id
        request = request_of(question)
        if question.task_id is not None:
            related = {RELATED_TASK_META_KEY: {"taskId": question.task_id}}
            request["params"] = with_meta(request["params"], related)
        post({"jsonrpc": "2.0", "id": own_id, **request})

    def withdraw(self, request_id: str, reason: str, post: Post) -> None:
        """Tell the client that a question needs no answer any more; one that it has answered is forgotten already."""
        for own_id, asked in list(self._open.items()):
            if asked == request_id:
                del self._open[own_id]
                params = {"requestId": own_id, "reason": reason}
                post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    async def answered(self, response: Response) -> None:
        """The client's response to a request of ours; one that nobody waits for is dropped."""
        if (waiting := self._requests.get(str(response.id))) is not None:
            waiting.outcome = response.outcome
            waiting.answered.set()
            return
        request_id = self._open.pop(str(response.id), None)
        if request_id is None:
            return
        outcome = response.outcome
        if isinstance(outcome.get("result"), Mapping):
            await self._session.questions.answer(request_id, outcome["result"])
        else:
            await self._session.questions.refuse(request_id, _error_in(outcome))


def _error_in(outcome: Mapping[str, Any]) -> PeerError:
    error = outcome.get("error")
    if not isinstance(error, Mapping) or not isinstance(error.get("code"), int):
        return PeerError(INTERNAL_ERROR, "The client answered with nonsense")
    return PeerError(error["code"], str(error.get("message", "")), error.get("data"))
