"""A client on FastMCP, with its tasks extension of 2026-07-28, driven over pipes; the same lines as bridge_client.py.

There is no `task`: the server decides what becomes one, and the client follows it by itself. It answers elicitations.
It declares no sampling, since it could not answer that inside a task.
"""

import json
import sys
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport
from fastmcp_tasks.client import TasksClientExtension
from mcp import MCPError

current: ContextVar[int] = ContextVar("current")
resolve_task = TasksClientExtension._resolve_task


async def told(self: TasksClientExtension, created: Any, context: Any) -> Any:
    """What the extension does when a call became a task, which it keeps to itself."""
    say({"id": current.get(), "progress": {"task": created.task_id}})
    return await resolve_task(self, created, context)


TasksClientExtension._resolve_task = told


def say(line: dict[str, Any]) -> None:
    print(json.dumps(line, ensure_ascii=False), flush=True)


@dataclass
class Connection:
    asked: list[str] = field(default_factory=list)
    client: Client = field(init=False)

    async def elicited(self, message: str, response_type: Any, _params: Any, _context: Any) -> Any:
        self.asked.append(message)
        if response_type is None:
            return ElicitResult(action="accept")
        return response_type(name=message.rstrip("?"))

    async def run(self, target: list[str], *, task_status: anyio.abc.TaskStatus[None]) -> None:
        transport: Any = target[0]
        if not target[0].startswith("http://"):
            transport = StdioTransport(target[0], target[1:], keep_alive=False)
        # Pinned: left to find out the era by itself, it falls back to the handshake where a server is slow to start.
        async with Client(transport, elicitation_handler=self.elicited, mode="2026-07-28") as self.client:
            task_status.started()
            await anyio.sleep_forever()

    async def perform(self, request: dict[str, Any]) -> dict[str, Any]:
        async def on_progress(progress: float, _total: float | None, message: str | None) -> None:
            say({"id": request["id"], "progress": {"progress": progress, "message": message}})

        # Everything hears of progress here: without a handler of one's own, the client's default one logs it.
        result = await self.client.call_tool_mcp(request["tool"], request["arguments"], progress_handler=on_progress)
        shown: dict[str, Any] = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        return shown


connections: dict[str, Connection] = {}


async def answer(request: dict[str, Any], tasks: anyio.abc.TaskGroup) -> None:
    current.set(request["id"])
    try:
        if request["op"] == "open":
            connection = connections[request["name"]] = Connection()
            await tasks.start(connection.run, request["target"])
            line: dict[str, Any] = {"result": {}}
        else:
            connection = connections[request["on"]]
            line = {"result": {"result": await connection.perform(request), "asked": connection.asked}}
    except MCPError as error:
        line = {"error": {"code": error.error.code, "message": error.error.message, "data": error.error.data}}
    except Exception as error:  # every request is answered, whatever the SDK raises
        line = {"error": {"code": None, "message": repr(error), "data": None}}
    say({"id": request["id"], **line})


async def main() -> None:
    say({"ready": {}})
    async with anyio.create_task_group() as tasks:
        async for line in anyio.wrap_file(sys.stdin):
            tasks.start_soon(answer, json.loads(line), tasks)
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main)
