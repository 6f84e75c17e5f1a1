"""Every kind of client gets the right result from every kind of server: clients and servers that others wrote."""

from __future__ import annotations

import os
from collections.abc import Mapping

import anyio
import pytest

from tests.bridge.attempts import Cell
from tests.bridge.cases import SERVER_KINDS
from tests.bridge.clients import CLIENT_KINDS
from tests.bridge.matrix import DOCS, REASONS, WAYS, tables, tables_in, with_tables
from tests.bridge.servers import TRANSPORTS
from tests.bridge.stage import CELLS, Outcome, tried
from tests.requirements import requirement

LIMIT_S = 900
"""For all of it; it takes less than one minute where nothing else runs."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[Cell, Outcome]:
    """Everything is tried at once, and each test looks at its own."""

    async def run() -> Mapping[Cell, Outcome]:
        with anyio.fail_after(LIMIT_S):
            return await tried(tmp_path_factory.mktemp("bridge"))

    return anyio.run(run)


@requirement("D010-bridge", "D010-url-required")
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_client_gets_the_right_result_in_a_way_that_its_protocol_has(
    cell: Cell, outcomes: Mapping[Cell, Outcome]
) -> None:
    outcome = outcomes[cell]
    if isinstance(outcome, BaseException):
        raise outcome
    assert outcome in WAYS[cell.role.kind]
    is_excused = (cell.endpoint, cell.role.kind, cell.case.kind) in REASONS
    assert (outcome == "refused") is is_excused


def test_the_tables_in_the_docs_say_what_was_seen(outcomes: Mapping[Cell, Outcome]) -> None:
    seen = {cell: outcomes[cell] for cell in CELLS}
    ways = {cell: outcome for cell, outcome in seen.items() if isinstance(outcome, str)}
    assert ways.keys() == seen.keys(), "some calls have no result; see the other tests"
    written = DOCS.read_text(encoding="utf-8")
    if os.environ.get("EMCEEPEE_WRITE_MATRIX") == "1":
        DOCS.write_text(with_tables(written, tables(ways)), encoding="utf-8")
        return
    assert tables_in(written) == tables(ways), "run EMCEEPEE_WRITE_MATRIX=1 pytest tests/bridge"


def test_every_kind_of_client_meets_every_kind_of_server_over_every_transport() -> None:
    met = {(cell.endpoint, cell.role.kind, cell.case.kind, cell.transport) for cell in CELLS}
    both = [
        (endpoint, client, server, transport)
        for endpoint in ("/mcp", "/mcp/server/{name}")
        for client in CLIENT_KINDS
        for server in SERVER_KINDS
        for transport in TRANSPORTS
    ]
    piped = [("emceepee stdio", client, server, "HTTP") for client in CLIENT_KINDS for server in SERVER_KINDS]
    assert [cell for cell in both + piped if cell not in met] == []
