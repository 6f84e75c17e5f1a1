"""Having the hub do something at a server, and answering with its result or with the task that it became."""

from __future__ import annotations

from typing import Annotated, Any

import anyio
from pydantic import Field

from emceepee.clock import isoformat
from emceepee.hub import Call, Session, Work
from emceepee.jsontext import dumps
from emceepee.tools.caller import Caller
from emceepee.tools.reply import Reply, text_block

__all__ = ["MAX_TIMEOUT_MS", "TimeoutMs", "respond_with", "turned_call"]

MAX_TIMEOUT_MS = 86_400_000
"""A day; whoever wants to wait longer wants a task."""

TimeoutMs = Annotated[
    int | None,
    Field(
        ge=0,
        le=MAX_TIMEOUT_MS,
        description="Longest wait before it becomes a task; 0: none. Default: the hub's, 120000.",
    ),
]


async def respond_with(
    caller: Caller, server: str, work: Work, *, timeout_ms: int | None, ttl_ms: int | None = None
) -> Reply:
    """Do `work` at `server`; what takes too long, or asks back, goes on as a task.

    Raises:
        ToolError: there is no such server, too much is going on, or the work failed.
    """
    session = caller.session
    patience = session.settings.default_timeout_ms if timeout_ms is None else timeout_ms
    if caller.wants_task:
        patience = 0
    call = await turned_call(caller, server, work, timeout_ms=patience, ttl_ms=ttl_ms)
    if call.task_id is not None:
        return _promoted(session, call, call.task_id, patience)
    if call.error is not None:
        raise call.error
    return Reply(passed_through=call.result)


async def turned_call(
    caller: Caller, server: str, work: Work, *, timeout_ms: int | None, ttl_ms: int | None = None
) -> Call:
    """A call that has ended, or has become a task: then its `task_id` may be told.

    Raises:
        ToolError: there is no such server, or too much is going on.
    """
    session = caller.session
    call = session.calls.start(
        session.link(server), work, timeout_ms=timeout_ms, ttl_ms=ttl_ms, attendant=caller.attendant
    )
    caller.calls.append(call)
    if timeout_ms == 0:
        session.calls.promote(call, "timeout")
    try:
        await call.turned.wait()
        await session.durable()
    except anyio.get_cancelled_exc_class():
        caller.give_up(call)
        raise
    return call


def _promoted(session: Session, call: Call, task_id: str, timeout_ms: int) -> Reply:
    task = session.state.tasks.get(task_id)
    waiting = session.state.questions.pending(task_id=task_id)
    if call.promoted_by == "question" and waiting:
        tool = "respond_to_elicitation" if waiting[0].kind == "elicitation" else "respond_to_sampling"
        summary = (
            f"{call.tool} is waiting for an answer, so it goes on as task {task_id}. Answer the {waiting[0].kind} "
            f"request {waiting[0].request_id} with {tool}, then call await_activity or get_task_result."
        )
    elif call.immediate_response is not None:
        summary = f"{call.immediate_response} (It goes on as task {task_id}: use await_activity, then get_task_result.)"
    else:
        waited = f"{call.tool} is not done after {timeout_ms} ms" if timeout_ms else f"{call.tool} was started"
        summary = (
            f"{waited}, and goes on as task {task_id}. "
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
                question.as_json() for question in session.open_questions("elicitation", server=call.server)
            ],
        },
    }
    return Reply([text_block(summary), text_block(dumps(facts))], task_id=task_id)
