"""Every error that this project raises on purpose, under one root.

    EmceepeeError
    ├── SettingsError            a setting, flag or configuration file is wrong (`config.WrongSettings`: several)
    ├── StoreError               what should survive a restart cannot be kept there (in `emceepee.store`)
    ├── WireError
    │   ├── ConnectFailed        no connection could be made
    │   ├── ConnectionLost       a connection that was there is gone
    │   ├── SessionGone          a server does not know the session that was to be taken up again
    │   ├── RequestTimedOut      the peer did not answer in time
    │   └── PeerError            the peer answered with a JSON-RPC error
    ├── ImpossibleTransition     a state machine was asked for a step that it does not have
    ├── QuestionSettled          a question that was answered, withdrawn or expired is answered again
    ├── TaskRequired             a tool was called plainly that can be called as a task only
    └── ToolError                a meta-tool cannot do what it was asked for
        ├── ServerNotFound  ServerDisconnected  ServerError  ServerTimedOut
        ├── ToolNotFound  InvalidArguments  TooManyTasks  NotAllowed
        ├── TaskNotFound  TaskExpired  TaskFailed  TaskCancelled
        └── RequestNotFound  SessionClosed ── HubStopping

Errors hold facts; their text is derived from them. `as_tool_error` says what a meta-tool's caller is told, `exit_code`
what the shell is told; how an error looks to an MCP peer is decided at the front.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

__all__ = [
    "ConnectFailed",
    "ConnectionLost",
    "EmceepeeError",
    "HubStopping",
    "ImpossibleTransition",
    "InvalidArguments",
    "NotAllowed",
    "PeerError",
    "QuestionSettled",
    "RequestNotFound",
    "RequestTimedOut",
    "ServerDisconnected",
    "ServerError",
    "ServerNotFound",
    "ServerTimedOut",
    "SessionClosed",
    "SessionGone",
    "SettingsError",
    "TaskCancelled",
    "TaskExpired",
    "TaskFailed",
    "TaskNotFound",
    "TaskRequired",
    "TooManyTasks",
    "ToolError",
    "ToolNotFound",
    "WireError",
    "as_tool_error",
    "exit_code",
]


class EmceepeeError(Exception):
    """The root of the tree above."""


class SettingsError(EmceepeeError):
    """A setting is wrong: `key` says which, `expected` what would be right."""

    def __init__(self, key: str, expected: str) -> None:
        self.key = key
        self.expected = expected
        super().__init__(f"{key}: {expected}")


class WireError(EmceepeeError):
    """Something went wrong between us and a server."""


class ConnectFailed(WireError):
    """No connection could be made to `target`, because of `reason`; `words` are the server's own, and not for logs."""

    def __init__(self, target: str, reason: str, words: str = "") -> None:
        self.target = target
        self.reason = reason
        self.words = words
        super().__init__(f"cannot connect to {target}: {reason}" + (f'; the first: "{words}"' if words else ""))


class ConnectionLost(WireError):
    """The connection is gone, because of `reason`; a request that was not `was_taken` can be sent again."""

    def __init__(self, reason: str = "the connection was closed", *, was_taken: bool = True) -> None:
        self.reason = reason
        self.was_taken = was_taken
        super().__init__(reason)


class SessionGone(WireError):
    """The server behind `target` does not know the session that was to be taken up again."""

    def __init__(self, target: str) -> None:
        self.target = target
        super().__init__(f"{target} does not know our session any more")


class RequestTimedOut(WireError):
    """The peer did not answer `method` within `seconds`."""

    def __init__(self, method: str, seconds: float) -> None:
        self.method = method
        self.seconds = seconds
        super().__init__(f"no answer to {method} within {seconds:g} s")


class PeerError(WireError):
    """The peer answered with a JSON-RPC error; `data` is its own, untouched."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.code = code
        self.message = message
        self.data = data
        super().__init__(f"{message} ({code})")


class ImpossibleTransition(EmceepeeError):
    """`subject` is in `state`, from which there is no way to `target`."""

    def __init__(self, subject: str, state: str, target: str) -> None:
        self.subject = subject
        self.state = state
        self.target = target
        super().__init__(f"{subject} is {state} and cannot become {target}")


class QuestionSettled(EmceepeeError):
    """The question has its answer already, or needs none any more: `how` it ended, and what `kind` it was of."""

    def __init__(self, kind: str, how: str) -> None:
        self.kind = kind
        self.how = how
        super().__init__(f"the {kind} request is settled already: {how}")


class TaskRequired(EmceepeeError):
    """The server takes `tool` as a task only."""

    def __init__(self, tool: str) -> None:
        self.tool = tool
        super().__init__(f"{tool} has to be called as a task: use call_tool_stream")


class ToolError(EmceepeeError):
    """A failure that a meta-tool reports: a stable `code`, a sentence, and what to do (`hint`)."""

    code: ClassVar[str] = "INTERNAL_ERROR"

    def __init__(self, message: str, hint: str) -> None:
        self.message = message
        self.hint = hint
        super().__init__(message)


class ServerNotFound(ToolError):
    code = "SERVER_NOT_FOUND"

    def __init__(self, server: str, known: Sequence[str] = ()) -> None:
        self.server = server
        listed = f" Known servers: {', '.join(known)}." if known else " No server is registered yet."
        super().__init__(
            f"There is no server named {server!r}.{listed}", "Use list_servers, or add it with add_server."
        )


class ServerDisconnected(ToolError):
    code = "SERVER_DISCONNECTED"

    def __init__(self, server: str, reason: str, remedy: str | None = None) -> None:
        self.server = server
        self.reason = reason
        super().__init__(
            f"Server {server!r} is not connected: {reason}",
            remedy
            or "What was under way may have been carried out. Call again to reconnect; see get_logs for what it wrote.",
        )


class ServerError(ToolError):
    """The server answered with a protocol error."""

    code = "SERVER_ERROR"

    def __init__(self, server: str, message: str, error_code: int | None = None) -> None:
        self.server = server
        self.error_code = error_code
        suffix = "" if error_code is None else f" (JSON-RPC error {error_code})"
        super().__init__(
            f"Server {server!r} answered with an error: {message}{suffix}",
            "Check what was asked for: list_tools with include_schemas, list_resources, list_prompts show what it has.",
        )


class ServerTimedOut(ToolError):
    code = "SERVER_TIMED_OUT"

    def __init__(self, server: str, seconds: float) -> None:
        self.server = server
        super().__init__(
            f"Server {server!r} did not answer within {seconds:g} s.",
            "Try again, with a larger timeout_ms if it has one.",
        )


class ToolNotFound(ToolError):
    code = "TOOL_NOT_FOUND"

    def __init__(self, tool: str, server: str | None = None, similar: Sequence[str] = ()) -> None:
        self.tool = tool
        self.server = server
        where = f"Server {server!r} has no tool {tool!r}." if server else f"There is no tool {tool!r}."
        listed = f" Did you mean {' or '.join(repr(name) for name in similar)}?" if similar else ""
        super().__init__(where + listed, "Use list_tools to see what there is.")


class InvalidArguments(ToolError):
    code = "INVALID_ARGUMENTS"

    def __init__(self, problems: Sequence[str], hint: str = "Correct the arguments and call again.") -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problems), hint)


class TooManyTasks(ToolError):
    code = "TOO_MANY_TASKS"

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"{limit} calls and tasks are running already, which is the limit of a session.",
            "Wait for one with await_activity, or end one with cancel_task.",
        )


class NotAllowed(ToolError):
    code = "NOT_ALLOWED"


class TaskNotFound(ToolError):
    code = "TASK_NOT_FOUND"

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        super().__init__(
            f"There is no task {task_id!r}.", "Use list_tasks; finished tasks are kept for a few minutes only."
        )


class TaskExpired(ToolError):
    code = "TASK_EXPIRED"

    def __init__(self, task_id: str, ttl_ms: int) -> None:
        self.task_id = task_id
        self.ttl_ms = ttl_ms
        super().__init__(
            f"Task {task_id} expired: it was not finished within its {ttl_ms} ms.",
            "Call execute_tool again with a larger task_ttl_ms.",
        )


class TaskFailed(ToolError):
    code = "TASK_FAILED"

    def __init__(self, task_id: str, error: str) -> None:
        self.task_id = task_id
        self.error = error
        super().__init__(f"Task {task_id} failed: {error}", "Call execute_tool again if the work is still wanted.")


class TaskCancelled(ToolError):
    code = "TASK_CANCELLED"

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        super().__init__(f"Task {task_id} was cancelled.", "Call execute_tool again if the work is still wanted.")


class RequestNotFound(ToolError):
    code = "REQUEST_NOT_FOUND"

    def __init__(self, request_id: str, kind: str, settled: str | None = None) -> None:
        self.request_id = request_id
        self.settled = settled
        message = (
            f"The {kind} request {request_id!r} is not open any more: it is {settled}."
            if settled
            else f"There is no open {kind} request {request_id!r}."
        )
        super().__init__(message, f"See what is open with {_LISTING[kind]}.")


class SessionClosed(ToolError):
    code = "SESSION_CLOSED"

    def __init__(self) -> None:
        super().__init__("The session was closed.", "Connect again: what this session held is gone.")


class HubStopping(SessionClosed):
    """The session ends because the hub does, which is no end for what the store keeps."""

    def __init__(self) -> None:
        ToolError.__init__(self, "The hub is stopping.", "Connect again once it is back, and call list_tasks.")


_LISTING = {"elicitation": "get_elicitations", "sampling": "get_sampling_requests"}


def as_tool_error(error: EmceepeeError, server: str = "") -> ToolError:
    """What a meta-tool's caller is told of `error`, which happened while `server` was asked."""
    match error:
        case ToolError():
            return error
        case PeerError():
            return ServerError(server, error.message, error.code)
        case ConnectFailed() | ConnectionLost():
            return ServerDisconnected(server, error.reason)
        case RequestTimedOut():
            return ServerTimedOut(server, error.seconds)
        case SettingsError():
            return InvalidArguments([str(error)])
        case _:
            return ToolError(str(error), "This is a defect of the hub: its log has the details.")


def exit_code(error: BaseException) -> int:
    """The process's exit status for `error`: 2 for wrong usage, 130 for an interrupt, 1 otherwise."""
    if isinstance(error, SettingsError):
        return 2
    return 130 if isinstance(error, KeyboardInterrupt) else 1
