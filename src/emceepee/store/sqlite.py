"""A store in one SQLite file.

Changes are collected (`pending.py`) and written in one transaction, in a thread, while the event loop goes on; those
that undo each other meanwhile are never written. The file is ours alone while we run, which a lock makes sure of.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from structlog import get_logger

from emceepee.concurrency import companions
from emceepee.store.contract import JsonObject, Key, StoreError
from emceepee.store.pending import Change, Delete, DeleteOwner, DeleteUpTo, Pending, Put

__all__ = ["SCHEMA_VERSION", "SqliteStore"]

log = get_logger(__name__)
T = TypeVar("T")

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE records (
        kind TEXT NOT NULL, owner TEXT NOT NULL, id TEXT NOT NULL, value TEXT NOT NULL,
        PRIMARY KEY (kind, owner, id)
    ) WITHOUT ROWID
    """,
    # Tasks say when they expire, questions and the calls that wait for them are kept.
    """
    UPDATE records SET value = json_set(
        value, '$.expires_at', json_extract(value, '$.created_at') + json_extract(value, '$.ttl_ms') / 1000.0
    ) WHERE kind = 'task'
    """,
    # Sessions say when they were in use last, as far as that is known.
    """
    UPDATE records SET value = json_object('last_active_at', json_extract(value, '$.created_at'))
    WHERE kind = 'session'
    """,
)
"""Each takes the file one version further; those that have been released are never changed."""

SCHEMA_VERSION = len(MIGRATIONS)

_ALL_RECORDS = """
    SELECT CAST(kind AS BLOB), CAST(owner AS BLOB), CAST(id AS BLOB), CAST(value AS BLOB) FROM records
"""
"""As bytes: one that is no text must not make all others unreadable."""

RETRY_SECONDS = 1.0
"""Before a write that failed, say because the disk is full, is tried again."""

FAREWELL_SECONDS = 2.0
"""For the last write when we are closed."""

MAX_DELETES = 1_000
"""So many deletions are kept while nothing can be written; if there are more, we look which of them delete anything."""

UNWRITABLE = (
    TypeError,
    ValueError,
    OverflowError,
    RecursionError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)
"""What says that one record can never be written, because of what it is."""


class SqliteStore:
    """Implements `Store` in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "emceepee.sqlite3"
        self._lock_path = directory / "emceepee.lock"
        self._pending = Pending()
        self._made = 0
        self._durable = 0
        self._is_failing = False
        self._dirty = anyio.Event()
        self._written = anyio.Event()
        self._connection: sqlite3.Connection | None = None
        self._identity: os.stat_result | None = None
        """Which file it is that is open, whatever stands at its path."""

    @property
    def place(self) -> str | None:
        return str(self._path.parent.resolve())

    # Opening

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        with self._refusing():
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._locked():
            with self._refusing():
                self._connection = await _in_thread(self._connect)
            with closing(self._connection):
                try:
                    async with companions() as tasks:
                        tasks.start_soon(self._write_behind)
                        yield
                finally:
                    with anyio.move_on_after(FAREWELL_SECONDS, shield=True):
                        await self._flush()

    async def load(self) -> dict[Key, JsonObject]:
        with self._refusing():
            rows = await _in_thread(partial(self._query, _ALL_RECORDS))
        return dict(record for row in rows if (record := self._record(row)) is not None)

    def _record(self, row: Sequence[bytes]) -> tuple[Key, JsonObject] | None:
        try:
            kind, owner, id_, text = (part.decode() for part in row)
            value = json.loads(text)
            if not isinstance(value, dict):
                raise TypeError(f"{type(value).__name__} instead of an object")
        except (ValueError, TypeError, RecursionError) as error:
            log.error("record_unreadable", path=str(self._path), kind=row[0].decode(errors="replace"), error=str(error))
            return None
        return Key(kind, owner, id_), value

    # Changing

    def put(self, key: Key, value: JsonObject) -> None:
        try:
            # All of it in ASCII, which SQLite can write whatever it stands for.
            text = json.dumps(value, separators=(",", ":"))
        except UNWRITABLE as error:
            _log_unwritable(key.kind, error)
        else:
            self._change(Put(key, text))

    def delete(self, key: Key) -> None:
        self._change(Delete(key))

    def delete_owner(self, owner: str) -> None:
        self._change(DeleteOwner(owner))

    def delete_up_to(self, key: Key) -> None:
        self._change(DeleteUpTo(key))

    @property
    def is_settled(self) -> bool:
        return self._durable == self._made

    async def sync(self) -> None:
        wanted = self._made
        while self._durable < wanted:
            written = self._written
            await written.wait()
            if self._is_failing:
                return

    # Writing

    def _change(self, change: Change) -> None:
        self._pending.add(change)
        self._made += 1
        self._dirty.set()

    async def _write_behind(self) -> None:
        while True:
            await self._dirty.wait()
            if not await self._flush():
                await self._drop_idle_deletes()
                with anyio.move_on_after(RETRY_SECONDS):
                    await anyio.sleep_forever()

    async def _flush(self) -> bool:
        self._dirty = anyio.Event()
        batch, self._pending = self._pending, Pending()
        covered = self._made
        try:
            # Not to be left half-way: what was taken out of `pending` has to be written.
            with anyio.CancelScope(shield=True):
                await _in_thread(partial(self._commit, batch))
            self._durable = covered
            self._is_failing = False
        except Exception as error:
            # Whatever it is: without this task nothing would be written any more, and everybody would wait.
            is_usual = isinstance(error, sqlite3.Error | StoreError)
            log.error("store_write_failed", path=str(self._path), error=str(error), exc_info=not is_usual)
            batch.append(self._pending)
            self._pending = batch
            self._dirty.set()
            self._is_failing = True
        self._written.set()
        self._written = anyio.Event()
        return not self._is_failing

    async def _drop_idle_deletes(self) -> None:
        """While nothing can be written, records come and go: those that came meanwhile need not be deleted."""
        if self._pending.delete_count > MAX_DELETES:
            with suppress(sqlite3.Error):
                rows = await _in_thread(partial(self._query, "SELECT kind, owner, id FROM records"))
                self._pending.drop_deletes_of_others({Key(*row) for row in rows})

    def _commit(self, changes: Iterable[Change]) -> None:
        with self._transaction() as connection:
            for change in changes:
                try:
                    connection.execute(*_statement(change))
                except UNWRITABLE as error:
                    _log_unwritable(type(change).__name__, error)

    # In the thread

    def _connect(self) -> sqlite3.Connection:
        # SQLite makes its files beside this one as readable as this one is.
        with suppress(FileExistsError):
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        version = self._examined()
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            self._close_to_others()
            connection.execute("PRAGMA journal_mode = WAL")
            # The file survives a crash of ours at any moment; a crash of the machine may cost the last moments.
            connection.execute("PRAGMA synchronous = NORMAL")
            for migration in MIGRATIONS[version:]:
                connection.execute("BEGIN")
                connection.execute(migration)
                version += 1
                connection.execute(f"PRAGMA user_version = {version}")
                connection.execute("COMMIT")
            self._identity = os.stat(self._path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _examined(self) -> int:
        """The version of the file, if it is one that we can use; to look at it changes nothing."""
        with closing(sqlite3.connect(self._address(), uri=True)) as connection:
            version: int = connection.execute("PRAGMA user_version").fetchone()[0]
            if version > SCHEMA_VERSION:
                raise StoreError(str(self._path), f"it was written by a newer emceepee (schema {version})")
            # It does not raise, but says what it found.
            if (found := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise StoreError(str(self._path), f"it is damaged ({' '.join(found.split())})")
        return version

    def _address(self) -> str:
        """How to open the file to look at it."""
        if self._beside("journal").exists():
            how = "mode=rw"  # a transaction was cut off before the file had a log, and has to be taken back first
        elif self._beside("wal").exists():
            how = "mode=ro"  # whoever may write would work the log into the file when closing it
        else:
            how = "mode=ro&immutable=1"  # or an empty log would be left beside it
        return f"{self._path.resolve().as_uri()}?{how}"

    def _beside(self, part: str) -> Path:
        return self._path.with_name(f"{self._path.name}-{part}")

    def _close_to_others(self) -> None:
        """There are secrets in it: headers of servers, answers, what tools were called with."""
        for path in (self._path, self._beside("wal"), self._beside("shm")):
            with suppress(FileNotFoundError):
                os.chmod(path, 0o600)

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        return self._open().execute(sql).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._open()
        self._make_sure_that_it_is_there()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    def _make_sure_that_it_is_there(self) -> None:
        """A file that was deleted can be written like any other, but nobody will ever read it."""
        with suppress(FileNotFoundError):
            if self._identity is not None and os.path.samestat(os.stat(self._path), self._identity):
                return
        raise StoreError(
            str(self._path), "it was deleted or replaced under a running hub, which keeps nothing from now on"
        )

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreError(str(self._path), "it is not open")
        return self._connection

    # Trouble

    @contextmanager
    def _locked(self) -> Iterator[None]:
        directory = self._lock_path.parent
        with ExitStack() as held:
            # The directory, since a file in it can be deleted while its lock is held; the file, since some file systems
            # lock no directories. Never the database: to close it a second time would let go of SQLite's own locks.
            for path, flags in ((directory, os.O_RDONLY | os.O_DIRECTORY), (self._lock_path, os.O_RDWR | os.O_CREAT)):
                with self._refusing():
                    handle = os.open(path, flags, 0o600)
                held.callback(os.close, handle)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    if path != directory or isinstance(error, BlockingIOError):
                        raise StoreError(str(directory), "another hub is using this data directory") from None
            yield

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Turn what can go wrong with a file into a sentence."""
        try:
            yield
        except OSError as error:
            raise StoreError(str(self._path.parent), str(error.strerror).lower()) from None
        except sqlite3.Error as error:
            raise StoreError(str(self._path), str(error)) from None
        except (ValueError, TypeError) as error:
            raise StoreError(str(self._path), f"it holds something that is no record of ours ({error})") from None


def _statement(change: Change) -> tuple[str, tuple[str, ...]]:
    match change:
        case Put(key, text):
            return "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)", (*key, text)
        case Delete(key):
            return "DELETE FROM records WHERE kind = ? AND owner = ? AND id = ?", key
        case DeleteOwner(owner):
            return "DELETE FROM records WHERE owner = ?", (owner,)
        case DeleteUpTo(key):
            return "DELETE FROM records WHERE kind = ? AND owner = ? AND id <= ?", key


def _log_unwritable(what: str, error: Exception) -> None:
    log.error("record_cannot_be_written", record=what, error=str(error))


async def _in_thread(call: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(call)
