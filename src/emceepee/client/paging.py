"""Reading a list to its end, however many pages it has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from emceepee.errors import PeerError

__all__ = ["all_pages"]

JsonObject: TypeAlias = dict[str, Any]

MAX_PAGES = 1000
"""A server that hands out cursors forever is broken, and is told so."""


async def all_pages(
    request: Callable[[str, JsonObject], Awaitable[JsonObject]], method: str, key: str
) -> list[JsonObject]:
    """Everything under `key`, over all pages that `method` answers with.

    Raises:
        PeerError: the server refused, or its answers make no sense.
    """
    items: list[JsonObject] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await request(method, {} if cursor is None else {"cursor": cursor})
        found = page.get(key, [])
        if not isinstance(found, list):
            raise PeerError(-32603, f"{method} answered without a list of {key}")
        items.extend(item for item in found if isinstance(item, dict))
        following = page.get("nextCursor")
        if not following:
            return items
        if following == cursor:
            raise PeerError(-32603, f"{method} answered with the same cursor twice")
        cursor = following
    raise PeerError(-32603, f"{method} has more than {MAX_PAGES} pages")
