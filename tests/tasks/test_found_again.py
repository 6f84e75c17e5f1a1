"""A task that was begun on a connection which is gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from emceepee.client import TaskCreated, connect
from emceepee.testing import FakeClock
from tests.interaction.test_links import TaskServer

pytestmark = pytest.mark.anyio


async def test_a_task_is_found_again_with_tasks_list_on_the_next_connection(clock: FakeClock) -> None:
    server = TaskServer()

    async def listed(_params: Mapping[str, Any]) -> dict[str, Any]:
        return {"tasks": [await server.methods["tasks/get"]({"taskId": "server-1"})]}

    server.methods = {**server.methods, "tasks/list": listed}
    with anyio.fail_after(60):
        async with connect(server.transport(), clock=clock) as first:
            await first.list_tools()
            async for update in first.call_tool_stream("job"):
                assert isinstance(update, TaskCreated)
                break
        async with connect(server.transport(), clock=clock) as second:
            (task,), _ = await second.list_tasks()
            server.finished.set()
            result = await second.get_task_result(task.task_id)
    assert result["content"][0]["text"] == "native"
