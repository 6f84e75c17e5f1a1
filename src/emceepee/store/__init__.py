"""What survives a restart: one Protocol (`contract.py`), in memory (`memory.py`) and in SQLite (`sqlite.py`).

`places.py` is for hubs that keep nothing.
"""

from emceepee.store.contract import Key, Store, StoreError
from emceepee.store.memory import MemoryStore
from emceepee.store.places import abandoned_places, claimed_place
from emceepee.store.sqlite import SqliteStore

__all__ = ["Key", "MemoryStore", "SqliteStore", "Store", "StoreError", "abandoned_places", "claimed_place"]
