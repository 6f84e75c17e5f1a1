"""The one thing that we want from task groups and anyio does not give."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.abc

__all__ = ["task_group"]


@asynccontextmanager
async def task_group() -> AsyncIterator[anyio.abc.TaskGroup]:
    """A task group whose body's own exception comes out as it is, and not in an exception group.

    For context managers that run something beside their body: whoever writes the body need not know.
    """
    raised: BaseException | None = None
    try:
        async with anyio.create_task_group() as tasks:
            try:
                yield tasks
            except BaseException as error:
                raised = error
                raise
    except BaseExceptionGroup as group:
        if raised is not None and group.exceptions == (raised,):
            raise raised from raised.__cause__
        raise
