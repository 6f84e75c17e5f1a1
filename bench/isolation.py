"""What a bad server costs everybody else: calls to a good server, with and without a bad one beside it.

    python -m bench.isolation
    python -m bench.isolation --cycles 20 --calls 100 --json

A good server (`bench.echo_server`) and two hubs, each with two sessions and a bad server (`bench.bad_server`, a program
that each session has for itself). On one hub one of the sessions has turned its bad server bad; on the other hub all is
quiet. The four sessions call the good server one after the other, again and again, so that whatever else the machine
does, and whatever the bad server takes of it, falls on all alike: what differs is what happens inside the hub. Each
session is compared with its twin on the quiet hub. Beside `nothing` it shows how much quiet twins differ: the noise.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

from bench.plain_client import PlainClient
from bench.processes import Served

__all__ = ["main"]

START_LIMIT_S = 30
LEAD_S = 4.0
"""Between the moment a server turns bad and the first measured call: the bursts are over by then, and what lasts is
left."""

RESTART_S = 0.1
"""How often a crashing server is asked for again; by itself the hub would start it six times, and then no more."""

TEXT = "The quick brown fox jumps over the lazy dog."
PLACES = ("same session", "other session")
TWINS = {place: f"{place}, quiet hub" for place in PLACES}

Latencies = dict[str, list[float]]


@dataclass(frozen=True)
class Neighbour:
    name: str
    kind: str | None = None
    rate: int = 0


NEIGHBOURS = (
    Neighbour("nothing"),
    Neighbour("hang", "hang"),
    Neighbour("crash loop", "crash"),
    Neighbour("stderr 10,000 lines/s", "stderr", 10_000),
    Neighbour("flood 1,000/s", "flood", 1_000),
    Neighbour("flood 5,000/s", "flood", 5_000),
    Neighbour("flood, no pause", "flood", 1_000_000),
)


@dataclass
class Bench:
    """The hub under measurement, the sessions on it, and their twins on the quiet hub."""

    hub: Served
    flag: Path
    clients: dict[str, PlainClient] = field(default_factory=dict)

    @property
    def ours(self) -> PlainClient:
        return self.clients[PLACES[0]]

    async def one_round(self, calls: int) -> Latencies:
        found: Latencies = {place: [] for place in self.clients}
        order = list(self.clients)
        for _ in range(calls):
            for place in order:
                began = time.perf_counter()
                await _echo(self.clients[place])
                found[place].append(time.perf_counter() - began)
            order = order[1:] + order[:1]
        return found

    async def rest(self) -> None:
        """Have everything told that has happened so far, so that it falls on no measured call."""
        for client in self.clients.values():
            await client.call("await_activity", timeout_ms=0)

    @asynccontextmanager
    async def beside(self, neighbour: Neighbour) -> AsyncIterator[None]:
        if neighbour.kind is None:
            yield
            return
        if neighbour.kind == "crash":
            self.flag.touch()
        await self.ours.call("execute_tool", server="bad", tool="begin", timeout_ms=0, args=_begin(neighbour))
        restarting = asyncio.create_task(self._restart()) if neighbour.kind == "crash" else None
        try:
            yield
        finally:
            if restarting is not None:
                restarting.cancel()
                await asyncio.wait([restarting])
            self.flag.unlink(missing_ok=True)
            await self._mend(neighbour)

    async def _restart(self) -> None:
        # On a connection of its own, in the session that is measured.
        client = await self.ours.again()
        while True:
            await client.call("reconnect_server", name="bad", timeout_ms=0)
            await asyncio.sleep(RESTART_S)

    async def _mend(self, neighbour: Neighbour) -> None:
        if neighbour.kind in ("hang", "crash"):
            await self.ours.call("reconnect_server", name="bad")
        result = await self.ours.call("execute_tool", server="bad", tool="stop", timeout_ms=60_000, args={})
        if result.get("isError"):
            raise RuntimeError(f"the bad server did not come back: {result}")


def _begin(neighbour: Neighbour) -> dict[str, Any]:
    return {"kind": neighbour.kind, "rate": neighbour.rate}


async def _echo(client: PlainClient) -> None:
    result = await client.call("execute_tool", server="good", tool="echo", args={"text": TEXT})
    if result["content"][0].get("text") != TEXT:
        raise RuntimeError(f"a wrong answer: {result}")


@dataclass
class Record:
    """What was measured beside one neighbour, round by round."""

    rounds: list[Latencies] = field(default_factory=list)
    hub_cpu: list[float] = field(default_factory=list)
    """The share of a core that the hub took beside the neighbour while nobody called."""


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    chosen = [one for one in NEIGHBOURS if not options.only or any(word in one.name for word in options.only)]
    records = {one.name: Record() for one in chosen}
    async with _bench() as bench:
        await bench.one_round(options.calls)
        for cycle in range(options.cycles):
            # Every cycle begins with another one, so that none has its place for itself.
            for neighbour in chosen[cycle % len(chosen) :] + chosen[: cycle % len(chosen)]:
                await _beside(bench, neighbour, records[neighbour.name], options.calls)
            print(f"cycle {cycle + 1} of {options.cycles}", file=sys.stderr, flush=True)
    return {"cycles": options.cycles, "calls": options.calls, "figures": {n: _figures(r) for n, r in records.items()}}


async def _beside(bench: Bench, neighbour: Neighbour, record: Record, calls: int) -> None:
    async with bench.beside(neighbour):
        before, began = bench.hub.cpu_s(), time.perf_counter()
        await asyncio.sleep(LEAD_S)
        record.hub_cpu.append((bench.hub.cpu_s() - before) / (time.perf_counter() - began))
        await bench.rest()
        record.rounds.append(await bench.one_round(calls))


@asynccontextmanager
async def _bench() -> AsyncIterator[Bench]:
    with TemporaryDirectory(prefix="emceepee-bench-") as name:
        flag, measured, quiet = (Path(name) / part for part in ("crash", "measured", "quiet"))
        for folder in (measured, quiet):
            folder.mkdir()
        async with (
            _program(sys.executable, "-m", "bench.echo_server", says="echo server at") as (good, _),
            _hub(measured, good, flag) as (url, pid),
            _hub(quiet, good, flag) as (quiet_url, _),
        ):
            bench = Bench(Served(url, pid), flag)
            for place in PLACES:
                bench.clients[place] = await _session(url)
                bench.clients[TWINS[place]] = await _session(quiet_url)
            yield bench
            for client in bench.clients.values():
                await client.close_session()
                await client.close()


async def _session(url: str) -> PlainClient:
    client = PlainClient(url)
    await client.connect()
    await client.open_session()
    await client.call("list_tools")
    return client


@asynccontextmanager
async def _hub(folder: Path, good: str, flag: Path) -> AsyncIterator[tuple[str, int]]:
    config = folder / "servers.json"
    # Niced: a flooder must not take the core that somebody else's answer waits for.
    bad = ["-n", "19", sys.executable, str(Path(__file__).with_name("bad_server.py")), str(flag)]
    servers = {"good": {"url": good, "transport": "http"}, "bad": {"command": "nice", "args": bad}}
    config.write_text(json.dumps({"mcpServers": servers}))
    command = [sys.executable, "-m", "emceepee.cli", "serve", "--port", "0", "--log-level", "error"]
    flags = ["--config", str(config), "--data", str(folder / "data")]
    async with _program(*command, *flags, says="emceepee is serving on") as served:
        yield served


@asynccontextmanager
async def _program(*command: str, says: str) -> AsyncIterator[tuple[str, int]]:
    """A program, and the URL that it writes to stderr in a line with `says`."""
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        async with asyncio.timeout(START_LIMIT_S):
            while says not in (line := (await process.stderr.readline()).decode()):
                if not line:
                    raise RuntimeError(f"{command} ended before it served")
        draining = asyncio.create_task(_drain(process.stderr.readline))
        yield line.split()[-1], process.pid
        draining.cancel()
    finally:
        process.terminate()
        await process.wait()


async def _drain(readline: Callable[[], Awaitable[bytes]]) -> None:
    while line := await readline():
        sys.stderr.write(line.decode())


# From samples to figures


def _figures(record: Record) -> dict[str, Any]:
    found: dict[str, Any] = {"hub_cpu": round(median(record.hub_cpu), 3)}
    for place, twin in TWINS.items():
        quiet = [one_round[twin] for one_round in record.rounds]
        beside = [one_round[place] for one_round in record.rounds]
        per_round = [median(b) / median(q) for q, b in zip(quiet, beside, strict=True)]
        found[place] = {
            "quiet_p50_ms": round(_p50(quiet) * 1000, 3),
            "p50_ratio": round(_p50(beside) / _p50(quiet), 3),
            "p95_ratio": round(_p95(beside) / _p95(quiet), 3),
            "rounds_p10": round(_decile(per_round, 0), 3),
            "rounds_p90": round(_decile(per_round, -1), 3),
        }
    return found


def _p50(rounds: Sequence[Sequence[float]]) -> float:
    return median(latency for one_round in rounds for latency in one_round)


def _p95(rounds: Sequence[Sequence[float]]) -> float:
    return quantiles((latency for one_round in rounds for latency in one_round), n=20)[-1]


def _decile(values: list[float], which: int) -> float:
    return quantiles(values, n=10, method="inclusive")[which] if len(values) > 1 else values[0]


def table(report: dict[str, Any]) -> str:
    lines = [
        f"{report['cycles']} rounds of {report['calls']} calls in each session; ratios to its twin on a quiet hub",
        f"{'':<24}{'':>9}  {PLACES[0]:^36}{PLACES[1]:^36}",
        f"{'neighbour':<24}{'hub cpu':>9}  " + f"{'p50':>8}{'(p10 to p90)':>18}{'p95':>8}  " * 2,
    ]
    for name, found in report["figures"].items():
        cells = "".join(_cells(found[place]) for place in PLACES)
        lines.append(f"{name:<24}{found['hub_cpu']:>9.1%}  {cells}")
    quiet = median(found[place]["quiet_p50_ms"] for found in report["figures"].values() for place in PLACES)
    lines.append(f"p10 to p90 is over the rounds' own medians; a call on the quiet hub takes {quiet:.2f} ms (p50)")
    return "\n".join(lines)


def _cells(found: dict[str, float]) -> str:
    spread = f"({found['rounds_p10']:.2f} to {found['rounds_p90']:.2f})"
    return f"{found['p50_ratio']:>8.2f}{spread:>18}{found['p95_ratio']:>8.2f}  "


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.isolation", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--cycles", type=int, default=10, help="rounds beside each neighbour (default %(default)s)")
    parser.add_argument("--calls", type=int, default=100, help="calls of a session in a round (default %(default)s)")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="only neighbours with this in their name")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    report = asyncio.run(measure(options))
    print(json.dumps(report, indent=2) if options.json else table(report))


if __name__ == "__main__":
    main()
