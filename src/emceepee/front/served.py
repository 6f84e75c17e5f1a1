"""One request of a client while a tool runs for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import anyio

from emceepee.core.progress import ProgressRelay
from emceepee.hub import Attendant
from emceepee.tools import HangUp

__all__ = ["ServedRequest", "cancelled", "hang_up_of"]

JsonObject: TypeAlias = dict[str, Any]

_TIMEOUT_WORDS = re.compile(r"time[d\s_-]*out|-32001", re.IGNORECASE)
"""How SDKs say that they lost patience; the npm one writes "McpError: MCP error -32001: Request timed out"."""


def hang_up_of(reason: object) -> HangUp:
    """What a client means that cancels a request with `reason`: a timeout gives up the waiting, not the work."""
    return "timed_out" if isinstance(reason, str) and _TIMEOUT_WORDS.search(reason) else "cancelled"


class ServedRequest(Attendant):
    """`post` puts a message on the request's own stream; `scope` is where the tool runs."""

    def __init__(
        self, request_id: str | int, params: Mapping[str, Any] | None, post: Callable[[JsonObject], None]
    ) -> None:
        self.request_id = request_id
        self.hang_up: HangUp | None = None
        self.scope = anyio.CancelScope()
        self.on_sent: Callable[[], None] = lambda: None
        """Called by the front when the response is out."""
        self._post = post
        self._relay = ProgressRelay()
        self._token = _progress_token(params)

    @property
    def wants_progress(self) -> bool:
        return self._token is not None

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Pass a server's progress on, if the client asked for it."""
        if self._token is not None:
            self._send_progress(self._relay.passed_on(progress, total, message))

    def heartbeat(self) -> None:
        """Fill the silence, so that a client which restarts its timer on progress keeps waiting."""
        if self._token is not None:
            self._send_progress(self._relay.heartbeat("still working"))

    def end(self, why: HangUp) -> None:
        """The client waits no longer."""
        self.hang_up = self.hang_up or why
        self.scope.cancel()

    def _send_progress(self, params: JsonObject) -> None:
        params = {"progressToken": self._token, **params}
        self._post({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})


def cancelled(served: Mapping[str | int, ServedRequest], params: Mapping[str, Any]) -> None:
    """`notifications/cancelled`; one for a request that was answered already, or never was one, is ignored."""
    request_id = params.get("requestId")
    if isinstance(request_id, str | int) and (request := served.get(request_id)) is not None:
        request.end(hang_up_of(params.get("reason")))


def _progress_token(params: Mapping[str, Any] | None) -> str | int | None:
    meta = (params or {}).get("_meta")
    token = meta.get("progressToken") if isinstance(meta, Mapping) else None
    return token if isinstance(token, str | int) and not isinstance(token, bool) else None
