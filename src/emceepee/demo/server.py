"""The demo server: one tool for each way a call can go, and how to run it.

It owns the list of tools and the two transports; the booking forms are in `booking`, the resources and the prompt in
`menu`. Only the SDK's public high-level API is used, so it serves both eras and behaves like any server out there.
"""

import math
import os
import signal
import socket
import sys
import warnings
from importlib.metadata import version
from typing import Annotated, Any

import anyio
import uvicorn
from mcp import MCPDeprecationWarning
from mcp.server.mcpserver import Context, MCPServer, Resolve, Sample
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.request_state import RequestStateSecurity
from mcp.types import CreateMessageResult, LoggingLevel, SamplingMessage, TextContent
from pydantic import Field

from emceepee.demo.booking import book_table
from emceepee.demo.menu import complete_dish, dish, menu, plan_dinner

__all__ = ["build", "run_http", "run_stdio"]

INSTRUCTIONS = (
    "A small restaurant to try things on. Start with echo. Call slow to see a long call, book_table to be asked"
    " questions while a call is open, summarise to lend the server your model, fail and crash to see errors."
)

MIN_PROGRESS_STEPS = 5
"""So that even a call of a fraction of a second shows progress moving."""

CHATTER_LEVELS: tuple[LoggingLevel, ...] = ("debug", "info", "notice", "warning", "error")
"""The levels that `chatter` goes round, mildest first."""


async def echo(text: Annotated[str, Field(description="What you want to hear back")]) -> str:
    return text


async def slow(
    seconds: Annotated[float, Field(ge=0, le=3600, description="How long the call takes")], ctx: Context[Any, Any]
) -> str:
    steps = max(MIN_PROGRESS_STEPS, math.ceil(seconds))
    for step in range(steps):
        await ctx.report_progress(step, steps, f"{seconds * step / steps:g} of {seconds:g} s")
        await anyio.sleep(seconds / steps)
    await ctx.report_progress(steps, steps, "done")
    return f"slept {seconds:g} s"


async def ask_for_summary(text: str) -> Sample:
    """The question that `summarise` puts to the client's model."""
    request = TextContent(text=f"Summarise this in one sentence:\n\n{text}")
    return Sample(
        [SamplingMessage(role="user", content=request)],
        max_tokens=200,
        system_prompt="You are a brief and exact editor.",
    )


async def summarise(
    text: Annotated[str, Field(description="The text to shorten")],
    answer: Annotated[CreateMessageResult, Resolve(ask_for_summary)],
) -> str:
    if not isinstance(answer.content, TextContent):
        raise ToolError(f"the model answered with {answer.content.type} instead of text")
    return answer.content.text


async def fail(message: Annotated[str, Field(description="What the error says")] = "this tool always fails") -> str:
    raise ToolError(message)


async def crash() -> str:
    os._exit(3)


async def chatter(
    ctx: Context[Any, Any],
    lines: Annotated[int, Field(ge=0, le=1000, description="How many log messages to send")] = 5,
) -> str:
    for number in range(lines):
        level = CHATTER_LEVELS[number % len(CHATTER_LEVELS)]
        await ctx.log(level, f"chatter {number + 1} of {lines} at level {level}", logger_name="demo")
    return f"sent {lines} log messages"


def build() -> MCPServer:
    """The server with everything registered, not yet running."""
    server = MCPServer(
        name="emceepee-demo",
        title="emceepee demo",
        version=version("emceepee"),
        instructions=INSTRUCTIONS,
        log_level="WARNING",
        # There is nothing to protect here, and a key of its own for each process would end every booking with it.
        request_state_security=RequestStateSecurity(keys=["the demo server's requestState, known to all"]),
    )
    _add_tools(server)
    server.resource("demo://menu", title="Menu", description="Everything on the menu today.", mime_type="text/plain")(
        menu
    )
    server.resource(
        "demo://menu/{dish}", title="Dish", description="One dish of the menu, by its name.", mime_type="text/plain"
    )(dish)
    server.prompt(title="Plan a dinner", description="Plan a dinner from the menu for an occasion, then book it.")(
        plan_dinner
    )
    server.completion()(complete_dish)  # type: ignore[no-untyped-call]  # the SDK left this decorator untyped
    return server


def _add_tools(server: MCPServer) -> None:
    server.add_tool(echo, title="Echo", description="Says back what you say. The simplest possible call.")
    server.add_tool(
        slow,
        title="Slow",
        description="Takes as many seconds as you ask for and reports progress about once a second.",
    )
    server.add_tool(
        book_table,
        title="Book a table",
        description="Books a table. While the call is open it asks two questions, each with a form: first the date and"
        " time, then whether to book it. Declining either is fine and books nothing.",
    )
    server.add_tool(
        summarise,
        title="Summarise",
        description="Shortens a text to one sentence. The server has no model of its own: it samples yours.",
    )
    server.add_tool(fail, title="Fail", description="Always answers with an error result that carries your message.")
    server.add_tool(
        crash,
        title="Crash",
        description="Ends the server's process at once, without an answer. Shows what a lost server looks like.",
    )
    server.add_tool(
        chatter,
        title="Chatter",
        description="Sends log messages at several levels, from debug to error and round again.",
    )


def run_stdio() -> None:
    """Serve on standard input and output until the input ends, or SIGINT."""
    _silence_deprecations()
    # A thread is blocked reading the input, and an orderly end would wait for it.
    signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(0))
    if sys.stdin.isatty():
        hint = "demo server on stdin/stdout: waits for an MCP client; use --port N for HTTP"
        print(hint, file=sys.stderr, flush=True)
    anyio.run(build().run_stdio_async)


def run_http(host: str, port: int) -> None:
    """Serve Streamable HTTP at /mcp until SIGINT or SIGTERM, and say on stderr where; port 0 picks a free one."""
    _silence_deprecations()
    listener = _listen(host, port)
    app = build().streamable_http_app(host=host)
    # Open GET streams never end by themselves, so a graceful stop has to be bounded.
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)

    def stop(_number: int, _frame: object) -> None:
        server.should_exit = True

    # Uvicorn has handlers of its own while it serves, and raises what it caught once more when it has ended.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    print(f"demo server at {_url(listener)}", file=sys.stderr, flush=True)
    server.run(sockets=[listener])


def _silence_deprecations() -> None:
    # Log messages are deprecated in the newest revision and still what every older client expects.
    warnings.simplefilter("ignore", MCPDeprecationWarning)


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket: connections queue on it from now on, so its address may be told before serving starts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=1024)
    # The protocol is named, and inherited by what is accepted: asyncio switches Nagle off only where it reads TCP.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=listener.detach())


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/mcp" if ":" in host else f"http://{host}:{port}/mcp"
