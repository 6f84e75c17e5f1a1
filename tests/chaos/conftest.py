"""How long, and with which seed."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("chaos")
    group.addoption("--chaos-seed", type=int, default=1, help="what the schedule of the chaos suite is made from")
    group.addoption("--chaos-seconds", type=float, default=30, help="how long the chaos goes on")


@pytest.fixture
def chaos_seed(request: pytest.FixtureRequest) -> int:
    seed: int = request.config.getoption("--chaos-seed", default=1)
    return seed


@pytest.fixture
def chaos_seconds(request: pytest.FixtureRequest) -> float:
    seconds: float = request.config.getoption("--chaos-seconds", default=30.0)
    return seconds
