"""What every store promises (`emceepee.store.contract`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from emceepee.store import Key, MemoryStore, SqliteStore, Store

pytestmark = pytest.mark.anyio

A, B = Key("task", "s1", "a"), Key("task", "s1", "b")
Reopen = Callable[[], Store]


@pytest.fixture(params=["memory", "sqlite"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Reopen:
    """The same place, as the next process would open it."""
    memory = MemoryStore()
    return (lambda: memory) if request.param == "memory" else (lambda: SqliteStore(tmp_path))


async def contents(reopen: Reopen) -> dict[Key, dict[str, object]]:
    store = reopen()
    async with store.opened():
        return await store.load()


async def test_a_new_store_is_empty(reopen: Reopen) -> None:
    assert await contents(reopen) == {}


async def test_what_was_put_is_there_after_a_restart_with_its_newest_value(reopen: Reopen) -> None:
    store = reopen()
    async with store.opened():
        await store.load()
        store.put(A, {"n": 1, "text": "grün ✓", "nested": [None, {"x": 1.5}]})
        store.put(B, {"n": 1})
        store.put(B, {"n": 2})
        await store.sync()
        assert store.is_settled
    assert await contents(reopen) == {A: {"n": 1, "text": "grün ✓", "nested": [None, {"x": 1.5}]}, B: {"n": 2}}


async def test_what_was_deleted_is_gone_whenever_it_was_put(reopen: Reopen) -> None:
    store = reopen()
    async with store.opened():
        store.put(A, {})
        store.put(B, {})
        await store.sync()
        store.delete(A)
        store.put(Key("task", "s1", "c"), {})
        store.delete(Key("task", "s1", "c"))
    assert await contents(reopen) == {B: {}}


async def test_a_deleted_owner_takes_everything_along_and_may_come_back(reopen: Reopen) -> None:
    other = Key("task", "s2", "a")
    store = reopen()
    async with store.opened():
        store.put(A, {})
        await store.sync()
        store.put(B, {})
        store.put(other, {})
        store.delete_owner("s1")
        store.put(Key("task", "s1", "later"), {})
        await store.sync()
    assert set(await contents(reopen)) == {other, Key("task", "s1", "later")}


async def test_delete_up_to_leaves_what_is_greater_or_other(reopen: Reopen) -> None:
    keys = [Key("event", "s1", id_) for id_ in ("1", "2", "3")]
    others = [Key("event", "s2", "1"), Key("task", "s1", "1")]
    store = reopen()
    async with store.opened():
        for key in [*keys, *others]:
            store.put(key, {})
        await store.sync()
        store.delete_up_to(keys[1])
        await store.sync()
    assert set(await contents(reopen)) == {keys[2], *others}


async def test_what_was_not_synced_is_written_when_the_store_is_closed_in_order(reopen: Reopen) -> None:
    store = reopen()
    async with store.opened():
        for n in range(100):
            store.put(A, {"n": n})
    assert await contents(reopen) == {A: {"n": 99}}


async def test_many_waiters_for_one_write_all_come_back(reopen: Reopen) -> None:
    store = reopen()
    async with store.opened():

        async def write(n: int) -> None:
            store.put(Key("task", "s1", str(n)), {"n": n})
            await store.sync()

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for n in range(50):
                    tasks.start_soon(write, n)
    assert len(await contents(reopen)) == 50


async def test_each_kind_of_record_stands_for_itself(reopen: Reopen) -> None:
    """The kinds that a session is kept in: the same id under another kind is another record."""
    kinds = ("session", "task", "event", "events_lost", "question", "waiting_call", "server_session")
    store = reopen()
    async with store.opened():
        for kind in kinds:
            store.put(Key(kind, "s1", "x"), {"kind": kind})
        await store.sync()
        store.delete(Key("question", "s1", "x"))
        store.put(Key("waiting_call", "s1", "x"), {"kind": "waiting_call", "answered": True})
        await store.sync()
    found = {key.kind: value for key, value in (await contents(reopen)).items()}
    expected = {kind: {"kind": kind} for kind in kinds if kind != "question"}
    assert found == {**expected, "waiting_call": {"kind": "waiting_call", "answered": True}}
    store = reopen()
    async with store.opened():
        await store.load()
        store.delete_owner("s1")
    assert await contents(reopen) == {}
