# mypy: ignore-errors
"""A 2025-11-25 server on the 1.x Python SDK over HTTP: `wait_for` is a task that ends when a file is there.

`ask_after` is one that asks for a name then. Who waits for a result is said on stderr.
"""

import socket
import sys
from contextlib import asynccontextmanager, nullcontext

import anyio
import uvicorn
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Mount

server = Server("waiting-task", version="1")
support = server.experimental.enable_tasks()

counts = {"wanted": 0, "given up": 0}


def count(what):
    counts[what] += 1
    print("results:", ", ".join(f"{number} {name}" for name, number in counts.items()), file=sys.stderr, flush=True)


async def handle(*args, wait=support.handler.handle):
    count("wanted")
    try:
        return await wait(*args)
    except anyio.get_cancelled_exc_class():
        count("given up")
        raise


support.handler.handle = handle


@server.list_tools()
async def list_tools():
    execution = types.ToolExecution(taskSupport="required")
    return [
        types.Tool(name=name, inputSchema={"type": "object"}, execution=execution) for name in ("wait_for", "ask_after")
    ]


@server.call_tool(validate_input=False)
async def call_tool(name, arguments):
    async def run(task):
        while not await anyio.Path(arguments["path"]).exists():  # noqa: ASYNC110  # a file tells nobody
            await anyio.sleep(0.02)
        text = "it is there"
        if name == "ask_after":
            answer = await task.elicit("Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
            text = f"hello {answer.content['name']}"
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    return await server.request_context.experimental.run_task(run)


async def main():
    manager = StreamableHTTPSessionManager(server)
    run_tasks = support.run
    # Each session would end the tasks of all when it ends; here they run until the program does.
    support.run = nullcontext

    @asynccontextmanager
    async def lifespan(_app):
        async with run_tasks(), manager.run():
            yield
            support.task_group.cancel_scope.cancel()

    app = Starlette(routes=[Mount("/mcp", app=manager.handle_request)], lifespan=lifespan)
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"listening at http://127.0.0.1:{listener.getsockname()[1]}/mcp/", file=sys.stderr, flush=True)
    await uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve([listener])


if __name__ == "__main__":
    anyio.run(main)
