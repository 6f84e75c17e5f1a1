"""A data directory that cannot be used: a sentence, a status, and nothing touched that was there."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from emceepee.store import Key, SqliteStore
from emceepee.store.sqlite import SCHEMA_VERSION
from tests.chaos.world import HubProcess, until
from tests.process.hub_process import EMCEEPEE, HttpClient, own_json, serving

pytestmark = pytest.mark.anyio

LIMIT_S = 180
RECORDS = 2000
"""Enough for a file of many pages, so that damage can be done in its midst."""


def refusal(data: Path, before_start: Callable[[], None] | None = None) -> str:
    """What a hub says that cannot use `data`: one line, and the way on."""
    ended = subprocess.run(
        [*EMCEEPEE, "serve", "--port", "0", "--data", str(data)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        preexec_fn=before_start,
        check=False,
    )
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("emceepee: ")]
    assert str(data) in line
    assert line.endswith("use --data :memory:")
    return line


async def filled(directory: Path) -> Path:
    """The file of a store that has been used."""
    store = SqliteStore(directory)
    async with store.opened():
        for number in range(RECORDS):
            store.put(Key("task", f"session-{number % 7}", f"{number:05}"), {"text": "x" * 60})
        await store.sync()
    return directory / "emceepee.sqlite3"


async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "emceepee.sqlite3"
    file.write_bytes(b"shopping list: bread, milk, a database\n" * 100)
    before = file.read_bytes()
    assert "not a database" in refusal(tmp_path)
    assert file.read_bytes() == before


async def test_a_damaged_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = await filled(tmp_path)
    damaged = bytearray(file.read_bytes())
    for page in range(3, 20):
        damaged[page * 4096 : page * 4096 + 200] = b"\xaa" * 200
    file.write_bytes(damaged)
    refusal(tmp_path)
    assert file.read_bytes() == damaged


async def test_damage_that_only_a_check_finds_is_refused_and_left_alone(tmp_path: Path) -> None:
    """Everything can still be read, but a page says of itself what is not true: the next write could ruin the rest."""
    file = await filled(tmp_path)
    damaged = bytearray(file.read_bytes())
    damaged[5 * 4096 + 7] += 3  # how many bytes of the page are in fragments
    file.write_bytes(damaged)
    assert "damaged" in refusal(tmp_path)
    assert file.read_bytes() == damaged


async def test_a_schema_from_the_future_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = await filled(tmp_path)
    connection = sqlite3.connect(file)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    before = file.read_bytes()
    assert f"newer emceepee (schema {SCHEMA_VERSION + 1})" in refusal(tmp_path)
    assert file.read_bytes() == before


async def test_a_directory_that_cannot_be_written_is_refused_and_left_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    file = await filled(data)
    (data / "emceepee.lock").unlink()
    before = file.read_bytes()
    with unwritable(data):
        refusal(data)
        assert file.read_bytes() == before
        assert os.listdir(data) == ["emceepee.sqlite3"]


async def test_a_place_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "not a directory" in refusal(tmp_path / "file" / "data")


async def test_a_disk_that_is_full_at_the_start_is_refused_and_the_old_file_left_alone(tmp_path: Path) -> None:
    def no_room() -> None:
        # Each write beyond the limit fails, as on a full disk; Python ignores the signal that comes with it.
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    data = tmp_path / "data"
    data.mkdir()
    refusal(data, no_room)
    old = tmp_path / "old"
    file = await filled(old)
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    before = file.read_bytes()
    refusal(old, no_room)
    assert file.read_bytes() == before


async def test_a_disk_that_fills_up_stops_nobody_and_all_is_written_once_there_is_room(tmp_path: Path) -> None:
    hub = HubProcess(tmp_path, {})
    with anyio.fail_after(LIMIT_S):
        await hub.start()
        try:
            async with HttpClient(hub.url) as early:
                limits = resource.prlimit(hub.pid, resource.RLIMIT_FSIZE)
                resource.prlimit(hub.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
                async with HttpClient(hub.url) as late:
                    assert own_json(await late.call("list_servers")) == {"servers": []}
                    assert own_json(await early.call("list_servers")) == {"servers": []}
                    assert hub.program is not None
                    await anyio.to_thread.run_sync(hub.program.wait_for_line, "store_write_failed")
                    resource.prlimit(hub.pid, resource.RLIMIT_FSIZE, limits)
                    await until(lambda: late.http.headers["mcp-session-id"] in sessions_in(hub.data))
                    await hub.kill()
                    await hub.start()
                    assert own_json(await late.call("list_servers")) == {"servers": []}
                    assert own_json(await early.call("list_servers")) == {"servers": []}
            await until(lambda: not sessions_in(hub.data))
        finally:
            if hub.program is not None:
                assert await hub.stop() == 0


async def test_a_second_hub_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with serving("--data", str(tmp_path)) as (url, _):
        assert "another hub is using this data directory" in refusal(tmp_path)
        async with HttpClient(url) as client:
            assert own_json(await client.call("list_servers")) == {"servers": []}


async def test_the_way_on_works(tmp_path: Path) -> None:
    (tmp_path / "emceepee.sqlite3").write_bytes(b"no database" * 100)
    with serving("--data", ":memory:") as (url, _):
        async with HttpClient(url) as client:
            assert own_json(await client.call("list_servers")) == {"servers": []}


def sessions_in(data: Path) -> set[str]:
    connection = sqlite3.connect(f"file:{data}/emceepee.sqlite3?mode=ro", uri=True)
    try:
        return {owner for (owner,) in connection.execute("SELECT owner FROM records WHERE kind = 'session'")}
    finally:
        connection.close()


@contextmanager
def unwritable(directory: Path) -> Iterator[None]:
    """Nothing can be made in `directory`; root may do everything that permissions forbid, but not this."""
    if os.geteuid() != 0:
        directory.chmod(0o500)
        try:
            yield
        finally:
            directory.chmod(0o700)
        return
    chattr = shutil.which("chattr")
    if chattr is None or subprocess.run([chattr, "+i", str(directory)], capture_output=True, check=False).returncode:
        pytest.skip("root may write everywhere, and this file system has no immutable directories")
    try:
        yield
    finally:
        subprocess.run([chattr, "-i", str(directory)], check=True)
