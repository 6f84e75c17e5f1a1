"""What a store promises."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol, TypeAlias

from emceepee.errors import EmceepeeError

__all__ = ["JsonObject", "Key", "Store", "StoreError"]

JsonObject: TypeAlias = dict[str, Any]


class StoreError(EmceepeeError):
    """The store at `place` cannot be used, because of `reason`."""

    def __init__(self, place: str, reason: str) -> None:
        self.place = place
        self.reason = reason
        super().__init__(
            f"{place}: {reason}. Use another directory with --data DIR; to go on without keeping anything, "
            "use --data :memory:"
        )


class Key(NamedTuple):
    """Where a record stands: `kind` is what it is, `owner` the session or principal (or ""), `id` its own."""

    kind: str
    owner: str
    id: str


class Store(Protocol):
    """Records of JSON under keys.

    `put`, `delete`, `delete_owner` and `delete_up_to` never block and never fail: they take effect in the order of the
    calls, for this process at once and for the next one once `sync` has returned. Calls without an `await` between them
    are written together or not at all. What is overwritten or deleted before it was written is never written. A `sync`
    covers everything that was called before it; several at once share one write. If a write fails, that is logged,
    `sync` returns all the same (a full disk must not stop the hub), and the records are written as soon as it is
    possible again; until then no more is held in memory than the records that there are, those that were written, and
    what happened just now. A record that can never be written, because of what it is, is logged and left out, and harms
    no other.

    `load` gives every record, and is called once, before anything is written. One that cannot be read is logged, and
    left where it is. While `opened` is entered, nobody else can open the same place.

    Raises (from `opened` and `load` alone):
        StoreError: the place cannot be used; whatever is there is left as it is.
    """

    @property
    def place(self) -> str | None:
        """What no other store that is open has, and by which the programs of its hub are known; it may have none."""
        ...

    def opened(self) -> AbstractAsyncContextManager[None]: ...

    async def load(self) -> dict[Key, JsonObject]: ...

    def put(self, key: Key, value: JsonObject) -> None: ...

    def delete(self, key: Key) -> None: ...

    def delete_owner(self, owner: str) -> None: ...

    def delete_up_to(self, key: Key) -> None:
        """Delete the records of the same kind and owner whose id is not greater."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing that `sync` would wait for."""
        ...

    async def sync(self) -> None: ...
