"""A server's task as a client sees it, in one vocabulary for both eras."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from emceepee.core.backoff import Backoff
from emceepee.errors import ConnectionLost, PeerError, RequestTimedOut
from emceepee.protocol import INTERNAL_ERROR, INVALID_PARAMS, meta_of
from emceepee.wire.era import Era
from emceepee.wire.peer import Peer
from emceepee.wire.transport import HTTP_STATUS

__all__ = [
    "MAX_REFUSALS",
    "PATIENCE",
    "RemoteStatus",
    "RemoteTask",
    "ask_about_task",
    "fetch_task",
    "immediate_response",
    "is_created_task",
    "is_of_unknown_task",
    "parse_task",
]

RemoteStatus: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]

STATUSES: Mapping[str, RemoteStatus] = {status: status for status in get_args(RemoteStatus)}
TERMINAL: frozenset[str] = frozenset({"completed", "failed", "cancelled"})
IMMEDIATE_RESPONSE_META_KEY = "io.modelcontextprotocol/model-immediate-response"

PARSE_ERROR = -32700
"""With this code, the transport says that what came is no JSON-RPC."""

ANSWER_SECONDS = 15.0
"""For what a server answers at once. A connection that went silent, as a NAT and a laptop's sleep leave them, is given
up after that."""

PATIENCE = Backoff(longest=30.0)
"""Between questions about a task that did not get through: a task is lost only when its server says so."""

MAX_REFUSALS = 5
"""Answers of the server's own in a row that say nothing of its task, after which it is believed to have lost it."""


@dataclass(frozen=True, slots=True)
class RemoteTask:
    """`raw` is the server's own word, untouched."""

    task_id: str
    status: RemoteStatus
    status_message: str | None
    ttl_ms: int | None
    poll_interval_ms: int | None
    raw: Mapping[str, Any]

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL


def parse_task(raw: object) -> RemoteTask:
    """
    Raises:
        PeerError: this is no task; the server broke the protocol.
    """
    if not isinstance(raw, Mapping):
        raise PeerError(INTERNAL_ERROR, "the server answered with something that is no task")
    task_id, status = raw.get("taskId"), STATUSES.get(str(raw.get("status")))
    if not isinstance(task_id, str) or not task_id or status is None:
        raise PeerError(INTERNAL_ERROR, "the server answered with a task without a proper taskId and status")
    message = raw.get("statusMessage")
    return RemoteTask(
        task_id=task_id,
        status=status,
        status_message=message if isinstance(message, str) else None,
        ttl_ms=_milliseconds(raw.get("ttl", raw.get("ttlMs"))),
        poll_interval_ms=_milliseconds(raw.get("pollInterval", raw.get("pollIntervalMs"))),
        raw=raw,
    )


async def ask_about_task(
    peer: Peer,
    method: str,
    params: Mapping[str, Any],
    *,
    era: Era | None = None,
    timeout: float | None = ANSWER_SECONDS,
    request_id: int | None = None,
) -> dict[str, Any]:
    """The server's answer to a request about one of its tasks.

    Raises:
        PeerError: it is a refusal, and the server's own.
        ConnectionLost: there is none. Unless the connection is over, it may be had later.
    """
    try:
        return await peer.request(method, params, era=era, timeout=timeout, request_id=request_id)
    except RequestTimedOut as late:
        raise ConnectionLost(str(late)) from None
    except PeerError as error:
        if _is_no_answer(error):
            raise ConnectionLost(error.message) from None
        raise


def _is_no_answer(error: PeerError) -> bool:
    """Whether it stands for something that is no JSON-RPC: a login page, a gateway's error, whatever its status."""
    return error.code == PARSE_ERROR or (isinstance(error.data, Mapping) and HTTP_STATUS in error.data)


def is_of_unknown_task(error: PeerError) -> bool:
    """Whether the server says that it has no such task; with any other error it may have it all the same."""
    return error.code == INVALID_PARAMS


async def fetch_task(peer: Peer, era: Era, task_id: str) -> RemoteTask:
    """The server's word on its task `task_id`.

    Raises:
        PeerError: it does not know the task, or its answer is not about it.
        ConnectionLost: as for `ask_about_task`.
    """
    task = parse_task(await ask_about_task(peer, "tasks/get", {"taskId": task_id}, era=era))
    if task.task_id != task_id:
        raise PeerError(INTERNAL_ERROR, "the server answered with another task")
    return task


def is_created_task(result: Mapping[str, Any]) -> bool:
    """Whether the answer to a call is a task in place of a result."""
    return result.get("resultType") == "task" or (isinstance(result.get("task"), Mapping) and "content" not in result)


def immediate_response(result: Mapping[str, Any]) -> str | None:
    """What a server wants its caller's model to be told while the task runs."""
    text = meta_of(result).get(IMMEDIATE_RESPONSE_META_KEY)
    return text if isinstance(text, str) else None


def _milliseconds(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None
