"""A task of ours as the protocol writes it: the extension of 2026-07-28, and 2025-11-25."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from mcp_types import INTERNAL_ERROR

from emceepee.clock import isoformat
from emceepee.core.questions import Question, QuestionKind
from emceepee.core.tasks import Task
from emceepee.errors import PeerError
from emceepee.front.asking import request_of
from emceepee.front.client import ClientFacts
from emceepee.front.jsonrpc import error_object
from emceepee.hub import Session
from emceepee.protocol import RELATED_TASK_META_KEY, with_meta, without_meta

__all__ = ["error_of", "extension_task", "handshake_task", "input_requests", "with_related_task"]

JsonObject: TypeAlias = dict[str, Any]

DEFAULT_POLL_MS = 1000

WAITS_FOR_OTHERS = "waits for an answer that this client cannot be asked for: see "

_TOOL_OF: Mapping[QuestionKind, str] = {"elicitation": "get_elicitations", "sampling": "get_sampling_requests"}


def extension_task(session: Session, task: Task, client: ClientFacts, *, is_new: bool = False) -> JsonObject:
    """The body of a `CreateTaskResult` (`is_new`), of what `tasks/get` answers, and of `notifications/tasks`.

    Questions that the client has not declared to answer stay in the list, for whoever has the tools.
    """
    pending = [] if task.is_terminal else session.state.questions.pending(task_id=task.task_id)
    questions = [question for question in pending if client.can_be_asked(question.kind, question.params)]
    status = _status(task, questions)
    shown = _common(task, status)
    if pending and not questions:
        tools = dict.fromkeys(_TOOL_OF[question.kind] for question in pending)
        shown["statusMessage"] = WAITS_FOR_OTHERS + " and ".join(tools)
    shown["ttlMs"] = task.ttl_ms
    shown["pollIntervalMs"] = task.poll_interval_ms or DEFAULT_POLL_MS
    if is_new:
        return shown
    if questions:
        shown["inputRequests"] = input_requests(questions)
    elif status == "completed":
        shown["result"] = _complete(task.result or {})
    elif status == "failed":
        shown["error"] = error_object(error_of(task))
    return shown


def handshake_task(session: Session, task: Task) -> JsonObject:
    """A `Task` of 2025-11-25, which counts an `isError` result as a failure."""
    questions = [] if task.is_terminal else session.state.questions.pending(task_id=task.task_id)
    status = _status(task, questions)
    if status == "completed" and (task.result or {}).get("isError"):
        status = "failed"
    shown = _common(task, status)
    return {**shown, "ttl": task.ttl_ms, "pollInterval": task.poll_interval_ms or DEFAULT_POLL_MS}


def input_requests(questions: list[Question]) -> JsonObject:
    """Open questions under the ids that they have everywhere."""
    return {question.request_id: request_of(question) for question in questions}


def error_of(task: Task) -> PeerError:
    """Why a task has no result: the server's own error where it was one."""
    if (error := task.peer_error) is not None:
        return PeerError(error["code"], error["message"], error.get("data"))
    reason = "The task's time ran out" if task.status == "expired" else task.error
    return PeerError(INTERNAL_ERROR, reason or f"The task was {task.status}")


def with_related_task(result: Mapping[str, Any], task_id: str) -> JsonObject:
    """A result of 2025-11-25 that says whose it is."""
    return with_meta(result, {RELATED_TASK_META_KEY: {"taskId": task_id}})


def _status(task: Task, questions: list[Question]) -> str:
    if questions:
        return "input_required"
    if task.status == "expired":
        return "failed"
    # A server says so for a moment after it was answered, and nobody could do anything about it.
    return "working" if task.status == "input_required" else task.status


def _common(task: Task, status: str) -> JsonObject:
    shown: JsonObject = {"taskId": task.task_id, "status": status}
    if message := task.status_message or (task.error if status == "failed" else None):
        shown["statusMessage"] = message
    return shown | {"createdAt": isoformat(task.created_at), "lastUpdatedAt": isoformat(task.last_updated_at)}


def _complete(result: Mapping[str, Any]) -> JsonObject:
    return {"resultType": "complete", **without_meta(result, {RELATED_TASK_META_KEY})}
