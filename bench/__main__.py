"""The command line of the benchmark. CPU columns are milliseconds per call; the client's is this process's own."""

import argparse
import json
import platform
import shlex
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio

from bench.calls import Echo, Way, echo_through
from bench.connections import count_connections
from bench.processes import Served, demo_server, hub
from bench.report import figures, table
from bench.rounds import run_rounds, warm_up

COUNTED_CALLS = 50


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measure what the hub adds to a tool call.")
    parser.add_argument("--rounds", type=int, default=40, help="rounds of each way (default %(default)s)")
    parser.add_argument("--calls", type=int, default=25, help="calls in a sequential round (default %(default)s)")
    parser.add_argument(
        "--concurrency",
        type=int,
        nargs="+",
        default=[1, 16],
        metavar="N",
        help="one pass for each; a round has at least four calls for each worker (default 1 16)",
    )
    parser.add_argument("--mode", choices=["legacy", "auto"], default="legacy", help="the client's era")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--direct-only", action="store_true", help="measure the demo server alone")
    parser.add_argument("--hub", default=_emceepee(), metavar="COMMAND", help="what to start as the hub")
    return parser.parse_args(arguments)


def _emceepee() -> str:
    return shlex.join([str(Path(sys.executable).with_name("emceepee")), "serve", "--log-level", "warning"])


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    hub_command = None if options.direct_only else shlex.split(options.hub)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(demo_server())
        processes: dict[str, Served] = {"server": server}
        ways: dict[Way, Echo] = {
            "direct": await stack.enter_async_context(echo_through("direct", server.url, options.mode))
        }
        if hub_command is not None:
            processes["hub"] = await stack.enter_async_context(hub(hub_command, server.url))
            ways["hub"] = await stack.enter_async_context(echo_through("hub", processes["hub"].url, options.mode))
        passes = [await _one_pass(ways, processes, options, concurrency) for concurrency in options.concurrency]
        connections = await count_connections(server.url, hub_command, options.mode, COUNTED_CALLS)
    return {"setup": _setup(options), "passes": passes, "connections_per_call": connections}


async def _one_pass(
    ways: dict[Way, Echo], processes: dict[str, Served], options: argparse.Namespace, concurrency: int
) -> dict[str, Any]:
    calls = options.calls if concurrency == 1 else max(options.calls, 4 * concurrency)
    await warm_up(ways, concurrency)
    legs = await run_rounds(ways, processes, rounds=options.rounds, calls=calls, concurrency=concurrency)
    return {"concurrency": concurrency, "rounds": options.rounds, "calls": calls, "figures": figures(legs)}


def _setup(options: argparse.Namespace) -> dict[str, str]:
    return {"python": platform.python_version(), "mcp": version("mcp"), "mode": options.mode}


def main() -> None:
    options = parse()
    report = anyio.run(measure, options)
    print(json.dumps(report, indent=2) if options.json else table(report))


if __name__ == "__main__":
    main()
