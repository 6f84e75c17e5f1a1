"""What the tests of the pure core share."""

from __future__ import annotations

import pytest

from tests.core.clockwork import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()
