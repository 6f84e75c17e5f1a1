"""What every test may ask for."""

from __future__ import annotations

import os
import signal
import tempfile

import pytest
from hypothesis import settings

from emceepee.testing import FakeClock
from tests.core.clockwork import EXAMPLES

# Also for properties that name no settings of their own.
settings.register_profile("examples", EXAMPLES)
settings.load_profile("examples")

# Hubs that tests start are many at a time, and must not touch what the user's own hub keeps.
os.environ["EMCEEPEE_DATA"] = ":memory:"
_home = tempfile.TemporaryDirectory(prefix="emceepee-")
os.environ["XDG_DATA_HOME"] = _home.name

# In the background, or under nohup, we are started with signals ignored. Programs inherit that, and some tests send
# them just these.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests that take more than a minute")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="takes more than a minute: run it with --slow"))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()
