"""What survives a restart: one Protocol (`contract.py`), in memory (`memory.py`) and in SQLite (`sqlite.py`)."""

from emceepee.store.contract import Key, Store, StoreError
from emceepee.store.memory import MemoryStore
from emceepee.store.sqlite import SqliteStore

__all__ = ["Key", "MemoryStore", "SqliteStore", "Store", "StoreError"]
