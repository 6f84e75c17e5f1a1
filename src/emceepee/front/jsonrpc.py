"""A client's messages, told apart before anything else looks at them, and the responses to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeGuard

from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR
from structlog import get_logger

from emceepee.errors import EmceepeeError, PeerError
from emceepee.jsontext import Unwritable, is_text, loads

__all__ = [
    "BATCHING",
    "BadMessage",
    "Batch",
    "Message",
    "Notification",
    "Request",
    "RequestId",
    "Response",
    "answered",
    "as_peer_error",
    "error_message",
    "error_object",
    "no_batch",
    "parse",
    "result_message",
]

JsonObject: TypeAlias = dict[str, Any]
log = get_logger(__name__)
RequestId: TypeAlias = str | int


@dataclass(frozen=True, slots=True)
class Request:
    id: RequestId
    method: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Notification:
    method: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Response:
    id: RequestId
    outcome: Mapping[str, Any]


Message: TypeAlias = Request | Notification | Response


BATCHING = "2025-03-26"
"""The one revision that has batches."""

MAX_BATCH = 100
"""Messages; each request among them is served at the same time as the others."""


class BadMessage(PeerError):
    """Not a message; `request_id` is that of the request that it was meant to be, as far as that can be told."""

    def __init__(self, code: int, message: str, raw: object = None) -> None:
        self.request_id = _id_in(raw)
        super().__init__(code, message)


@dataclass(frozen=True, slots=True)
class Batch:
    """What came in one; each part is a message, or what is wrong with it."""

    messages: tuple[Message | BadMessage, ...]


def parse(data: bytes | str) -> Message | Batch:
    """
    Raises:
        BadMessage: this is neither a JSON-RPC 2.0 message nor a batch; it says in what.
    """
    try:
        raw = loads(data)
    except (ValueError, RecursionError) as error:
        found = error.value if isinstance(error, Unwritable) else None
        raise BadMessage(PARSE_ERROR, f"Parse error: {error}", found) from None
    if not isinstance(raw, list) or not raw:
        return _message(raw)
    if len(raw) > MAX_BATCH:
        raise BadMessage(INVALID_REQUEST, f"Expected no more than {MAX_BATCH} messages in a batch")
    return Batch(tuple(map(_part, raw)))


def _part(raw: object) -> Message | BadMessage:
    try:
        message = _message(raw)
    except BadMessage as error:
        return error
    if isinstance(message, Request) and message.method == "initialize":
        return BadMessage(INVALID_REQUEST, "initialize must not be in a batch", raw)
    return message


def _message(raw: object) -> Message:
    if not isinstance(raw, dict):
        raise no_batch()
    if raw.get("jsonrpc") != "2.0":
        raise BadMessage(INVALID_REQUEST, 'Expected "jsonrpc": "2.0"', raw)
    params = raw.get("params", {})
    if "method" not in raw:
        return _response(raw)
    if not isinstance(raw["method"], str) or not isinstance(params, dict):
        raise BadMessage(INVALID_REQUEST, "Expected a method name, and params that are an object", raw)
    if "id" not in raw:
        return Notification(raw["method"], params)
    return Request(_request_id(raw["id"]), raw["method"], params)


def no_batch() -> BadMessage:
    return BadMessage(INVALID_REQUEST, "Expected one JSON-RPC message: an object, not a batch")


def result_message(request_id: RequestId, result: Mapping[str, Any]) -> JsonObject:
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def error_message(request_id: RequestId | None, error: PeerError) -> JsonObject:
    return {"jsonrpc": "2.0", "id": request_id, "error": error_object(error)}


def error_object(error: PeerError) -> JsonObject:
    told: JsonObject = {"code": error.code, "message": error.message}
    return told if error.data is None else {**told, "data": error.data}


def as_peer_error(error: EmceepeeError) -> PeerError:
    """What a client is told of `error`: a server's own as it is, ours where there was none."""
    return error if isinstance(error, PeerError) else PeerError(INTERNAL_ERROR, str(error))


async def answered(request: Request, run: Callable[[], Awaitable[Mapping[str, Any]]]) -> JsonObject:
    """The response message: the result that `run` returns, or the error that it ends with."""
    try:
        return result_message(request.id, await run())
    except EmceepeeError as error:
        return error_message(request.id, as_peer_error(error))
    except Exception:
        log.exception("request_failed", method=request.method)
        return error_message(request.id, PeerError(INTERNAL_ERROR, "Internal error"))


def _response(raw: JsonObject) -> Response:
    if ("result" in raw) == ("error" in raw):
        raise BadMessage(INVALID_REQUEST, "Expected a method, a result or an error")
    return Response(_request_id(raw.get("id")), raw)


def _request_id(value: object) -> RequestId:
    if _is_id(value):
        return value
    raise BadMessage(INVALID_REQUEST, "Expected an id that is a string or an integer")


def _is_id(value: object) -> TypeGuard[RequestId]:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _id_in(raw: object) -> RequestId | None:
    """The id of what has a method, and so is no answer: there is an error to be told under it."""
    if not isinstance(raw, dict) or "method" not in raw or not _is_id(found := raw.get("id")):
        return None
    return found if is_text(str(found)) else None
