"""Peers that are started once for all tests of this folder, and the record of what was tried with them."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import emceepee.testing.clock
from emceepee.testing import FakeClock
from tests.tasks.matrix import DOCS, Recorder, with_table
from tests.tasks.peers import Servers
from tests.tasks.scripted import settle

RECORDER = pytest.StashKey[Recorder]()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """For a whole module, so that its tests can share connections."""
    return "asyncio"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """A clock that is moved without waiting for the tenths of a second in which anyio looks whether all is still."""
    monkeypatch.setattr(emceepee.testing.clock, "settle", settle)
    return FakeClock()


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cell(via): proves cells of the table in docs/tasks.md")
    config.stash[RECORDER] = Recorder()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    mark = item.get_closest_marker("cell")
    if mark is not None and isinstance(item, pytest.Function) and report.when == "call":
        params: dict[str, Any] = dict(item.callspec.params)
        item.config.stash[RECORDER].record(
            mark.args[0], params["cases"], params["transport"], passed=report.passed and not hasattr(report, "wasxfail")
        )
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    if os.environ.get("EMCEEPEE_WRITE_MATRIX") != "1":
        return
    recorder = session.config.stash[RECORDER]
    if not recorder.is_complete():
        raise pytest.UsageError("the table is written by a run of all of tests/tasks, with all peers installed")
    DOCS.write_text(with_table(DOCS.read_text(encoding="utf-8"), recorder.table()), encoding="utf-8")
