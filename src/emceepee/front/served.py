"""One request of a client while it is answered."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import anyio

from emceepee.core.buffers import LogLevel, is_as_severe, known_level
from emceepee.core.progress import ProgressRelay
from emceepee.core.questions import Question, QuestionKind
from emceepee.front.asking import Asking, Post
from emceepee.front.client import ClientFacts
from emceepee.hub import Attendant
from emceepee.protocol import meta_of
from emceepee.tools import HangUp

__all__ = ["ServedRequest", "cancelled"]

JsonObject: TypeAlias = dict[str, Any]

_TIMEOUT_WORDS = re.compile(r"time[d\s_-]*out|-32001", re.IGNORECASE)
"""How SDKs say that they lost patience; the npm one writes "McpError: MCP error -32001: Request timed out"."""


def _hang_up_of(reason: object) -> HangUp:
    """What a client means that cancels a request with `reason`: a timeout gives up the waiting, not the work."""
    return "timed_out" if isinstance(reason, str) and _TIMEOUT_WORDS.search(reason) else "cancelled"


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
        self.task_id: Callable[[], str | None] = lambda: None
        """The task that its work goes on as, if it does."""
        self.is_for_task = False
        """Whether the client wants a task of 2025-11-25, which asks on the stream of its `tasks/result`."""
        self.hears_server = False
        """Whether what the server says while it works on the call goes to the client as it comes."""
        self.log_level: LogLevel | None = None
        """The least severe of its log messages among that; None: none of them."""
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
        if self.hears_server and (method != "notifications/message" or self._wants_log(params)):
            self.send(method, params)

    def _wants_log(self, message: Mapping[str, Any]) -> bool:
        return self.log_level is not None and is_as_severe(known_level(message.get("level")), self.log_level)

    def interrupted(self) -> None:
        self._on_interrupted()

    def can_ask(self, kind: QuestionKind, params: Mapping[str, Any]) -> bool:
        return self._asking is not None and self._asking.client.can_be_asked(kind, params)

    def can_ask_back(self, kind: QuestionKind, params: Mapping[str, Any]) -> bool:
        if self._client is None or not (self._client.is_modern or self.is_for_task):
            return False
        return self._client.can_be_asked(kind, params)

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
        request.end(_hang_up_of(params.get("reason")))


def _progress_token(params: Mapping[str, Any] | None) -> str | int | None:
    token = meta_of(params or {}).get("progressToken")
    return token if isinstance(token, str | int) and not isinstance(token, bool) else None
