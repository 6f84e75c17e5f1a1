"""A client on the 1.x Python SDK, driven over pipes: `story_client.py <http URL | stdio command...>`.

Standard input takes one JSON request per line:
    {"id": 1, "tool": "echo", "arguments": {"text": "hi"}, "timeout_s": 5, "progress": true}
    {"id": 2, "op": "list_tools"}
Each starts at once; standard output has one line per event:
    {"ready": {...}}                  connected, with the server's initialize result
    {"id": 1, "progress": {...}}      when the request asked for it
    {"id": 1, "result": {...}} or {"id": 1, "error": {"code": ..., "message": ..., "data": ...}}
The end of the input cancels what is open and closes the session.
"""

import json
import sys
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import anyio
from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import BaseModel


def say(line: dict[str, Any]) -> None:
    print(json.dumps(line, ensure_ascii=False), flush=True)


def dump(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def transport(target: list[str]) -> AbstractAsyncContextManager[Any]:
    if target[0].startswith(("http://", "https://")):
        return streamable_http_client(target[0])
    return stdio_client(StdioServerParameters(command=target[0], args=target[1:]))


async def perform(session: ClientSession, request: dict[str, Any]) -> BaseModel:
    if request.get("op") == "list_tools":
        return await session.list_tools()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        say({"id": request["id"], "progress": {"progress": progress, "total": total, "message": message}})

    timeout_s = request.get("timeout_s")
    return await session.call_tool(
        request["tool"],
        request.get("arguments") or {},
        read_timeout_seconds=None if timeout_s is None else timedelta(seconds=timeout_s),
        progress_callback=on_progress if request.get("progress") else None,
    )


async def answer(session: ClientSession, request: dict[str, Any]) -> None:
    try:
        line = {"result": dump(await perform(session, request))}
    except McpError as error:
        line = {"error": {"code": error.error.code, "message": error.error.message, "data": error.error.data}}
    except Exception as error:  # every request is answered, whatever the SDK raises
        line = {"error": {"code": None, "message": repr(error), "data": None}}
    say({"id": request.get("id"), **line})


async def main(target: list[str]) -> None:
    async with transport(target) as streams, ClientSession(streams[0], streams[1]) as session:
        say({"ready": dump(await session.initialize())})
        async with anyio.create_task_group() as calls:
            async for line in anyio.wrap_file(sys.stdin):
                calls.start_soon(answer, session, json.loads(line))
            calls.cancel_scope.cancel()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    try:
        anyio.run(main, sys.argv[1:])
    except* anyio.BrokenResourceError:
        pass  # the SDK's stdio transport raises when an answer arrives while it closes
