"""What the conformance suite's `tasks-*` scenarios look for, on FastMCP with its tasks extension; on a free port."""

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
from mcp_types import CallToolRequestParams, ElicitRequest, ElicitRequestFormParams, InputRequiredResult

COMPOSED = "test_tool_with_task"


class AskFirst(TasksExtension):
    """The tasks extension, for which one tool asks before its call becomes a task: FastMCP has no word for that."""

    async def intercept_tool_call(self, params: CallToolRequestParams, context: Context, call_next: Any) -> Any:
        if params.name != COMPOSED:
            return await super().intercept_tool_call(params, context, call_next)
        answers = params.input_responses or {}
        if "user_name" not in answers:
            return InputRequiredResult(input_requests={"user_name": form("name")}, request_state="asked")
        name = (answers["user_name"].content or {}).get("name")
        answered = params.model_copy(update={"arguments": {"user_name": name}})
        return await super().intercept_tool_call(answered, context, call_next)


def form(field: str, kind: str = "string") -> ElicitRequest:
    schema = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    return ElicitRequest(params=ElicitRequestFormParams(mode="form", message=f"{field}?", requested_schema=schema))


server = FastMCP("conformance-tasks", version="1")
server.add_extension(AskFirst(minimum_check_interval=timedelta(milliseconds=20)))

REQUIRED = TaskConfig(mode="required", poll_interval=timedelta(milliseconds=100))
OPTIONAL = TaskConfig(mode="optional", poll_interval=timedelta(milliseconds=100))


@server.tool
async def greet(name: str) -> str:
    return f"Hello, {name}!"


@server.tool(task=OPTIONAL)
async def slow_compute(seconds: float, label: str = "") -> str:
    await anyio.sleep(seconds)
    return f"{label} took {seconds} s"


@server.tool(task=REQUIRED)
async def failing_job() -> str:
    raise ToolError("it was meant to fail")


@server.tool(task=REQUIRED)
async def protocol_error_job() -> str:
    raise MCPError(code=-32050, message="it broke", data={"why": "a test"})


@server.tool(task=REQUIRED)
async def confirm_delete(ctx: Context, filename: str) -> str | InputRequiredResult:
    if not ctx.input_responses:
        return InputRequiredResult(input_requests={"confirm": form("confirm", "boolean")})
    return f"{filename}: {ctx.input_responses['confirm'].action}"


@server.tool(task=REQUIRED)
async def multi_input(ctx: Context) -> str | InputRequiredResult:
    if not ctx.input_responses:
        return InputRequiredResult(input_requests={"first": form("name"), "second": form("confirm", "boolean")})
    return f"answered: {', '.join(sorted(ctx.input_responses))}"


@server.tool(name=COMPOSED, task=REQUIRED)
async def composed(user_name: str = "") -> str:
    return f"Hello, {user_name}!"


async def main() -> None:
    # Named as TCP, or asyncio does not turn off Nagle's algorithm and every answer takes 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(f"listening at http://127.0.0.1:{listener.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    # After uvicorn's five seconds a connection may be closed just as Node uses it again.
    patience = {"timeout_keep_alive": 75}
    await server.run_http_async(
        show_banner=False, path="/mcp", sockets=[listener], log_level="warning", uvicorn_config=patience
    )


if __name__ == "__main__":
    anyio.run(main)
