"""Every test of this folder runs on asyncio, as the program does."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
