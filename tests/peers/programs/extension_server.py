"""A server with the tasks extension of 2026-07-28, on FastMCP: `extension_server.py stdio`, or `http` on a free port.

A tool that needs input returns what it asks for; it is run again with the answers. As a task that happens inside the
task (`inputRequests`, `tasks/update`), and in `ask` as `input_required` results of the call itself. `statuses` says
what became of each call of `hold`, which is how a test learns that a cancellation arrived. `wait` takes until `release`
is called with the same `gate`.
"""

import asyncio
import socket
import sys
from datetime import timedelta
from typing import Any

import anyio
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequiredResult,
    SamplingMessage,
    TextContent,
)

server = FastMCP("tasks-extension", version="1")
server.add_extension(TasksExtension(minimum_check_interval=timedelta(milliseconds=20)))

TASK = TaskConfig(mode="required", poll_interval=timedelta(milliseconds=100))
OPTIONAL = TaskConfig(mode="optional", poll_interval=timedelta(milliseconds=100))
held: list[str] = []
gates: dict[str, anyio.Event] = {}


def form(message: str) -> ElicitRequest:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    return ElicitRequest(params=ElicitRequestFormParams(mode="form", message=message, requested_schema=schema))


def prompt() -> CreateMessageRequest:
    message = SamplingMessage(role="user", content=TextContent(type="text", text="Say a word"))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=5))


def elicited(answer: Any) -> str:
    return f"{answer.action} {(answer.content or {}).get('name', 'nothing')}"


def sampled(answer: Any) -> str:
    return f"{answer.model} said {answer.content.text}"


@server.tool
async def echo(text: str = "") -> str:
    return text


@server.tool
async def statuses() -> str:
    return ", ".join(held)


@server.tool
async def wait(gate: str) -> str:
    await gates.setdefault(gate, anyio.Event()).wait()
    return f"waited at {gate}"


@server.tool
async def release(gate: str) -> str:
    gates.setdefault(gate, anyio.Event()).set()
    return "released"


@server.tool
async def ask(ctx: Context, question: str = "Name?") -> str | InputRequiredResult:
    answers = ctx.input_responses
    if not answers:
        return InputRequiredResult(input_requests={"name": form(question)}, request_state="asked once")
    return f"{elicited(answers['name'])}, {ctx.request_state}"


@server.tool(task=OPTIONAL)
async def maybe(topic: str = "nothing") -> str:
    return f"worked on {topic}"


@server.tool(task=TASK)
async def work(topic: str = "nothing") -> str:
    return f"worked on {topic}"


@server.tool(task=TASK)
async def ask_one(ctx: Context, question: str = "Name?") -> str | InputRequiredResult:
    answers = ctx.input_responses
    if not answers:
        return InputRequiredResult(input_requests={"name": form(question)})
    return elicited(answers["name"])


@server.tool(task=TASK)
async def sample_one(ctx: Context) -> str | InputRequiredResult:
    answers = ctx.input_responses
    if not answers:
        return InputRequiredResult(input_requests={"word": prompt()})
    return sampled(answers["word"])


@server.tool(task=TASK)
async def ask_several(ctx: Context) -> str | InputRequiredResult:
    """Two questions at once, and a third one after their answers; each round sees its own answers only."""
    answers = ctx.input_responses or {}
    if "third" in answers:
        return f"{ctx.request_state}, {elicited(answers['third'])}"
    if "first" in answers:
        so_far = f"{elicited(answers['first'])}, {elicited(answers['second'])}"
        return InputRequiredResult(input_requests={"third": form("Third?")}, request_state=so_far)
    return InputRequiredResult(input_requests={"first": form("First?"), "second": form("Second?")})


@server.tool(task=TASK)
async def hold() -> str:
    number = len(held)
    held.append("working")
    try:
        await asyncio.Event().wait()
    finally:
        held[number] = "cancelled"
    return "unreachable"


@server.tool(task=TASK)
async def fail() -> str:
    raise MCPError(code=-32050, message="it broke", data={"why": "a test"})


@server.tool(task=TASK)
async def refuse() -> str:
    raise ToolError("no, thank you")


async def over_http() -> None:
    # Named as TCP, or asyncio does not turn off Nagle's algorithm and every answer takes 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(f"listening at http://127.0.0.1:{listener.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    await server.run_http_async(show_banner=False, path="/mcp", sockets=[listener], log_level="warning")


async def over_stdio() -> None:
    await server.run_stdio_async(show_banner=False, log_level="warning")


if __name__ == "__main__":
    anyio.run({"stdio": over_stdio, "http": over_http}[sys.argv[1]])
