"""One request of a client while it is answered."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

import anyio

from emceepee.core.progress import ProgressRelay
from emceepee.core.questions import Question, QuestionKind
from emceepee.errors import PeerError
from emceepee.front.client import ClientFacts
from emceepee.front.jsonrpc import Response
from emceepee.hub import Attendant, Session
from emceepee.tools import HangUp

__all__ = ["Asking", "ServedRequest", "cancelled", "hang_up_of"]

JsonObject: TypeAlias = dict[str, Any]
Post: TypeAlias = Callable[[JsonObject], None]

RELATED_TASK_META_KEY = "io.modelcontextprotocol/related-task"

_METHOD_OF: Mapping[QuestionKind, str] = {
    "elicitation": "elicitation/create",
    "sampling": "sampling/createMessage",
}

_TIMEOUT_WORDS = re.compile(r"time[d\s_-]*out|-32001", re.IGNORECASE)
"""How SDKs say that they lost patience; the npm one writes "McpError: MCP error -32001: Request timed out"."""


def hang_up_of(reason: object) -> HangUp:
    """What a client means that cancels a request with `reason`: a timeout gives up the waiting, not the work."""
    return "timed_out" if isinstance(reason, str) and _TIMEOUT_WORDS.search(reason) else "cancelled"


def method_of(kind: QuestionKind) -> str:
    return _METHOD_OF[kind]


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
        self._requests: dict[str, _Waiting] = {}

    async def request(self, method: str, params: JsonObject, post: Post) -> Mapping[str, Any]:
        """Ask the client something that is nobody's question.

        Raises:
            PeerError: it answered with an error.
        """
        number = next(self._ids)
        waiting = self._requests[number] = _Waiting()
        try:
            post({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            await waiting.answered.wait()
        finally:
            del self._requests[number]
        if not isinstance(result := waiting.outcome.get("result"), Mapping):
            raise _error_in(waiting.outcome)
        return result

    def ask(self, question: Question, post: Post) -> None:
        number = next(self._ids)
        self._open[number] = question.request_id
        params = dict(question.params)
        params.pop("task", None)
        if question.task_id is not None:
            related = {RELATED_TASK_META_KEY: {"taskId": question.task_id}}
            params["_meta"] = {**(params.get("_meta") or {}), **related}
        post({"jsonrpc": "2.0", "id": number, "method": method_of(question.kind), "params": params})

    def withdraw(self, request_id: str, reason: str, post: Post) -> None:
        """Tell the client that a question needs no answer any more; one that it has answered is forgotten already."""
        for number, asked in list(self._open.items()):
            if asked == request_id:
                del self._open[number]
                params = {"requestId": number, "reason": reason}
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


class ServedRequest(Attendant):
    """`post` puts a message on the request's own stream; `scope` is where the answer is made."""

    def __init__(
        self,
        request_id: str | int,
        params: Mapping[str, Any] | None,
        post: Post,
        *,
        client: ClientFacts | None = None,
        asking: Asking | None = None,
        on_interrupted: Callable[[], None] = lambda: None,
    ) -> None:
        self.request_id = request_id
        self.hang_up: HangUp | None = None
        self.scope = anyio.CancelScope()
        self.on_sent: Callable[[], None] = lambda: None
        """Called by the front when the response is out."""
        self.on_unsent: Callable[[], None] = lambda: None
        """Called instead when there was nobody to take it."""
        self.on_stop: Callable[[], object] = lambda: self.end("timed_out")
        """Called by the front when the hub ends: the request ends as well, with a response if it has one to give."""
        self.hears_logs = False
        """Whether the server's log messages go to the client as they come."""
        self._post = post
        self._client = client
        self._asking = asking
        self._on_interrupted = on_interrupted
        self._relay = ProgressRelay()
        self._token = _progress_token(params)

    @property
    def wants_progress(self) -> bool:
        return self._token is not None

    def end(self, why: HangUp) -> None:
        """The client waits no longer."""
        self.hang_up = self.hang_up or why
        self.scope.cancel()

    def heartbeat(self) -> None:
        """Fill the silence, so that a client which restarts its timer on progress keeps waiting."""
        if self._token is not None:
            self._send_progress(self._relay.heartbeat("still working"))

    def post(self, message: JsonObject) -> None:
        """A message of any kind on the request's own stream."""
        self._post(message)

    def send(self, method: str, params: Mapping[str, Any]) -> None:
        """A notification on the request's own stream."""
        self._post({"jsonrpc": "2.0", "method": method, "params": dict(params)})

    # What the hub tells and asks

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        if self._token is not None:
            self._send_progress(self._relay.passed_on(progress, total, message))

    def notification(self, method: str, params: Mapping[str, Any]) -> None:
        if self.hears_logs:
            self.send(method, params)

    def interrupted(self) -> None:
        self._on_interrupted()

    def can_ask(self, kind: QuestionKind, params: Mapping[str, Any]) -> bool:
        return self._asking is not None and self._asking.client.can_be_asked(kind, params)

    def can_ask_back(self, kind: QuestionKind, params: Mapping[str, Any]) -> bool:
        return self._client is not None and self._client.is_modern and self._client.can_be_asked(kind, params)

    def ask(self, question: Question) -> None:
        if self._asking is not None:
            self._asking.ask(question, self._post)

    def withdraw(self, request_id: str, reason: str) -> None:
        if self._asking is not None:
            self._asking.withdraw(request_id, reason, self._post)

    def _send_progress(self, params: JsonObject) -> None:
        self.send("notifications/progress", {"progressToken": self._token, **params})


def cancelled(served: Mapping[str | int, ServedRequest], params: Mapping[str, Any]) -> None:
    """`notifications/cancelled`; one for a request that was answered already, or never was one, is ignored."""
    request_id = params.get("requestId")
    if (
        isinstance(request_id, str | int)
        and not isinstance(request_id, bool)
        and (request := served.get(request_id)) is not None
    ):
        request.end(hang_up_of(params.get("reason")))


def _progress_token(params: Mapping[str, Any] | None) -> str | int | None:
    meta = (params or {}).get("_meta")
    token = meta.get("progressToken") if isinstance(meta, Mapping) else None
    return token if isinstance(token, str | int) and not isinstance(token, bool) else None


def _error_in(outcome: Mapping[str, Any]) -> PeerError:
    error = outcome.get("error")
    if not isinstance(error, Mapping) or not isinstance(error.get("code"), int):
        return PeerError(-32603, "The client answered with nonsense")
    return PeerError(error["code"], str(error.get("message", "")), error.get("data"))
