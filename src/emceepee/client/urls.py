"""URLs that a server of 2025-11-25 wants opened before it does what it was asked for.

It says so with an error, and there is nothing to send back: once the user has agreed, or the server has told that the
user is done there, the request goes out again as it was.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import anyio

from emceepee.errors import PeerError
from emceepee.protocol import URL_ELICITATION_REQUIRED

__all__ = ["CompletedUrls", "urls_required"]

JsonObject: TypeAlias = dict[str, Any]

REMEMBERED = 200
"""How many completed elicitations are remembered: the word may come before anybody waits for it."""


def urls_required(error: PeerError) -> dict[str, JsonObject]:
    """The URL elicitations that the error asks for, by their id; empty if it is another error, or makes no sense."""
    data = error.data if error.code == URL_ELICITATION_REQUIRED else None
    asked = data.get("elicitations") if isinstance(data, Mapping) else None
    found: dict[str, JsonObject] = {}
    for params in asked if isinstance(asked, list) else []:
        if not isinstance(params, dict) or params.get("mode") != "url" or not isinstance(params.get("url"), str):
            return {}
        elicitation_id = params.get("elicitationId")
        if not isinstance(elicitation_id, str):
            return {}
        found[elicitation_id] = params
    return found


class CompletedUrls:
    """What `notifications/elicitation/complete` has told on one connection."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()
        self._news = anyio.Event()

    def __contains__(self, elicitation_id: str) -> bool:
        return elicitation_id in self._ids

    def add(self, elicitation_id: str) -> None:
        self._ids[elicitation_id] = None
        if len(self._ids) > REMEMBERED:
            self._ids.popitem(last=False)
        self._news.set()
        self._news = anyio.Event()

    async def wait_for(self, elicitation_ids: Iterable[str]) -> None:
        """Wait until all of these are completed."""
        wanted = list(elicitation_ids)
        while not all(one in self._ids for one in wanted):
            await self._news.wait()
