"""What a link tells its session, and what it asks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from emceepee.client import Question
from emceepee.core.buffers import LogSource
from emceepee.core.links import ReconnectKind, Retry

if TYPE_CHECKING:
    from emceepee.hub.link import Link

__all__ = ["LinkSink"]


class LinkSink(Protocol):
    """Where a link tells what happens."""

    def on_link_connected(self, link: Link, kind: ReconnectKind | None, *, tools_changed: bool) -> None:
        """`kind` says what happened to the server since it was connected before, if it was."""
        ...

    def on_link_lost(self, link: Link, reason: str) -> None: ...

    def on_link_reconnecting(self, link: Link, retry: Retry) -> None: ...

    def on_question(self, link: Link, question: Question) -> None: ...

    def on_notification(self, link: Link, method: str, params: Mapping[str, Any], origin: object) -> None:
        """`origin` is the call that it belongs to, if that is known."""
        ...

    def on_log(self, link: Link, source: LogSource, entry: Mapping[str, Any], origin: object) -> None: ...

    def on_interrupted(self, link: Link, origin: object) -> None: ...

    def capabilities_of_client(self) -> Mapping[str, Any] | None:
        """What the server is told that its client can do; None for all that we can."""
        ...

    async def find_roots(self) -> Mapping[str, Any] | None:
        """The client's own answer to `roots/list`, if it has one."""
        ...
