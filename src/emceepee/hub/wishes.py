"""What a client has asked a server for once and for all: it holds on every connection, over restarts too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeAlias

from emceepee.client import ServerConnection
from emceepee.errors import PeerError

__all__ = ["Wishes"]

JsonObject: TypeAlias = dict[str, Any]


class Wishes:
    """Those of one session for one server; `save` is told what has to be kept of them, and None for nothing."""

    def __init__(self, save: Callable[[JsonObject | None], None], kept: JsonObject | None = None) -> None:
        self._save = save
        kept = kept or {}
        self._subscriptions: dict[str, bool] = dict.fromkeys(kept.get("subscriptions", ()), True)
        """By the resource, whether it is to be kept."""
        self._log_level: str | None = kept.get("log_level")

    def __iter__(self) -> Iterator[str]:
        """The resources that the client wants to be told of."""
        return iter(tuple(self._subscriptions))

    def subscribe(self, uri: str, *, is_kept: bool = True) -> None:
        """`is_kept` is False for what ends with a stream that the client has open."""
        self._subscriptions[uri] = is_kept or self._subscriptions.get(uri, False)
        self._changed()

    def unsubscribe(self, uri: str) -> bool:
        """Whether there was anything to end."""
        if self._subscriptions.pop(uri, None) is None:
            return False
        self._changed()
        return True

    def set_log_level(self, level: str) -> None:
        self._log_level = level
        self._changed()

    async def tell(self, server: ServerConnection) -> None:
        """Ask a new connection for all of it; what the server does not grant any more is no reason to do without it.

        Raises:
            WireError: the connection is lost.
        """
        with suppress(PeerError):
            if self._log_level is not None:
                await server.set_log_level(self._log_level)
        for uri in self:
            with suppress(PeerError):
                await server.subscribe(uri)

    def clear(self) -> None:
        self._subscriptions.clear()
        self._log_level = None
        self._changed()

    def _changed(self) -> None:
        kept: JsonObject = {}
        if uris := [uri for uri, is_kept in self._subscriptions.items() if is_kept]:
            kept["subscriptions"] = uris
        if self._log_level is not None:
            kept["log_level"] = self._log_level
        self._save(kept or None)
