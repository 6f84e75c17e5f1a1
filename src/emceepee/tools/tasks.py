"""Following calls that became tasks: `list_tasks`, `get_task`, `get_task_result`, `cancel_task`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from emceepee.core.tasks import Task
from emceepee.errors import TaskCancelled, TaskExpired, TaskFailed
from emceepee.hub import CancelOutcome, Session
from emceepee.jsontext import dumps
from emceepee.tools.caller import Caller
from emceepee.tools.reply import Reply, json_reply, text_block
from emceepee.tools.tool import Input, Tool

__all__ = ["TOOLS", "result_of_task"]

TaskId = Annotated[str, Field(description="From execute_tool or list_tasks.")]


class ListTasks(Input):
    server: str | None = Field(None, description="Only tasks on this server.")
    status: Literal["working", "input_required", "completed", "failed", "cancelled", "expired"] | None = None
    include_completed: bool = Field(False, description="Also those that have ended.")


class TaskInput(Input):
    task_id: TaskId


class GetTaskResult(Input):
    task_id: TaskId
    timeout_ms: int | None = Field(
        None, ge=0, le=86_400_000, description="Longest wait; default: what is left of the task's time."
    )


async def list_tasks(caller: Caller, given: ListTasks) -> Reply:
    statuses = None if given.status is None else (given.status,)
    found = caller.session.state.tasks.find(given.server, statuses, terminal=given.include_completed)
    return json_reply({"tasks": [task.as_json() for task in found]})


async def get_task(caller: Caller, given: TaskInput) -> Reply:
    state = caller.session.state
    task = state.tasks.get(given.task_id)
    shown: dict[str, Any] = {**task.as_json(), "args": task.args, "error": task.error}
    return json_reply(
        {
            "task": shown,
            "pending_elicitations_for_server": [
                question.as_json() for question in caller.session.open_questions("elicitation", server=task.server)
            ],
        }
    )


async def get_task_result(caller: Caller, given: GetTaskResult) -> Reply:
    return await result_of_task(caller.session, given.task_id, given.timeout_ms)


async def result_of_task(session: Session, task_id: str, timeout_ms: int | None) -> Reply:
    """The result of a task once it has one; after `timeout_ms`, or if a question of it opens, a word on that.

    Raises:
        ToolError: it ended without a result, or there is no such task.
    """
    task = await session.wait_for_task(task_id, None if timeout_ms is None else timeout_ms / 1000)
    match task.status:
        case "completed":
            return Reply(passed_through=task.result)
        case "failed":
            raise TaskFailed(task.task_id, task.error or "no reason was given")
        case "cancelled":
            raise TaskCancelled(task.task_id)
        case "expired":
            raise TaskExpired(task.task_id, task.ttl_ms)
        case _:
            return _not_yet(session, task)


async def cancel_task(caller: Caller, given: TaskInput) -> Reply:
    session = caller.session
    task = session.state.tasks.get(given.task_id)
    call = session.calls.of_task(given.task_id)
    if task.is_terminal or call is None:
        return json_reply({"success": False, "message": f"Task {task.task_id} is {task.status} already."})
    outcome = await session.calls.cancel_task(call)
    if outcome == "has_ended":
        message = f"Task {task.task_id} has ended at {task.server} already: get its result with get_task_result."
        return json_reply({"success": False, "message": message})
    message = f"Task {task.task_id} was cancelled, and {task.server} {_CANCELLED[outcome]}."
    return json_reply({"success": True, "message": message})


_CANCELLED: Mapping[CancelOutcome, str] = {
    "told": "was told to stop",
    "told_later": "will be told to stop when it is back",
    "not_told": "goes on with it: its tasks cannot be cancelled",
}


def _not_yet(session: Session, task: Task) -> Reply:
    waiting = session.state.questions.pending(task_id=task.task_id)
    if waiting:
        tool = "respond_to_elicitation" if waiting[0].kind == "elicitation" else "respond_to_sampling"
        text = f"Task {task.task_id} waits for an answer to {waiting[0].request_id}: use {tool}, then ask again."
    else:
        text = f"Task {task.task_id} is still {task.status}. Use await_activity, or ask again later."
    facts = {"task": task.as_json(), "questions": [question.as_json() for question in waiting]}
    return Reply([text_block(text), text_block(dumps(facts))], task_id=task.task_id)


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "list_tasks",
        "Tool calls that go on in the background.",
        ListTasks,
        list_tasks,
        read_only=True,
    ),
    Tool(
        "get_task",
        "State and progress of a task, and the open elicitations of its server.",
        TaskInput,
        get_task,
        read_only=True,
    ),
    Tool(
        "get_task_result",
        "Wait for a task and return its tool's result, as execute_tool would have. Comes back early if the task "
        "waits for an answer of yours.",
        GetTaskResult,
        get_task_result,
        read_only=True,
    ),
    Tool(
        "cancel_task",
        "Stop a task; its server is told.",
        TaskInput,
        cancel_task,
        destructive=True,
        idempotent=True,
        open_world=True,
    ),
)
