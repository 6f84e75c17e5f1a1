"""Task groups for context managers that run something beside their body: whoever writes the body need not know."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.abc

__all__ = ["companions", "task_group"]


@asynccontextmanager
async def task_group() -> AsyncIterator[anyio.abc.TaskGroup]:
    """A task group whose body's own exception comes out as it is, and not in an exception group."""
    raised: Exception | SystemExit | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield tasks
        except (Exception, SystemExit) as error:
            raised = error
            tasks.cancel_scope.cancel()
    if raised is not None:
        raise raised


@asynccontextmanager
async def companions() -> AsyncIterator[anyio.abc.TaskGroup]:
    """A task group whose tasks end with its body."""
    async with task_group() as tasks:
        try:
            yield tasks
        finally:
            tasks.cancel_scope.cancel()
