"""The official conformance suite: what passes at a server passes at the same server through the hub.

The servers are ours and pass everything directly, so nothing is excused here.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.compare import Check, in_words, lost, unmet
from tests.conformance.endpoint import through
from tests.conformance.suite import (
    HANDSHAKE,
    MODERN,
    TASKS,
    good_run,
    run_revision,
    run_scenarios,
    wrong_in_every_run,
)
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
    return good_run(
        lambda: run_revision(fixture.url, revision, tmp_path_factory.mktemp("direct")),
        lambda found: shortcomings(found, revision),
    )


@pytest.fixture(scope="module")
def tasks_direct(tasks_fixture: Server, tmp_path_factory: pytest.TempPathFactory) -> list[Check]:
    return good_run(
        lambda: run_scenarios(tasks_fixture.url, TASKS, tmp_path_factory.mktemp("tasks")),
        lambda found: shortcomings(found, "tasks"),
    )


def shortcomings(checks: list[Check], of: str) -> list[str]:
    """What a run at the server itself lacks: checks that are not met, and such that were not made at all."""
    words = in_words(unmet(checks))
    scenarios = len({check.scenario for check in checks})
    passed = sum(check.status == "SUCCESS" for check in checks)
    if (scenarios, passed) != PASSED[of]:
        words.append(f"{scenarios} scenarios with {passed} checks passed, instead of {PASSED[of]} of {of}")
    return words


def test_the_fixture_passes_everything(direct: list[Check], revision: str) -> None:
    assert shortcomings(direct, revision) == []


def test_what_passes_directly_passes_through_the_hub(
    fixture: Server, revision: str, direct: list[Check], tmp_path_factory: pytest.TempPathFactory
) -> None:
    problems = wrong_in_every_run(
        lambda: run_revision(fixture.through, revision, tmp_path_factory.mktemp("through")),
        lambda found: lost(direct, found),
    )
    assert in_words(problems) == []


def test_the_tasks_fixture_passes_every_tasks_scenario(tasks_direct: list[Check]) -> None:
    assert shortcomings(tasks_direct, "tasks") == []


def test_what_passes_of_tasks_directly_passes_through_the_hub(
    tasks_fixture: Server, tasks_direct: list[Check], tmp_path_factory: pytest.TempPathFactory
) -> None:
    problems = wrong_in_every_run(
        lambda: run_scenarios(tasks_fixture.through, TASKS, tmp_path_factory.mktemp("through")),
        lambda found: lost(tasks_direct, found),
    )
    assert in_words(problems) == []
