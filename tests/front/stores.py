"""Stores that make a test's interleaving certain."""

from __future__ import annotations

import anyio

from emceepee.store import MemoryStore

__all__ = ["FloodedStore"]


class FloodedStore(MemoryStore):
    """A store that always has more to write, and gets stuck after a few writes."""

    writes: int | None = None
    """How many go through until it is stuck; None for a store without trouble."""

    @property
    def is_settled(self) -> bool:
        return self.writes is None and super().is_settled

    async def sync(self) -> None:
        if self.writes == 0:
            await anyio.sleep_forever()
        elif self.writes is not None:
            self.writes -= 1
        await super().sync()
