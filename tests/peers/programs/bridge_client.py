"""A client on the 1.x Python SDK with as many connections as it is told to open, driven over pipes.

Standard input takes one JSON request per line, each of which starts at once:
    {"id": 1, "op": "open", "name": "hub", "target": ["http://..."], "asks": true}
    {"id": 2, "op": "call", "on": "hub", "tool": "echo", "arguments": {"text": "hi"}, "progress": true}
    {"id": 3, "op": "task", "on": "hub", "tool": "work", "arguments": {}}
A connection that `asks` declares elicitation and sampling, and answers every question with its own words. `task` makes
the call a task of 2025-11-25 and waits for its result. Standard output has `{"ready": {}}`, then one line per event:
    {"id": 2, "progress": {...}}      of the call, or {"task": id} when there is a task
    {"id": 2, "result": {"result": {...}, "asked": [...]}}, with the words of all that the connection was asked so far,
    or {"id": 2, "error": {"code": ..., "message": ..., "data": ...}}
"""

import json
import sys
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc
from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


def say(line: dict[str, Any]) -> None:
    print(json.dumps(line, ensure_ascii=False), flush=True)


def transport(target: list[str]) -> AbstractAsyncContextManager[Any]:
    if target[0].startswith("http://"):
        return streamable_http_client(target[0])
    return stdio_client(StdioServerParameters(command=target[0], args=target[1:]))


@dataclass
class Connection:
    asked: list[str] = field(default_factory=list)
    session: ClientSession = field(init=False)

    async def elicited(self, _context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(params.message)
        if isinstance(params, types.ElicitRequestURLParams):
            return types.ElicitResult(action="accept")
        return types.ElicitResult(action="accept", content={"name": params.message.rstrip("?")})

    async def sampled(self, _context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        self.asked.append(params.messages[0].content_as_list[0].text)
        content = types.TextContent(type="text", text="word")
        return types.CreateMessageResult(role="assistant", content=content, model="m", stopReason="endTurn")

    async def run(self, target: list[str], asks: bool, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        callbacks = {"elicitation_callback": self.elicited, "sampling_callback": self.sampled} if asks else {}
        async with transport(target) as streams, ClientSession(streams[0], streams[1], **callbacks) as self.session:
            await self.session.initialize()
            task_status.started()
            await anyio.sleep_forever()

    async def perform(self, request: dict[str, Any]) -> types.CallToolResult:
        tool, arguments = request["tool"], request["arguments"]
        if request["op"] == "task":
            created = await self.session.experimental.call_tool_as_task(tool, arguments)
            say({"id": request["id"], "progress": {"task": created.task.taskId}})
            return await self.session.experimental.get_task_result(created.task.taskId, types.CallToolResult)

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            say({"id": request["id"], "progress": {"progress": progress, "message": message}})

        return await self.session.call_tool(
            tool, arguments, progress_callback=on_progress if request.get("progress") else None
        )


connections: dict[str, Connection] = {}


async def answer(request: dict[str, Any], tasks: anyio.abc.TaskGroup) -> None:
    try:
        if request["op"] == "open":
            connection = connections[request["name"]] = Connection()
            await tasks.start(connection.run, request["target"], request["asks"])
            line: dict[str, Any] = {"result": {}}
        else:
            connection = connections[request["on"]]
            result = (await connection.perform(request)).model_dump(mode="json", by_alias=True, exclude_none=True)
            line = {"result": {"result": result, "asked": connection.asked}}
    except McpError as error:
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
    try:
        anyio.run(main)
    except* anyio.BrokenResourceError:
        pass  # the SDK's stdio transport raises when an answer arrives while it closes
