"""One request of a client, with all that is needed to answer it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from emceepee.front.client import ClientFacts
from emceepee.front.jsonrpc import Request
from emceepee.front.served import ServedRequest
from emceepee.hub import Hub, Session
from emceepee.tools import Caller

__all__ = ["Visit"]


@dataclass(slots=True)
class Visit:
    hub: Hub
    session: Session
    client: ClientFacts
    request: Request
    served: ServedRequest
    may_spawn: bool = False
    headers: Mapping[str, str] | None = None
    """The HTTP headers of the request; None on stdio."""
    asked_for_task: Mapping[str, Any] | None = field(init=False, default=None)
    """The `task` of a 2025-11-25 request that is to be answered with one; other requests than `tools/call` are not."""

    def __post_init__(self) -> None:
        task = self.params.get("task")
        if isinstance(task, Mapping) and self.method == "tools/call" and self.client.understands_resuming:
            self.asked_for_task = task
            self.served.is_for_task = True

    @property
    def method(self) -> str:
        return self.request.method

    @property
    def params(self) -> Mapping[str, Any]:
        return self.request.params

    @property
    def wished_ttl_ms(self) -> int | None:
        """How long the task that was asked for is to live, if the client has a wish that makes sense."""
        ttl = None if self.asked_for_task is None else self.asked_for_task.get("ttl")
        return ttl if isinstance(ttl, int) and not isinstance(ttl, bool) and ttl > 0 else None

    def caller(self) -> Caller:
        """Who the tools run for; what they did is undone, or kept, when it is clear whether the client heard of it."""
        caller = Caller(
            self.hub,
            self.session,
            may_spawn=self.may_spawn,
            attendant=self.served,
            hung_up=lambda: self.served.hang_up,
            wants_task=self.asked_for_task is not None,
        )
        self.served.on_sent = caller.sent
        self.served.on_unsent = caller.unsent
        self.served.task_id = lambda: next((call.task_id for call in caller.calls), None)
        return caller
