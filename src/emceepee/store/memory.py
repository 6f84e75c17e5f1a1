"""A store that is gone with the process: for tests, and for whoever wants nothing kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from emceepee.store.contract import JsonObject, Key

__all__ = ["MemoryStore"]


class MemoryStore:
    """Implements `Store`; opened again, it still has what it had."""

    def __init__(self, place: str | None = None) -> None:
        """`place` is somebody else's concern (see `places.py`): nothing is kept there."""
        self._place = place
        self._records: dict[Key, JsonObject] = {}

    @property
    def place(self) -> str | None:
        return self._place

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        yield

    async def load(self) -> dict[Key, JsonObject]:
        return dict(self._records)

    def put(self, key: Key, value: JsonObject) -> None:
        self._records[key] = value

    def delete(self, key: Key) -> None:
        self._records.pop(key, None)

    def delete_owner(self, owner: str) -> None:
        self._delete_where(lambda key: key.owner == owner)

    def delete_up_to(self, key: Key) -> None:
        self._delete_where(lambda other: other[:2] == key[:2] and other.id <= key.id)

    @property
    def is_settled(self) -> bool:
        return True

    async def sync(self) -> None:
        return

    def _delete_where(self, condition: Callable[[Key], bool]) -> None:
        for key in [key for key in self._records if condition(key)]:
            del self._records[key]
