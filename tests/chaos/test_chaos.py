"""Everything at once, at random: `pytest tests/chaos --chaos-seed 7 --chaos-seconds 600 -s`.

The seed decides what is called and what is killed; when exactly that happens is up to the machine, so that no two runs
are alike. The table of a run goes to stdout.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import monotonic

import anyio
import httpx2
import pytest

from tests.chaos.clients import ChaosClient, SessionGone
from tests.chaos.records import Records
from tests.chaos.schedule import chaos
from tests.chaos.world import IDLE_MS, POLL_S, World, open_files, until, world

pytestmark = pytest.mark.anyio

CLIENTS = 3
WORKERS = 3
"""In each client, beside the one that only listens."""

CALM_LIMIT_S = 300
"""For all that was begun to end once nothing is struck any more: a TTL, and time for a slow machine."""

CRASH_WORDS = ("Traceback", "_crashed", "request_failed", "link_failed", "store_write_failed")
"""What the hub writes to its log only if it has a defect."""

FILES_TOLERANCE = 2
"""A hub that is at rest may have a database file open that it had not at its start."""


async def test_no_call_result_answer_or_event_gets_lost(
    tmp_path: Path, chaos_seed: int, chaos_seconds: float, capsys: pytest.CaptureFixture[str]
) -> None:
    rng, records = Random(chaos_seed), Records()  # noqa: S311  # a seed is the point
    async with world(tmp_path) as found:
        await found.hub.start()
        files_at_start = open_files(found.hub.pid)
        clients = [
            ChaosClient(f"c{number}", found.hub, records, found.servers, Random(rng.random()))  # noqa: S311
            for number in range(CLIENTS)
        ]
        for client in clients:
            await client.open()
        await _under_chaos(found, clients, records, rng, chaos_seconds)
        for client in clients:
            await client.drain()
        await _look_again(clients, records)
        for client in clients:
            await client.drain()
        records.judge(found.told_by_servers("answered"))
        await _all_gone(found, clients, records, files_at_start)
        crashes = [line for line in found.hub.lines if any(word in line for word in CRASH_WORDS)]
    with capsys.disabled():
        print("\n" + records.table(f"chaos: seed {chaos_seed}, {chaos_seconds:g} s, {found.hub.life} lives of the hub"))
        for cut in records.cut_events:
            print("  cut:", cut)
    for line in crashes:
        records.wrong(f"the hub logged {line}")
    assert not records.violations, "\n".join(records.violations)


async def _under_chaos(found: World, clients: list[ChaosClient], records: Records, rng: Random, seconds: float) -> None:
    end = monotonic() + seconds
    visits = Random(rng.random())  # noqa: S311

    def is_over() -> bool:
        return monotonic() >= end

    with anyio.fail_after(seconds + CALM_LIMIT_S):
        async with anyio.create_task_group() as listening:
            all_ended = anyio.Event()
            for client in clients:
                # To the end of the last call of all: a client that is done before may wait longer than it may be idle.
                listening.start_soon(client.run_listener, all_ended.is_set)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(chaos, found, records, rng, is_over)
                tasks.start_soon(_visitors, found, records, visits, is_over)
                for client in clients:
                    for _ in range(WORKERS):
                        tasks.start_soon(client.run_worker, is_over)
            all_ended.set()


async def _visitors(found: World, records: Records, rng: Random, is_over: Callable[[], bool]) -> None:
    """Sessions that come, ask for one thing and go."""
    number = 0
    while not is_over():
        number += 1
        client = ChaosClient(f"v{number}", found.hub, records, found.servers, rng)
        await client.open()
        try:
            await client.insist("list_servers")
        except SessionGone:
            records.wrong(f"the session of visitor {number} was opened and is not known any more")
        await client.close()
        records.counts["sessions that were opened and closed"] += 1
        await anyio.sleep(rng.uniform(0.1, 0.5))


async def _look_again(clients: list[ChaosClient], records: Records) -> None:
    of = {client.session_id: client for client in clients}
    for call in records.calls.values():
        if call.outcome == "completed" and call.task_id is not None:
            await of[call.session].look_again(call)


async def _all_gone(found: World, clients: list[ChaosClient], records: Records, files_at_start: int) -> None:
    """When the last session is closed, nothing of all this is left in the hub; when the hub ends, nothing at all."""
    for client in clients:
        await client.close()
    with anyio.move_on_after(2 * IDLE_MS / 1000):
        await until(lambda: open_files(found.hub.pid) <= files_at_start + FILES_TOLERANCE and not found.stdio_pids())
        # A session that was opened by a hub which died before it could say so is nobody's, and ends by itself.
        while await _session_count(found):  # noqa: ASYNC110  # it is asked, for it does not tell
            await anyio.sleep(POLL_S)
    if (left := open_files(found.hub.pid)) > files_at_start + FILES_TOLERANCE:
        records.wrong(f"the hub has {left} open files, and had {files_at_start} at its start")
    if pids := found.stdio_pids():
        records.wrong(f"server processes are left while the hub runs: {pids}")
    if sessions := await _session_count(found):
        records.wrong(f"{sessions} sessions are left after all were closed")
    if (status := await found.hub.stop()) != 0:
        records.wrong(f"the hub ended with status {status}")
    if pids := found.stdio_pids():
        records.wrong(f"server processes are left after the hub: {pids}")
    rows = _rows(found.hub.data)
    if rows:
        records.wrong(f"rows are left in the store: {rows}")


async def _session_count(found: World) -> int:
    async with httpx2.AsyncClient(verify=False, timeout=CALM_LIMIT_S) as http:
        return int((await http.get(found.hub.url.replace("/mcp", "/healthz"))).json()["sessions"])


def _rows(data: Path) -> list[tuple[str, str, str]]:
    connection = sqlite3.connect(data / "emceepee.sqlite3")
    try:
        return connection.execute("SELECT kind, owner, id FROM records").fetchall()
    finally:
        connection.close()
