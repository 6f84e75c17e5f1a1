"""Changes that are not written yet, in their order; those that undo each other meanwhile are not kept.

Pure: `sqlite.py` writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple, TypeAlias

from emceepee.store.contract import Key

__all__ = ["Change", "Delete", "DeleteOwner", "DeleteUpTo", "Pending", "Put"]


class Put(NamedTuple):
    key: Key
    text: str


class Delete(NamedTuple):
    key: Key


class DeleteOwner(NamedTuple):
    owner: str


class DeleteUpTo(NamedTuple):
    key: Key


Change: TypeAlias = Put | Delete | DeleteOwner | DeleteUpTo


class Pending:
    """At most one change for each record, owner, and kind of an owner: the last one, which stands where it was made."""

    def __init__(self) -> None:
        self._changes: dict[object, Change] = {}

    def __len__(self) -> int:
        return len(self._changes)

    def __iter__(self) -> Iterator[Change]:
        return iter(self._changes.values())

    @property
    def delete_count(self) -> int:
        return sum(not isinstance(change, Put) for change in self)

    def add(self, change: Change) -> None:
        match change:
            case Put() | Delete():
                self._set(change.key, change)
            case DeleteOwner(owner):
                self._drop(lambda other: _owner(other) == owner)
                self._set((DeleteOwner, owner), change)
            case DeleteUpTo(key):
                self._drop(
                    lambda other: (
                        isinstance(other, Put | Delete) and other.key[:2] == key[:2] and other.key.id <= key.id
                    )
                )
                slot = (DeleteUpTo, *key[:2])
                earlier = self._changes.get(slot)
                if not isinstance(earlier, DeleteUpTo) or earlier.key.id < key.id:
                    self._set(slot, change)

    def append(self, later: Pending) -> None:
        """Go on with changes that were made after all of ours."""
        for change in later:
            self.add(change)

    def drop_deletes_of_others(self, written: Collection[Key]) -> None:
        """Forget the deletions of what is not among the records that are `written`: there is nothing to delete."""
        owners = {key.owner for key in written}
        kinds = {key[:2] for key in written}

        def is_idle(change: Change) -> bool:
            match change:
                case Put():
                    return False
                case Delete(key):
                    return key not in written
                case DeleteOwner(owner):
                    return owner not in owners
                case DeleteUpTo(key):
                    return key[:2] not in kinds

        self._drop(is_idle)

    def _set(self, slot: object, change: Change) -> None:
        # Taken out first: a change counts from where it was made last.
        self._changes.pop(slot, None)
        self._changes[slot] = change

    def _drop(self, condition: Callable[[Change], bool]) -> None:
        for slot in [slot for slot, change in self._changes.items() if condition(change)]:
            del self._changes[slot]


def _owner(change: Change) -> str:
    return change.owner if isinstance(change, DeleteOwner) else change.key.owner
