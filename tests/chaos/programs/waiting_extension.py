# mypy: ignore-errors
"""A 2026-07-28 server on FastMCP over HTTP: `wait_for` is a task of the extension that ends when a file is there."""

import socket
import sys
from datetime import timedelta

import anyio
from fastmcp import FastMCP
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension

server = FastMCP("waiting-extension", version="1")
server.add_extension(TasksExtension(minimum_check_interval=timedelta(milliseconds=20)))


@server.tool(task=TaskConfig(mode="required", poll_interval=timedelta(milliseconds=100)))
async def wait_for(path: str) -> str:
    while not await anyio.Path(path).exists():  # noqa: ASYNC110  # a file tells nobody that it is there
        await anyio.sleep(0.02)
    return "it is there"


async def main():
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"listening at http://127.0.0.1:{listener.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    await server.run_http_async(show_banner=False, path="/mcp", sockets=[listener], log_level="warning")


if __name__ == "__main__":
    anyio.run(main)
