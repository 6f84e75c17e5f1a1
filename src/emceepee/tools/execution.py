"""Calling a server's tool: `execute_tool`."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from emceepee.hub import ToolCall
from emceepee.tools.caller import Caller
from emceepee.tools.calling import TimeoutMs, respond_with
from emceepee.tools.reply import Reply
from emceepee.tools.tool import Input, JsonArgument, Tool

__all__ = ["TOOLS"]


class ExecuteTool(Input):
    server: str = Field(description="The server's name, from list_servers.")
    tool: str = Field(description="The tool's name, from list_tools.")
    args: JsonArgument = Field(default_factory=dict, description="The tool's arguments, as its inputSchema says.")
    timeout_ms: TimeoutMs = None
    task_ttl_ms: int | None = Field(
        None, gt=0, description="How long a task may run, waiting for answers not counted. Default: the hub's, 300000."
    )


async def execute_tool(caller: Caller, given: ExecuteTool) -> Reply:
    work = ToolCall(given.tool, given.args)
    return await respond_with(caller, given.server, work, timeout_ms=given.timeout_ms, ttl_ms=given.task_ttl_ms)


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "execute_tool",
        "Call a tool of a server. Returns its result; or, if it takes longer than timeout_ms or asks a question (any "
        "tool may), a task that goes on in the background: answer open questions with respond_to_elicitation or "
        "respond_to_sampling, wait with await_activity, fetch the result with get_task_result.",
        ExecuteTool,
        execute_tool,
        destructive=True,
        open_world=True,
    ),
)
