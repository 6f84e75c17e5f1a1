"""One piece of work at a server, as the hub keeps it while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeAlias

import anyio

from emceepee.client import RemoteTask, Resumption, TaskCreated, TaskStatus
from emceepee.core.timers import Timer
from emceepee.errors import EmceepeeError, ToolError
from emceepee.hub.attendant import Attendant
from emceepee.hub.link import Link
from emceepee.hub.work import Work

__all__ = ["Call", "CallNews", "Promotion"]

JsonObject: TypeAlias = dict[str, Any]
Promotion: TypeAlias = Literal["timeout", "question", "client_gone", "server_task"]


class CallNews(Protocol):
    """Who is told what a call hears from its server: the runner of the calls."""

    def on_progress(self, call: Call, progress: Mapping[str, Any]) -> None: ...

    def on_server_task(self, call: Call, task: RemoteTask) -> None: ...


class Call:
    """`turned` is set when its client need not wait any longer: see `result`, `error`, `task_id`.

    Implements `Observer` for the work that it does.
    """

    def __init__(self, number: int, link: Link, work: Work, *, ttl_ms: int, started: float, news: CallNews) -> None:
        self.number = number
        self.link = link
        self.work = work
        self.ttl_ms = ttl_ms
        self.started = started
        self.task_id: str | None = None
        self.promoted_by: Promotion | None = None
        self.server_task: RemoteTask | None = None
        """The task that the server made of it, if it did."""
        self.resumption = Resumption()
        self.immediate_response: str | None = None
        self.is_cancelling = False
        self.result: JsonObject | None = None
        self.error: ToolError | None = None
        self.cause: EmceepeeError | None = None
        """The error as it came, for clients that are told it untouched."""
        self.turned = anyio.Event()
        self.progress: Mapping[str, Any] | None = None
        self.attendant = Attendant()
        """The client that waits for it."""
        self.caller = self.attendant
        """The client that made it, whether or not it still waits."""
        self.scope = anyio.CancelScope()
        self._news = news

    @property
    def server(self) -> str:
        return self.link.name

    @property
    def tool(self) -> str:
        return self.work.tool

    @property
    def is_waited_for(self) -> bool:
        return self.task_id is None

    @property
    def timer(self) -> Timer:
        return Timer("call", str(self.number))

    async def on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        self._news.on_progress(self, {"progress": progress, "total": total, "message": message})

    def on_server_task(self, update: TaskCreated | TaskStatus) -> None:
        if isinstance(update, TaskCreated):
            self.immediate_response = update.immediate_response
        self._news.on_server_task(self, update.task)
