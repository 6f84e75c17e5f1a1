"""The table in the docs: what was tried with which peer, on which transport, in which era, directly and through a hub.

`tried` makes a test of cases and transports, so that every cell has a test by construction. `expected` is the table
that these tests promise; `recorded` is the one that they gave. `EMCEEPEE_WRITE_MATRIX=1 pytest tests/tasks` writes the
latter into `docs/tasks.md`, and a test compares what stands there with the former.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby, product
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from _pytest.mark.structures import ParameterSet

from tests.tasks.cases import CASES, KINDS, KNOWN_DEFECTS, RACES, Case, Kind, Via
from tests.tasks.peers import PEERS, TRANSPORTS, Era, PeerName, Transport

__all__ = ["DOCS", "Recorder", "expected", "table_in", "together", "tried", "with_table"]

Cell: TypeAlias = tuple[Kind, Era, Transport, Via]

DOCS = Path(__file__).resolve().parents[2] / "docs" / "tasks.md"
BEGIN, END = "<!-- matrix: written by the tests -->", "<!-- end of the matrix -->"

VIAS: tuple[Via, ...] = ("library", "hub")
ERAS: tuple[Era, ...] = ("2025-11-25", "2026-07-28")
COLUMNS: list[tuple[Era, Transport, Via]] = [
    (era, transport, via) for era in ERAS for transport in TRANSPORTS for via in VIAS
]

AS_INPUT_REQUIRED = "2026-07-28: a server does not ask by a request; see `input_required`."
OF_THE_EXTENSION = "2025-11-25: tasks are part of the core; see requestor task."
OF_THE_CORE = "2026-07-28: tasks are an extension; see extension task."
NO_REQUESTS = "2026-07-28: servers send no requests, so there is nothing to make a task of."
NOT_IN_THIS_ERA: Mapping[tuple[Kind, Era], str] = {
    ("blocking elicitation", "2026-07-28"): AS_INPUT_REQUIRED,
    ("blocking sampling", "2026-07-28"): AS_INPUT_REQUIRED,
    (
        "`input_required` result",
        "2025-11-25",
    ): "2025-11-25: a question is a request of its own; see blocking elicitation.",
    ("requestor task", "2026-07-28"): OF_THE_CORE,
    ("question inside a task", "2026-07-28"): OF_THE_CORE,
    ("receiver task", "2026-07-28"): NO_REQUESTS,
    ("receiver task inside a task", "2026-07-28"): NO_REQUESTS,
    ("extension task", "2025-11-25"): OF_THE_EXTENSION,
    ("extension task, one input", "2025-11-25"): OF_THE_EXTENSION,
    ("extension task, several inputs", "2025-11-25"): OF_THE_EXTENSION,
}
"""Why a cell is empty: there is no such thing in that era."""


def together(cases: Iterable[Case]) -> list[tuple[Case, ...]]:
    """Cases that one test tries at the same time: calls of one tool that differ in their arguments only."""
    return [tuple(group) for _, group in groupby(cases, key=lambda case: (case.peer, case.tool))]


def tried(via: Via, groups: Iterable[tuple[Case, ...]]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A test of these cases on every transport; it takes `cases` and `transport`, and counts for the table."""

    def mark(test: Callable[..., Any]) -> Callable[..., Any]:
        for decorate in (
            pytest.mark.parametrize("cases", [_parameter(via, group) for group in groups]),
            pytest.mark.parametrize("transport", TRANSPORTS),
            pytest.mark.cell(via),
        ):
            test = decorate(test)
        return test

    return mark


def _parameter(via: Via, cases: tuple[Case, ...]) -> ParameterSet:
    known = [key for case in cases if (key := (via, case.peer, case.tool)) in KNOWN_DEFECTS]
    marks = [pytest.mark.xfail(strict=key not in RACES, reason=KNOWN_DEFECTS[key]) for key in known]
    return pytest.param(cases, marks=marks, id="+".join(map(str, cases)))


class Recorder:
    """What became of the tests: which peers have proved a cell, and which have not."""

    def __init__(self) -> None:
        self._passed: dict[tuple[Cell, PeerName], bool] = {}

    def record(self, via: Via, cases: Iterable[Case], transport: Transport, *, passed: bool) -> None:
        for case in cases:
            key = (case.kind, PEERS[case.peer].era, transport, via), case.peer
            self._passed[key] = self._passed.get(key, True) and passed

    def is_complete(self) -> bool:
        return len(self._passed) == len({(case.kind, case.peer) for case in CASES}) * len(TRANSPORTS) * len(VIAS)

    def table(self) -> str:
        return _render(self._passed)


def expected() -> str:
    """The table if every test does what it is expected to do."""
    recorder = Recorder()
    for case, transport, via in product(CASES, TRANSPORTS, VIAS):
        recorder.record(via, [case], transport, passed=(via, case.peer, case.tool) not in KNOWN_DEFECTS)
    return recorder.table()


def _render(passed: Mapping[tuple[Cell, PeerName], bool]) -> str:
    notes: dict[str, int] = {}
    heads = [f"{era}<br>{transport}, {via}" for era, transport, via in COLUMNS]
    lines = [_row(["", *heads]), _row(["---"] * (len(heads) + 1))]
    for kind in KINDS:
        cells = [_cell((kind, era, transport, via), passed, notes) for era, transport, via in COLUMNS]
        lines.append(_row([kind, *cells]))
    lines += ["", "✓: proved with each of these peers. -: there is no such thing in this era. ✗: does not work yet."]
    lines += ["", *(f"- **{peer.letter}**: {peer.about}" for peer in PEERS.values())]
    lines += ["", *(f"{number}. {note}" for note, number in notes.items())]
    return "\n".join(lines)


def _cell(cell: Cell, passed: Mapping[tuple[Cell, PeerName], bool], notes: dict[str, int]) -> str:
    """What is known of a cell; the reason for what is not green goes to the notes."""
    results = {peer: passed[cell, peer] for peer in PEERS if (cell, peer) in passed}
    good = [PEERS[peer].letter for peer, is_good in results.items() if is_good]
    shown = ["✓", *good] if good else []
    if not results:
        shown += ["-", _note(NOT_IN_THIS_ERA.get((cell[0], cell[1]), "not tried"), notes)]
    for peer, is_good in results.items():
        if not is_good:
            shown += ["✗", PEERS[peer].letter, _note(_defect(cell, peer), notes)]
    return " ".join(shown)


def _note(reason: str, notes: dict[str, int]) -> str:
    return f"({notes.setdefault(reason, len(notes) + 1)})"


def _defect(cell: Cell, peer: PeerName) -> str:
    """Why a cell is red: what is known of it, or that nobody expected it."""
    kind, _, _, via = cell
    tools = [case.tool for case in CASES if (case.kind, case.peer) == (kind, peer)]
    known = [KNOWN_DEFECTS[via, peer, tool] for tool in tools if (via, peer, tool) in KNOWN_DEFECTS]
    return known[0] if known else "failed when the table was written"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def table_in(text: str) -> str:
    """What stands between the two marks."""
    return text.split(BEGIN)[1].split(END, maxsplit=1)[0].strip()


def with_table(text: str, table: str) -> str:
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}"
