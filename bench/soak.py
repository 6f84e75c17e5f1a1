"""A soak: many sessions with many calls through one hub process, while its memory and file descriptors are watched.

    python -m bench.soak --sessions 10000 --calls 100000 --plot docs/soak.svg

Each worker opens a session, makes its calls (one of them outlives its client's patience, so that a task, its events and
its result are written to the store and fetched), closes the session and opens the next. The hub keeps its state in
SQLite. The trend is a least-squares line through the samples after the warm-up.
"""

import argparse
import asyncio
import json
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from bench.plain_client import PlainClient
from bench.plot import Line, svg

__all__ = ["main"]

SAMPLE_S = 1.0
START_LIMIT_S = 30
WARM_SHARE = 0.2
"""How much of the run is warm-up: until then caches, pools and the allocator's arenas are still growing."""

LATER_MS = 30
PATIENCE_MS = 5
"""A call that takes the one and is given the other becomes a task."""


@dataclass(frozen=True)
class Sample:
    at_s: float
    rss_kib: int
    fds: int
    sessions: int
    calls: int


@dataclass
class Counts:
    sessions: int = 0
    calls: int = 0
    tasks: int = 0
    samples: list[Sample] = field(default_factory=list)


@dataclass(frozen=True)
class Trend:
    """A straight line through what was measured after the warm-up."""

    median: float
    smallest: float
    largest: float
    per_1000_sessions: float
    whole_run_percent: float
    """What the line gains over the measured part, in percent of the median."""


async def soak(options: argparse.Namespace) -> dict[str, Any]:
    counts = Counts()
    with TemporaryDirectory(prefix="emceepee-soak-") as folder:
        async with _program(sys.executable, "-m", "bench.echo_server", says="echo server at") as (server_url, _):
            config = Path(folder) / "servers.json"
            config.write_text(json.dumps({"mcpServers": {"echo": {"url": server_url, "transport": "http"}}}))
            data = Path(folder) / "data"
            command = [sys.executable, "-m", "emceepee.cli", "serve", "--port", "0", "--log-level", "error"]
            flags = ["--config", str(config), "--data", str(data)]
            async with _program(*command, *flags, says="emceepee is serving on") as (url, pid):
                started = monotonic()
                await _load(url, pid, options, counts, started)
                took = monotonic() - started
                fds_at_rest = await _fds_at_rest(pid)
        rows = _rows(data)
    warm = [sample for sample in counts.samples if sample.sessions >= options.sessions * WARM_SHARE]
    return {
        "sessions": counts.sessions,
        "calls": counts.calls,
        "tasks": counts.tasks,
        "seconds": round(took, 1),
        "rss_mib": asdict(_trend(warm, [sample.rss_kib / 1024 for sample in warm])),
        "fds": asdict(_trend(warm, [float(sample.fds) for sample in warm])),
        "fds_at_rest": fds_at_rest,
        "rows_left": rows,
        "warm_s": warm[0].at_s,
        "samples": [asdict(sample) for sample in counts.samples],
    }


async def _load(url: str, pid: int, options: argparse.Namespace, counts: Counts, started: float) -> None:
    per_session = options.calls // options.sessions
    turns = iter(range(options.sessions))

    async def work() -> None:
        client = PlainClient(url)
        await client.connect()
        for turn in turns:
            await _one_session(client, per_session, turn, counts)
        await client.close()

    async def watch() -> None:
        while True:
            counts.samples.append(_sample(pid, started, counts))
            await asyncio.sleep(SAMPLE_S)

    watcher = asyncio.create_task(watch())
    try:
        async with asyncio.TaskGroup() as workers:
            for _ in range(options.workers):
                workers.create_task(work())
    finally:
        watcher.cancel()


async def _one_session(client: PlainClient, calls: int, turn: int, counts: Counts) -> None:
    await client.open_session()
    for number in range(calls - 1):
        text = f"{turn}/{number}"
        _check(await client.call("execute_tool", server="echo", tool="echo", args={"text": text}), text)
        counts.calls += 1
    text = f"{turn}/later"
    later = {"server": "echo", "tool": "later", "args": {"text": text, "ms": LATER_MS}, "timeout_ms": PATIENCE_MS}
    task_id = _task_id(await client.call("execute_tool", **later))
    if task_id is not None:
        counts.tasks += 1
        _check(await client.call("get_task_result", task_id=task_id), text)
    counts.calls += 1
    await client.close_session()
    counts.sessions += 1


def _check(result: dict[str, Any], text: str) -> None:
    if result.get("isError") or result["content"][0]["text"] != text:
        raise RuntimeError(f"a wrong answer, not {text!r}: {result}")


def _task_id(result: dict[str, Any]) -> str | None:
    """The task that a call became; None if the answer was there before the client's patience ended."""
    for block in result["content"]:
        if block["text"].startswith('{"proxy_task"'):
            return str(json.loads(block["text"])["proxy_task"]["task_id"])
    if result.get("isError"):
        raise RuntimeError(f"a failed call: {result}")
    return None


def _sample(pid: int, started: float, counts: Counts) -> Sample:
    return Sample(round(monotonic() - started, 2), _rss_kib(pid), _fds(pid), counts.sessions, counts.calls)


def _rss_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise RuntimeError(f"no VmRSS of {pid}")


def _fds(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


async def _fds_at_rest(pid: int) -> int:
    """The open file descriptors once the number stands still."""
    before, now = -1, _fds(pid)
    while before != now:
        await asyncio.sleep(SAMPLE_S)
        before, now = now, _fds(pid)
    return now


def _rows(data: Path) -> int:
    connection = sqlite3.connect(data / "emceepee.sqlite3")
    try:
        return int(connection.execute("SELECT COUNT(*) FROM records").fetchone()[0])
    finally:
        connection.close()


def _trend(samples: Sequence[Sample], values: Sequence[float]) -> Trend:
    ordered = sorted(values)
    median = ordered[len(ordered) // 2]
    thousands = [sample.sessions / 1000 for sample in samples]
    mean_x, mean_y = sum(thousands) / len(thousands), sum(values) / len(values)
    spread = sum((x - mean_x) ** 2 for x in thousands)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(thousands, values, strict=True)) / spread if spread else 0.0
    gain = slope * (thousands[-1] - thousands[0])
    return Trend(
        round(median, 1), round(ordered[0], 1), round(ordered[-1], 1), round(slope, 3), round(100 * gain / median, 2)
    )


@asynccontextmanager
async def _program(*command: str, says: str) -> AsyncIterator[tuple[str, int]]:
    """A program while the body runs: the URL at the end of the line that it says on stderr, and its pid."""
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    stderr = process.stderr
    try:
        async with asyncio.timeout(START_LIMIT_S):
            while says not in (line := (await stderr.readline()).decode()):
                if not line:
                    raise RuntimeError(f"{command} ended before it served")
        drain = asyncio.create_task(_drain(stderr))
        try:
            yield line.split()[-1], process.pid
        finally:
            drain.cancel()
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


async def _drain(stderr: asyncio.StreamReader) -> None:
    while line := await stderr.readline():
        print(line.decode().rstrip(), file=sys.stderr)


def _plot(report: dict[str, Any]) -> str:
    samples = report["samples"]
    about = (
        f"{report['sessions']:,} sessions, {report['calls']:,} calls, {report['tasks']:,} tasks in "
        f"{report['seconds']:.0f} s (shaded: warm-up)"
    )
    lines = [
        Line("resident memory of the hub, MiB", "#1f77b4", [sample["rss_kib"] / 1024 for sample in samples]),
        Line("open file descriptors of the hub", "#d62728", [sample["fds"] for sample in samples]),
    ]
    return svg([sample["at_s"] for sample in samples], lines, warm_s=report["warm_s"], about=about)


def _table(report: dict[str, Any]) -> str:
    lines = [
        f"{report['sessions']} sessions, {report['calls']} calls, {report['tasks']} tasks in {report['seconds']} s",
        f"{'after warm-up':<16}{'median':>9}{'min':>9}{'max':>9}{'per 1,000 sessions':>21}{'over the run':>15}",
    ]
    for title, key in (("RSS, MiB", "rss_mib"), ("open files", "fds")):
        trend = report[key]
        numbers = f"{trend['median']:>9}{trend['smallest']:>9}{trend['largest']:>9}{trend['per_1000_sessions']:>+21.3f}"
        lines.append(f"{title:<16}{numbers}{trend['whole_run_percent']:>+14.2f}%")
    lines.append(f"open files at rest {report['fds_at_rest']}, rows left in the store {report['rows_left']}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Watch a hub's memory and file descriptors under a long load.")
    parser.add_argument("--sessions", type=int, default=10_000, help="sessions in all (default %(default)s)")
    parser.add_argument("--calls", type=int, default=100_000, help="calls in all (default %(default)s)")
    parser.add_argument("--workers", type=int, default=8, help="sessions at a time (default %(default)s)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write an SVG")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    options = parser.parse_args()
    report = asyncio.run(soak(options))
    if options.plot is not None:
        options.plot.write_text(_plot(report), encoding="utf-8")
    print(json.dumps(report) if options.json else _table(report))


if __name__ == "__main__":
    main()
