"""What every test with real processes shares."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
