"""Writes that get stuck where a test says so, so that its interleaving is certain."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest

from emceepee.hub import Session

__all__ = ["stuck_at"]


def stuck_at(monkeypatch: pytest.MonkeyPatch, session: Session, nth: int) -> Callable[[], None]:
    """Have the `nth` wait for something to be durable, from 0, never end; the returned function puts it right again."""
    count = 0
    durable = session.durable

    async def waits() -> None:
        nonlocal count
        count += 1
        if count == nth + 1:
            await anyio.sleep_forever()
        await durable()

    monkeypatch.setattr(session, "durable", waits)
    return lambda: monkeypatch.setattr(session, "durable", durable)
