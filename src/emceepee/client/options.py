"""How a connection presents itself and behaves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from emceepee import __version__
from emceepee.client.questions import Question
from emceepee.core.buffers import LogSource
from emceepee.wire.era import Identity
from emceepee.wire.negotiation import EraChoice

__all__ = ["ClientOptions", "ClientSink"]


class ClientSink(Protocol):
    """Who is told what comes from the server. Calls are synchronous: note it, and act elsewhere."""

    def on_question(self, question: Question) -> None: ...

    def on_notification(self, method: str, params: Mapping[str, Any], origin: object) -> None:
        """`origin` is the one of the call that it came with, as far as that can be known."""
        ...

    def on_log(self, source: LogSource, entry: Mapping[str, Any], origin: object) -> None:
        """A log entry, or a line of a program's output dressed as one."""
        ...

    def on_interrupted(self, origin: object) -> None:
        """The server has closed the stream of this call on purpose, and will answer on another."""
        ...


@dataclass(frozen=True, slots=True)
class ClientOptions:
    name: str = "emceepee"
    version: str = __version__
    era: EraChoice = "auto"
    elicitation: bool = True
    """Whether to declare that we can be asked for input. Whoever leaves it on has to answer `questions()`, since the
    calls that ask wait for that."""
    sampling: bool = True
    """The same for questions to a model."""
    roots: Sequence[str] | None = None
    """File URIs for `roots/list`; None leaves the capability out."""
    find_roots: Callable[[], Awaitable[Mapping[str, Any] | None]] | None = None
    """Asked for the whole answer to `roots/list` first; None from it means: `roots`."""
    idle_ping: float = 30.0
    """Seconds of silence after which an HTTP server is asked whether it is still there."""
    receiver_tasks: bool = False
    """Whether a server may ask with `params.task` and poll us for the answer (2025-11-25)."""
    receiver_task_ttl_ms: int | Callable[[], int] = 60_000
    """How long such a task lives if the server names no time."""
    min_receiver_task_ttl_ms: int = 0
    """How long it lives at least, whatever the server names."""
    leaves_session: Callable[[], bool] = lambda: False
    """Asked when we close a connection: whether its session is to live on at the server, for `Http(session=...)`."""
    log_level: str | None = None
    """Asked of a modern server with every request, which sends no logs without; others say what they want until
    `set_log_level`."""
    capabilities: Mapping[str, Any] | None = None
    """Declared instead of what follows from the rest: for whoever stands for somebody else."""

    def receiver_ttl_ms(self, wished: object) -> int:
        default = self.receiver_task_ttl_ms
        if isinstance(wished, int | float) and not isinstance(wished, bool) and wished > 0:
            ttl_ms = int(wished)
        else:
            ttl_ms = default() if callable(default) else default
        return max(ttl_ms, self.min_receiver_task_ttl_ms)

    def identity(self) -> Identity:
        if self.capabilities is not None:
            return Identity({"name": self.name, "version": self.version}, dict(self.capabilities))
        capabilities: dict[str, Any] = {}
        if self.elicitation:
            capabilities["elicitation"] = {"form": {}, "url": {}}
        if self.sampling:
            capabilities["sampling"] = {"tools": {}, "context": {}}
        if self.roots is not None:
            capabilities["roots"] = {"listChanged": True}
        if self.receiver_tasks:
            requests: dict[str, Any] = {"sampling": {"createMessage": {}}, "elicitation": {"create": {}}}
            capabilities["tasks"] = {"list": {}, "cancel": {}, "requests": requests}
        return Identity({"name": self.name, "version": self.version}, capabilities)
