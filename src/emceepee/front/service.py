"""What stands behind a path, for clients of either era."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from emceepee.front.client import ClientFacts
from emceepee.front.jsonrpc import Request
from emceepee.front.outcomes import Outcome
from emceepee.front.visit import Visit
from emceepee.hub import Session

__all__ = ["Service"]

JsonObject: TypeAlias = dict[str, Any]


class Service(Protocol):
    """What a URL offers: the hub's own tools, one server as it is, or all of them."""

    @property
    def endpoint(self) -> str:
        """Its name, which a session is bound to."""
        ...

    @property
    def streams_at_once(self) -> bool:
        """Whether handshake clients get every response as a stream, as the servers behind it would send it."""
        ...

    @property
    def tells_changes(self) -> bool:
        """Whether there is ever anything to tell those who listen for changes of lists and resources."""
        ...

    async def introduce(self, session: Session, client: ClientFacts) -> JsonObject:
        """Its `capabilities`, `serverInfo` and `instructions`, for a client of this era.

        Raises:
            PeerError: it cannot be had.
        """
        ...

    def workspace_of(self, request: Request) -> str | None:
        """The workspace that a modern request names in its arguments."""
        ...

    async def answer(self, visit: Visit) -> Outcome:
        """
        Raises:
            PeerError: what the client is told instead of a result.
        """
        ...

    async def may_issue_states(self, visit: Visit) -> bool:
        """Whether a `requestState` that is not ours can be one of a server's behind it, to which it is passed on."""
        ...

    async def go_on(self, visit: Visit, task_id: str) -> Outcome:
        """As `answer`, for a request that brings the answers to what was asked back."""
        ...

    def on_client_notification(self, session: Session, method: str, params: Mapping[str, Any]) -> None: ...

    def passed_on(self, server: str, method: str, params: Mapping[str, Any]) -> JsonObject | None:
        """The parameters with which its clients are told a server's notification; None for not at all."""
        ...

    async def listen(self, session: Session, uris: Sequence[str]) -> None:
        """Have servers tell of changes, of these resources too; returns when they do."""
        ...

    def stop_listening(self, session: Session, uris: Sequence[str]) -> None: ...
