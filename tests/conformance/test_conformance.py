"""The official conformance suite: what passes at a server passes at the same server through the hub.

The servers are ours and pass everything directly, so nothing is excused here.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.compare import Check, lost, unmet
from tests.conformance.endpoint import through
from tests.conformance.suite import HANDSHAKE, MODERN, TASKS, run_patiently, run_revision, run_scenarios
from tests.peers.locate import ROOT, node_script, program
from tests.process.hub_process import config_file, serving, started

pytestmark = pytest.mark.filterwarnings("default::tests.conformance.suite.SecondRun")

PASSED = {HANDSHAKE: (33, 84), MODERN: (40, 152), "tasks": (10, 44)}
"""Scenarios that the pinned suite has and checks that pass in them, so that a suite that runs less is noticed."""


@dataclass(frozen=True)
class Server:
    """A server that runs: its own URL, and the one that it has at a hub."""

    url: str
    through: str


@contextmanager
def behind_a_hub(command: list[str], folder: Path) -> Iterator[Server]:
    node_script("conformance")  # without it nothing has to be started
    with started(command, {"PYTHONPATH": str(ROOT)}) as server:
        url = server.wait_for_line(" at http").split()[-1]
        entry: dict[str, Any] = {"url": url}
        with serving(*config_file(folder, {"fixture": entry})) as (hub, _):
            yield Server(url, through(hub, "fixture"))


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    command = [sys.executable, "-m", "tests.conformance.fixture"]
    with behind_a_hub(command, tmp_path_factory.mktemp("fixture")) as server:
        yield server


@pytest.fixture(scope="module")
def tasks_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with behind_a_hub(program("conformance_tasks_server.py"), tmp_path_factory.mktemp("tasks")) as server:
        yield server


@pytest.fixture(scope="module", params=[HANDSHAKE, MODERN])
def revision(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def direct(fixture: Server, revision: str, tmp_path_factory: pytest.TempPathFactory) -> list[Check]:
    return run_patiently(lambda: run_revision(fixture.url, revision, tmp_path_factory.mktemp("direct")), unmet)


@pytest.fixture(scope="module")
def tasks_direct(tasks_fixture: Server, tmp_path_factory: pytest.TempPathFactory) -> list[Check]:
    return run_patiently(lambda: run_scenarios(tasks_fixture.url, TASKS, tmp_path_factory.mktemp("tasks")), unmet)


def passed(checks: list[Check]) -> tuple[int, int]:
    return len({check.scenario for check in checks}), sum(check.status == "SUCCESS" for check in checks)


def test_the_fixture_passes_everything(direct: list[Check], revision: str) -> None:
    assert unmet(direct) == []
    assert passed(direct) == PASSED[revision]


def test_what_passes_directly_passes_through_the_hub(
    fixture: Server, revision: str, direct: list[Check], tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = run_patiently(
        lambda: run_revision(fixture.through, revision, tmp_path_factory.mktemp("through")), partial(lost, direct)
    )
    assert lost(direct, found) == []


def test_the_tasks_fixture_passes_every_tasks_scenario(tasks_direct: list[Check]) -> None:
    assert unmet(tasks_direct) == []
    assert passed(tasks_direct) == PASSED["tasks"]


def test_what_passes_of_tasks_directly_passes_through_the_hub(
    tasks_fixture: Server, tasks_direct: list[Check], tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = run_patiently(
        lambda: run_scenarios(tasks_fixture.through, TASKS, tmp_path_factory.mktemp("through")),
        partial(lost, tasks_direct),
    )
    assert lost(tasks_direct, found) == []
