"""What can go wrong with a file."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sqlite3
import stat
import sys
from pathlib import Path

import anyio
import pytest
import structlog

from emceepee.store import Key, SqliteStore, StoreError
from emceepee.store.sqlite import MIGRATIONS, SCHEMA_VERSION

pytestmark = pytest.mark.anyio

KEY = Key("task", "s", "a")


async def fill(directory: Path) -> Path:
    store = SqliteStore(directory)
    async with store.opened():
        store.put(KEY, {"n": 1})
    return directory / "emceepee.sqlite3"


async def test_a_second_hub_on_the_same_directory_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path).opened():
        with pytest.raises(StoreError, match=r"another hub is using this data directory.*--data :memory:"):
            async with SqliteStore(tmp_path).opened():
                pytest.fail("both are open")
    await fill(tmp_path)


async def test_a_second_hub_is_refused_also_if_somebody_deleted_the_lock(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path).opened():
        (tmp_path / "emceepee.lock").unlink()
        with pytest.raises(StoreError, match="another hub is using this data directory"):
            async with SqliteStore(tmp_path).opened():
                pytest.fail("both are open")
    await fill(tmp_path)


async def test_a_directory_that_cannot_be_locked_is_used_with_the_lock_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on some network file systems."""
    flock = fcntl.flock

    def files_only(handle: int, operation: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", files_only)
    async with SqliteStore(tmp_path).opened():
        with pytest.raises(StoreError, match="another hub is using this data directory"):
            async with SqliteStore(tmp_path).opened():
                pytest.fail("both are open")
    await fill(tmp_path)


async def test_a_schema_from_the_future_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = await fill(tmp_path)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="newer emceepee"):
        async with SqliteStore(tmp_path).opened():
            pytest.fail("it is open")
    assert path.read_bytes() == before


KILLED_WHILE_WRITING = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("INSERT INTO records VALUES ('task', 's', 'in the log', '{}')")
connection.execute(f"PRAGMA user_version = {sys.argv[2]}")
os._exit(0)
"""


@pytest.mark.parametrize("trouble", ["newer", "damaged"])
async def test_what_is_refused_keeps_its_log_too(tmp_path: Path, trouble: str) -> None:
    """Of a hub that was killed, much is only in the log beside the file: its successor may need both as they are."""
    path = tmp_path / "emceepee.sqlite3"
    store = SqliteStore(tmp_path)
    async with store.opened():
        for number in range(1_000):
            store.put(Key("task", "s", f"{number:05}"), {"text": "x" * 60})
    version = SCHEMA_VERSION + (trouble == "newer")
    await anyio.run_process([sys.executable, "-c", KILLED_WHILE_WRITING, str(path), str(version)])
    if trouble == "damaged":
        content = bytearray(path.read_bytes())
        content[5 * 4096 + 7] += 3  # how many bytes of the page are in fragments
        path.write_bytes(content)
    log = path.with_name(f"{path.name}-wal")
    before = (path.read_bytes(), log.read_bytes())
    assert before[1]
    with pytest.raises(StoreError, match=trouble):
        async with SqliteStore(tmp_path).opened():
            pytest.fail("it is open")
    assert (path.read_bytes(), log.read_bytes()) == before


async def test_a_file_that_was_left_in_the_midst_of_its_making_is_used(tmp_path: Path) -> None:
    """Its journal says how it was before."""
    path = tmp_path / "emceepee.sqlite3"
    code = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("CREATE TABLE old (x)")
connection.execute("BEGIN")
for _ in range(200):
    connection.execute("INSERT INTO old VALUES (zeroblob(4096))")
os._exit(0)
"""
    await anyio.run_process([sys.executable, "-c", code, str(path)])
    assert path.with_name(f"{path.name}-journal").stat().st_size > 0
    await fill(tmp_path)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM old").fetchone() == (0,)
    connection.close()


async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "emceepee.sqlite3"
    path.write_bytes(b"not a database at all, but long enough to look at" * 100)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="not a database"):
        async with SqliteStore(tmp_path).opened():
            pytest.fail("it is open")
    assert path.read_bytes() == before


async def test_a_directory_that_cannot_be_made_is_a_clear_message(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    with pytest.raises(StoreError, match="not a directory"):
        async with SqliteStore(blocker / "data").opened():
            pytest.fail("it is open")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write into a read-only directory")
async def test_a_read_only_directory_is_a_clear_message(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o500)
    with pytest.raises(StoreError, match="permission denied"):
        async with SqliteStore(tmp_path).opened():
            pytest.fail("it is open")


async def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    path = await fill(tmp_path / "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def modes_in(directory: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}


async def test_only_the_owner_can_read_what_sqlite_puts_beside_the_file(tmp_path: Path) -> None:
    """Also in a directory that others can read, and where an earlier version left the file open to them."""
    before = os.umask(0o022)
    try:
        os.chmod(tmp_path, 0o755)  # noqa: S103  # which is what this is about
        for _ in range(2):
            store = SqliteStore(tmp_path)
            async with store.opened():
                store.put(KEY, {"n": 1})
                await store.sync()
                modes = modes_in(tmp_path)
                assert set(modes) > {"emceepee.sqlite3", "emceepee.sqlite3-wal"}
                assert set(modes.values()) == {0o600}
            (tmp_path / "emceepee.sqlite3").chmod(0o644)
    finally:
        os.umask(before)


async def test_changes_that_belong_together_are_written_together(tmp_path: Path) -> None:
    """A question is forgotten with its answer noted, or neither has happened."""
    path = await fill(tmp_path)
    store = SqliteStore(tmp_path)
    async with store.opened():
        beside = sqlite3.connect(path)
        beside.execute("CREATE TRIGGER full BEFORE INSERT ON records BEGIN SELECT RAISE(ABORT, 'no room'); END")
        store.delete(KEY)
        store.put(Key("waiting_call", "s", "a"), {})
        with anyio.fail_after(30):
            await store.sync()
        assert beside.execute("SELECT kind FROM records").fetchall() == [("task",)]
        beside.execute("DROP TRIGGER full")
        beside.commit()
        beside.close()
    again = SqliteStore(tmp_path)
    async with again.opened():
        assert [key.kind for key in await again.load()] == ["waiting_call"]


async def test_a_file_of_the_first_version_is_taken_further(tmp_path: Path) -> None:
    """Made as that version made it: its tasks did not say when they expire, its sessions not when they were used."""
    path = tmp_path / "emceepee.sqlite3"
    old = sqlite3.connect(path)
    old.execute(MIGRATIONS[0])
    task = {"task_id": "t", "created_at": 1000.5, "ttl_ms": 60_000, "args": {"text": "grün"}}
    event = {"id": "e", "created_at": 3.0}
    rows = [("task", "s", "t", task), ("session", "s", "s", {"created_at": 1000.0}), ("event", "s", "e", event)]
    old.executemany("INSERT INTO records VALUES (?, ?, ?, ?)", [(*key, json.dumps(value)) for *key, value in rows])
    old.execute("PRAGMA user_version = 1")
    old.commit()
    old.close()
    store = SqliteStore(tmp_path)
    async with store.opened():
        assert await store.load() == {
            Key("task", "s", "t"): {**task, "expires_at": 1060.5},
            Key("session", "s", "s"): {"last_active_at": 1000.0},
            Key("event", "s", "e"): event,
        }
    new = sqlite3.connect(path)
    assert new.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    new.close()


async def test_a_write_that_fails_stops_nobody_and_is_made_up_for(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    async with store.opened():
        blocker = sqlite3.connect(tmp_path / "emceepee.sqlite3", timeout=0)
        blocker.execute("BEGIN EXCLUSIVE")
        connection = store._open()
        connection.execute("PRAGMA busy_timeout = 0")
        store.put(KEY, {"n": 1})
        with anyio.fail_after(30):
            await store.sync()
        assert not store.is_settled
        blocker.execute("ROLLBACK")
        blocker.close()
    again = SqliteStore(tmp_path)
    async with again.opened():
        assert await again.load() == {KEY: {"n": 1}}


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_file_that_was_deleted_under_us_is_no_place_to_keep_anything(
    tmp_path: Path, *, is_replaced: bool
) -> None:
    store = SqliteStore(tmp_path)
    path, aside = tmp_path / "emceepee.sqlite3", tmp_path / "aside"
    async with store.opened():
        path.rename(aside)
        if is_replaced:
            path.touch()
        store.put(KEY, {"n": 1})
        with anyio.fail_after(30), structlog.testing.capture_logs() as logs:
            await store.sync()
        assert not store.is_settled
        assert logs[0]["event"] == "store_write_failed"
        assert "it was deleted or replaced under a running hub" in logs[0]["error"]
        aside.rename(path)
    again = SqliteStore(tmp_path)
    async with again.opened():
        assert await again.load() == {KEY: {"n": 1}}


async def test_what_comes_and_goes_while_nothing_can_be_written_takes_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emceepee.store.sqlite.RETRY_SECONDS", 0)
    path = await fill(tmp_path)
    store = SqliteStore(tmp_path)
    async with store.opened():
        beside = sqlite3.connect(path)
        beside.execute("CREATE TRIGGER full BEFORE INSERT ON records BEGIN SELECT RAISE(ABORT, 'no room'); END")
        store.put(Key("task", "s", "kept"), {})
        store.delete(KEY)
        for round_ in range(5):
            for number in range(2_000):
                key = Key("event", "s", f"{round_}-{number:05}")
                store.put(key, {})
                store.delete(key)
            with anyio.fail_after(20):
                # The second one begins after what the first one left has been looked through.
                await store.sync()
                await store.sync()
            assert len(store._pending) == 2
        beside.execute("DROP TRIGGER full")
        beside.close()
    again = SqliteStore(tmp_path)
    async with again.opened():
        assert list(await again.load()) == [Key("task", "s", "kept")]


HALF = "\ud800"
"""Half a character, which cannot be written."""


async def test_a_record_that_can_never_be_written_harms_no_other(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    async with store.opened():
        store.put(KEY, {"n": 1})
        store.put(Key("task", HALF, "a"), {})
        store.put(Key("task", "s", "no JSON"), {"n": object()})
        endless: dict[str, object] = {}
        endless["itself"] = endless
        store.put(Key("task", "s", "endless"), endless)
        store.delete(Key("task", "s", HALF))
        store.delete_owner(HALF)
        with anyio.fail_after(20):
            await store.sync()
        assert store.is_settled
        store.put(Key("task", "s", "later"), {})
    again = SqliteStore(tmp_path)
    async with again.opened():
        assert set(await again.load()) == {KEY, Key("task", "s", "later")}


async def test_whatever_goes_wrong_with_a_write_it_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path)

    def out_of_memory(_changes: object) -> None:
        monkeypatch.undo()
        raise MemoryError

    async with store.opened():
        monkeypatch.setattr(store, "_commit", out_of_memory)
        store.put(KEY, {"n": 1})
        with anyio.fail_after(20):
            await store.sync()
        assert not store.is_settled
    again = SqliteStore(tmp_path)
    async with again.opened():
        assert await again.load() == {KEY: {"n": 1}}


async def test_a_record_that_cannot_be_read_costs_no_other_and_stays_where_it_is(tmp_path: Path) -> None:
    path = await fill(tmp_path)
    connection = sqlite3.connect(path)
    damaged = ["{not JSON", "[1, 2]", '"text"', b"\xff\xfe", "[" * 100_000]
    rows = [("task", "s", f"damaged {number}", value) for number, value in enumerate(damaged)]
    connection.executemany("INSERT INTO records VALUES (?, ?, ?, ?)", rows)
    connection.execute("INSERT INTO records VALUES ('task', CAST(x'ff' AS TEXT), 'b', CAST(x'7bff7d' AS TEXT))")
    connection.commit()
    connection.close()
    store = SqliteStore(tmp_path)
    async with store.opened():
        assert await store.load() == {KEY: {"n": 1}}
        store.put(Key("task", "s", "later"), {})
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM records").fetchone() == (len(damaged) + 3,)
    connection.close()
