"""The tables in the docs: how each kind of client gets its result from each kind of server, at each door of the hub.

`EMCEEPEE_WRITE_MATRIX=1 pytest tests/bridge` writes them into `docs/bridging.md`; every other run compares what stands
there with what it has seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.bridge.attempts import ENDPOINTS, Cell, Endpoint
from tests.bridge.cases import SERVER_KINDS, ServerKind
from tests.bridge.clients import CLIENT_KINDS, PROGRAMS, ClientKind
from tests.bridge.servers import SERVERS

__all__ = ["DOCS", "REASONS", "WAYS", "tables", "tables_in", "with_tables"]

DOCS = Path(__file__).resolve().parents[2] / "docs" / "bridging.md"
BEGIN, END = "<!-- matrix: written by the tests -->", "<!-- end of the matrix -->"

TITLES: Mapping[Endpoint, str] = {
    "/mcp": "Through the hub's tools, at `/mcp`",
    "/mcp/server/{name}": "At the server itself, at `/mcp/server/{name}`",
    "emceepee stdio": "Through the hub's tools, with `emceepee stdio` (servers over HTTP)",
}

WAYS: Mapping[ClientKind, frozenset[str]] = {
    "handshake, tools only": frozenset({"result", "waits", "tools"}),
    "handshake, can be asked": frozenset({"result", "waits", "tools", "asked", "error"}),
    "2025-11-25 with tasks": frozenset({"task", "task, asked"}),
    "modern": frozenset({"result", "waits", "tools", "`input_required`", "refused"}),
    "modern with tasks": frozenset({"result", "task", "task, inputs", "task, tools", "`input_required`"}),
}
"""What a kind of client may be told in its own protocol, and nothing else."""

REASONS: Mapping[tuple[Endpoint, ClientKind, ServerKind], str] = {
    ("/mcp/server/{name}", "modern", "extension task with inputs"): (
        "The tool is one that has to be a task. The extension's specification demands that its server refuses a client "
        "that does not declare it (`-32021`), and at this door a server is what it is. At `/mcp` it works."
    )
}
"""Why a cell has no result."""


def tables(outcomes: Mapping[Cell, str]) -> str:
    """All of it, as Markdown."""
    lines: list[str] = []
    notes: dict[str, int] = {}
    for endpoint in ENDPOINTS:
        lines += [f"### {TITLES[endpoint]}", "", *_table(endpoint, outcomes, notes), ""]
    lines += [*(f"{number}. {note}" for note, number in notes.items()), ""]
    lines += ["The clients, and the programs that stood for them:", ""]
    for kind, about in CLIENT_KINDS.items():
        programs = dict.fromkeys(cell.role.program for cell in outcomes if cell.role.kind == kind)
        lines.append(f"- **{kind}** ({about}): {'; '.join(PROGRAMS[program] for program in programs)}")
    lines += ["", "The servers, each over stdio and over HTTP unless the title says otherwise:", ""]
    for server_kind in SERVER_KINDS:
        servers = dict.fromkeys(cell.case.server for cell in outcomes if cell.case.kind == server_kind)
        lines.append(f"- **{server_kind}**: {'; '.join(SERVERS[server].about for server in servers)}")
    return "\n".join(lines)


def _table(endpoint: Endpoint, outcomes: Mapping[Cell, str], notes: dict[str, int]) -> list[str]:
    rows = [_row(["", *CLIENT_KINDS]), _row(["---"] * (len(CLIENT_KINDS) + 1))]
    for server in SERVER_KINDS:
        cells = [_cell(endpoint, client, server, outcomes, notes) for client in CLIENT_KINDS]
        rows.append(_row([server, *cells]))
    return rows


def _cell(
    endpoint: Endpoint,
    client: ClientKind,
    server: ServerKind,
    outcomes: Mapping[Cell, str],
    notes: dict[str, int],
) -> str:
    by_way: dict[str, list[Cell]] = defaultdict(list)
    for cell, way in outcomes.items():
        if (cell.endpoint, cell.role.kind, cell.case.kind) == (endpoint, client, server):
            by_way[way].append(cell)
    reason = REASONS.get((endpoint, client, server))
    mark = "" if reason is None else f" ({notes.setdefault(reason, len(notes) + 1)})"
    if len(by_way) == 1:
        return next(iter(by_way)) + mark
    return "; ".join(f"{way} ({_who(cells)})" for way, cells in sorted(by_way.items())) + mark


def _who(cells: Iterable[Cell]) -> str:
    """With whom it went this way: the client's program says it, where that decides."""
    return ", ".join(dict.fromkeys(cell.role.program for cell in cells))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def tables_in(text: str) -> str:
    """What stands between the two marks."""
    return text.split(BEGIN)[1].split(END, maxsplit=1)[0].strip()


def with_tables(text: str, written: str) -> str:
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{written}\n{END}{rest.partition(END)[2]}"
