"""What is needed to go on with a call on another connection, when that is possible at all.

A task lives at its server, and a modern call that waits for answers lives nowhere but in its `requestState`: both can
be taken up again after the connection was lost, and, since all of it is JSON, by the next process as well. A plain call
that was in flight cannot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from emceepee.client.questions import KIND_OF_METHOD, Question
from emceepee.client.tasks import RemoteTask
from emceepee.core.questions import Arrival, QuestionKind
from emceepee.errors import PeerError
from emceepee.wire.transport import RequestId

__all__ = ["InputRound", "OpenInput", "ResultRequest", "Resumption", "ResumptionKeeper", "UnansweredRequest"]

JsonObject: TypeAlias = dict[str, Any]


class ResumptionKeeper(Protocol):
    """Whoever writes down how a call goes on, for a process after this one."""

    def on_change(self) -> None:
        """What is written down is out of date."""
        ...

    async def before_retry(self) -> None:
        """The answers are about to be sent: comes back when nobody after us would send them a second time."""
        ...


@dataclass(slots=True)
class OpenInput:
    """One entry of `inputRequests`: what was asked under its key, and how far the answer is."""

    content: str
    """The request as canonical JSON."""
    question: Question | None = None
    given: JsonObject | None = None
    """An answer that an earlier process was given."""
    is_delivered: bool = False

    @classmethod
    def of(cls, request: object) -> OpenInput:
        return cls(json.dumps(request, sort_keys=True))

    @property
    def method(self) -> str | None:
        request = json.loads(self.content)
        method = request.get("method") if isinstance(request, Mapping) else None
        return method if isinstance(method, str) else None

    @property
    def kind(self) -> QuestionKind | None:
        """Of the question that it is; None if it is none."""
        return KIND_OF_METHOD.get(self.method or "")

    @property
    def params(self) -> JsonObject:
        request = json.loads(self.content)
        params = request.get("params") if isinstance(request, Mapping) else None
        return params if isinstance(params, dict) else {}

    @property
    def answer(self) -> JsonObject | None:
        """The answer, if there is one already."""
        return self.given if self.question is None else self.question.answered_with

    def as_json(self) -> JsonObject:
        return {"content": self.content, "given": self.answer, "is_delivered": self.is_delivered}


@dataclass(slots=True)
class InputRound:
    """An `input_required` result whose answers were not sent yet; `state` goes back with them as it came."""

    inputs: dict[str, OpenInput]
    state: JsonObject
    refusal: JsonObject | None = None
    """Instead of a result: the error that wants URLs opened, which are the inputs, before the request is sent again."""

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> InputRound:
        """
        Raises:
            PeerError: the server broke the protocol.
        """
        requests = result.get("inputRequests") or {}
        if not isinstance(requests, Mapping):
            raise PeerError(-32603, "the server sent inputRequests that are not an object")
        state = {"requestState": result["requestState"]} if "requestState" in result else {}
        return cls({key: OpenInput.of(request) for key, request in requests.items()}, state)

    @classmethod
    def of_urls(cls, error: PeerError, urls: Mapping[str, JsonObject]) -> InputRound:
        asked = {key: OpenInput.of({"method": "elicitation/create", "params": params}) for key, params in urls.items()}
        return cls(asked, {}, {"code": error.code, "message": error.message, "data": error.data})

    def as_json(self) -> JsonObject:
        inputs = {key: entry.as_json() for key, entry in self.inputs.items()}
        return {"inputs": inputs, "state": self.state, "refusal": self.refusal}


class ResultRequest(NamedTuple):
    """A `tasks/result` that was left open at the server, in the session that it was sent in."""

    session_id: str | None
    request_id: int


class UnansweredRequest(NamedTuple):
    """A request that the server waits for the response to, in the session that it was sent in."""

    session_id: str
    request_id: RequestId


@dataclass(slots=True)
class Resumption:
    """Filled in while a call goes on; hand it in again with the next connection."""

    server_task: RemoteTask | None = None
    inputs: dict[str, OpenInput] = field(default_factory=dict)
    """Of the task; each key stands for one question over its whole life."""
    round: InputRound | None = None
    result_request: ResultRequest | None = None
    """The newest one for the task."""
    unanswered: list[UnansweredRequest] = field(default_factory=list)
    """What the task's server asks; what is still here when the connection is gone, it has to be told on the next."""
    keeper: ResumptionKeeper | None = None

    @property
    def is_possible(self) -> bool:
        return self.server_task is not None or self.round is not None

    def input(self, arrival: Arrival, key: str | None) -> OpenInput | None:
        """The entry that a question came from."""
        inputs = self.inputs if arrival == "task_input" else {} if self.round is None else self.round.inputs
        return None if key is None else inputs.get(key)

    def changed(self) -> None:
        if self.keeper is not None:
            self.keeper.on_change()

    async def before_retry(self) -> None:
        if self.keeper is not None:
            await self.keeper.before_retry()

    def as_json(self) -> JsonObject:
        """All of it but the task, which its owner knows."""
        return {
            "inputs": {key: entry.as_json() for key, entry in self.inputs.items()},
            "round": None if self.round is None else self.round.as_json(),
            "result_request": None if self.result_request is None else self.result_request._asdict(),
            "unanswered": [request._asdict() for request in self.unanswered],
        }

    @classmethod
    def from_json(cls, value: JsonObject) -> Resumption:
        resumption = cls(inputs=_inputs(value["inputs"]))
        if (found := value["round"]) is not None:
            resumption.round = InputRound(_inputs(found["inputs"]), found["state"], found["refusal"])
        if (left := value["result_request"]) is not None:
            resumption.result_request = ResultRequest(**left)
        # Not written down by earlier versions.
        resumption.unanswered = [UnansweredRequest(**request) for request in value.get("unanswered", ())]
        return resumption


def _inputs(value: Mapping[str, JsonObject]) -> dict[str, OpenInput]:
    return {key: OpenInput(**entry) for key, entry in value.items()}
