"""From samples to figures, and from figures to a table or JSON. Pure: takes measurements, returns values and text."""

from collections.abc import Mapping, Sequence
from statistics import median, quantiles
from typing import Any

from bench.calls import Way
from bench.rounds import Leg

__all__ = ["figures", "table"]


def figures(legs: Mapping[Way, Leg]) -> dict[str, Any]:
    """The figures of one pass; times in milliseconds, CPU per call in milliseconds by process."""
    found: dict[str, Any] = {way: _leg_figures(leg) for way, leg in legs.items()}
    if "hub" in legs:
        found["p50_ratio"] = _ratio(legs["direct"], legs["hub"])
    return found


def _leg_figures(leg: Leg) -> dict[str, Any]:
    latencies = [latency for one_round in leg.rounds for latency in one_round]
    return {
        "calls": leg.calls,
        "p50_ms": _ms(median(latencies)),
        "p95_ms": _ms(quantiles(latencies, n=20)[-1]),
        "calls_per_s": round(leg.calls / leg.busy_s, 1),
        "cpu_ms_per_call": {name: _ms(used / leg.calls) for name, used in leg.cpu_s.items()},
    }


def _ratio(direct: Leg, hub: Leg) -> dict[str, float]:
    """Hub over direct: of all calls, and how the rounds spread, each against its neighbour of the other way."""
    per_round = [median(h) / median(d) for d, h in zip(direct.rounds, hub.rounds, strict=True)]
    deciles = quantiles(per_round, n=10) if len(per_round) > 1 else per_round * 2
    return {
        "overall": round(median(_all(hub)) / median(_all(direct)), 3),
        "rounds_median": round(median(per_round), 3),
        "rounds_p10": round(deciles[0], 3),
        "rounds_p90": round(deciles[-1], 3),
    }


def _all(leg: Leg) -> list[float]:
    return [latency for one_round in leg.rounds for latency in one_round]


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def table(report: Mapping[str, Any]) -> str:
    """The whole report as text."""
    lines: list[str] = []
    for found in report["passes"]:
        lines += [*_pass_lines(found), ""]
    lines.append("new TCP connections per call (separate pass, sequential)")
    lines += [f"  {leg:<18}{count:>8.2f}" for leg, count in report["connections_per_call"].items()]
    return "\n".join(lines)


def _pass_lines(found: Mapping[str, Any]) -> list[str]:
    ways: Sequence[Way] = [way for way in ("direct", "hub") if way in found["figures"]]
    processes = list(found["figures"][ways[-1]]["cpu_ms_per_call"])
    header = f"  {'':<8}{'p50 ms':>9}{'p95 ms':>9}{'calls/s':>9}" + "".join(f"{f'cpu {p}':>12}" for p in processes)
    lines = [f"concurrency {found['concurrency']}: {found['rounds']} rounds x {found['calls']} calls each way", header]
    lines += [_way_line(way, found["figures"][way], processes) for way in ways]
    if "p50_ratio" in found["figures"]:
        ratio = found["figures"]["p50_ratio"]
        spread = f"per round {ratio['rounds_median']}, p10 to p90 {ratio['rounds_p10']} to {ratio['rounds_p90']}"
        lines.append(f"  p50 ratio hub/direct {ratio['overall']} ({spread})")
    return lines


def _way_line(way: Way, leg: Mapping[str, Any], processes: Sequence[str]) -> str:
    cpu = "".join(f"{leg['cpu_ms_per_call'][process]:>12.3f}" for process in processes)
    return f"  {way:<8}{leg['p50_ms']:>9.3f}{leg['p95_ms']:>9.3f}{leg['calls_per_s']:>9.1f}{cpu}"
