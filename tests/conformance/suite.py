"""Running the conformance suite against a URL, and reading what it found.

The suite writes one `checks.json` per scenario. A scenario that could not be run at all leaves none behind, and is
missing here as well.
"""

import json
import re
import subprocess
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.peers.locate import node_script

from .compare import Check, Problems, in_words

__all__ = [
    "HANDSHAKE",
    "MODERN",
    "RUNS",
    "TASKS",
    "SecondRun",
    "good_run",
    "run_revision",
    "run_scenarios",
    "wrong_in_every_run",
]

HANDSHAKE, MODERN = "2025-11-25", "2026-07-28"

TASKS = (
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-status-notifications",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
)
"""An extension's scenarios belong to no revision: they run one by one, by name."""

SCENARIO_LIMIT_MS = 60_000
"""The slowest scenario takes five seconds. One that hangs is given up by the suite."""

RUN_LIMIT_S = 600
"""A run takes three seconds. One in which many scenarios hang is ended, and those that were not reached are missing."""

RUNS = 4
"""Some checks give a server 200 to 600 milliseconds, which a busy machine does not have each time."""

AT_A_TIME = 3
"""Scenarios that run side by side where each is a process of its own, most of whose time is Node's start."""

RESULT_FOLDER = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")


class SecondRun(UserWarning):
    """Why a run was not the last. It stands in pytest's summary: what fails now and then has to be seen."""


def good_run(run: Callable[[], list[Check]], wrong: Callable[[list[Check]], list[str]]) -> list[Check]:
    """What the first of some runs found in which nothing is wrong; the last has to do."""
    for _ in range(RUNS - 1):
        found = run()
        if not (problems := wrong(found)):
            return found
        warnings.warn(SecondRun("; ".join(problems)), stacklevel=2)
    return run()


def wrong_in_every_run(run: Callable[[], list[Check]], wrong: Callable[[list[Check]], Problems]) -> Problems:
    """The checks with which something is wrong in each of some runs: what a busy machine spoils is not always the same.

    Another run is made only while there are any.
    """
    problems = wrong(run())
    for _ in range(RUNS - 1):
        if not problems:
            break
        warnings.warn(SecondRun("; ".join(in_words(problems))), stacklevel=2)
        problems = {key: words for key, words in wrong(run()).items() if key in problems}
    return problems


def run_revision(url: str, revision: str, folder: Path) -> list[Check]:
    """Every scenario that there is for a revision of the protocol, one after the other."""
    said = _run(url, folder, "--suite", "all", "--spec-version", revision)
    return _read(folder, said)


def run_scenarios(url: str, scenarios: Iterable[str], folder: Path) -> list[Check]:
    """Scenarios by name, some at a time."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        said = "".join(pool.map(lambda scenario: _run(url, folder, "--scenario", scenario), scenarios))
    return _read(folder, said)


def _run(url: str, folder: Path, *arguments: str) -> str:
    options = ["--url", url, "--output-dir", str(folder), "--timeout", str(SCENARIO_LIMIT_MS)]
    command = [*node_script("conformance"), "server", *options, *arguments]
    try:
        # It ends with 1 when a check failed, which is for the caller to judge.
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"nothing within {RUN_LIMIT_S} s"
    return done.stdout[-2000:] + done.stderr


def _read(folder: Path, said: str) -> list[Check]:
    found = []
    for path in sorted(folder.glob("*/checks.json")):
        name = RESULT_FOLDER.fullmatch(path.parent.name)
        assert name is not None, f"not a result of the suite: {path}"
        for check in json.loads(path.read_text(encoding="utf-8")):
            found.append(Check(name["scenario"], check["id"], check["status"], check.get("errorMessage") or ""))
    assert found, f"the suite left no results and said: {said}"
    return found
