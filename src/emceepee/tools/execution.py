"""Calling a server's tool: `execute_tool`."""

from __future__ import annotations

from typing import Any

import anyio
from pydantic import Field

from emceepee.clock import isoformat
from emceepee.hub import Call, Session
from emceepee.tools.caller import Caller
from emceepee.tools.reply import Reply, json_text, text_block
from emceepee.tools.tool import Input, JsonArgument, Tool

__all__ = ["TOOLS"]

MAX_TIMEOUT_MS = 86_400_000
"""A day; whoever wants to wait longer wants a task."""


class ExecuteTool(Input):
    server: str = Field(description="The server's name, from list_servers.")
    tool: str = Field(description="The tool's name, from list_tools.")
    args: JsonArgument = Field(default_factory=dict, description="The tool's arguments, as its inputSchema says.")
    timeout_ms: int | None = Field(
        None, ge=0, le=MAX_TIMEOUT_MS, description="Longest wait before it becomes a task; default 120000, 0: at once."
    )
    task_ttl_ms: int | None = Field(None, gt=0, description="How long a task may run; default 300000, at most 1800000.")


async def execute_tool(caller: Caller, given: ExecuteTool) -> Reply:
    session = caller.session
    timeout_ms = session.settings.default_timeout_ms if given.timeout_ms is None else given.timeout_ms
    call = session.calls.start(
        session.link(given.server),
        given.tool,
        given.args,
        timeout_ms=timeout_ms,
        ttl_ms=given.task_ttl_ms,
        on_progress=caller.on_progress,
    )
    if timeout_ms == 0:
        session.calls.promote(call, "timeout")
    try:
        await call.turned.wait()
    except anyio.get_cancelled_exc_class():
        if caller.hung_up() == "cancelled":
            session.calls.cancel(call)
        else:
            session.calls.abandon(call)
        raise
    if call.task_id is not None:
        return _promoted(session, call, call.task_id, timeout_ms)
    if call.error is not None:
        raise call.error
    return Reply(passed_through=call.result)


def _promoted(session: Session, call: Call, task_id: str, timeout_ms: int) -> Reply:
    task = session.state.tasks.get(task_id)
    waiting = session.state.questions.pending(task_id=task_id)
    if call.promoted_by == "question" and waiting:
        tool = "respond_to_elicitation" if waiting[0].kind == "elicitation" else "respond_to_sampling"
        summary = (
            f"{call.tool} is waiting for an answer, so it goes on as task {task_id}. Answer the {waiting[0].kind} "
            f"request {waiting[0].request_id} with {tool}, then call await_activity or get_task_result."
        )
    else:
        summary = (
            f"Tool call exceeded its timeout ({timeout_ms} ms). It goes on as task {task_id}. "
            "Use await_activity to learn when it is done, and get_task_result to get its result."
        )
    facts: dict[str, Any] = {
        "proxy_task": {
            "task_id": task_id,
            "status": task.status,
            "created_at": isoformat(task.created_at),
            "server": task.server,
            "tool": task.tool,
            "ttl_ms": task.ttl_ms,
        },
        "pending_on_server": {
            "tasks": [live.as_json() for live in session.state.tasks.live(call.server)],
            "elicitations_for_server": [
                question.as_json() for question in session.state.questions.pending("elicitation", server=call.server)
            ],
        },
    }
    return Reply([text_block(summary), text_block(json_text(facts))])


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "execute_tool",
        "Call a tool of a server. Returns its result; or, if it takes longer than timeout_ms or asks a question, a "
        "task that goes on in the background: answer open questions with respond_to_elicitation or "
        "respond_to_sampling, wait with await_activity, fetch the result with get_task_result.",
        ExecuteTool,
        execute_tool,
        destructive=True,
        open_world=True,
    ),
)
