"""A client's messages, told apart before anything else looks at them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from mcp_types import INVALID_REQUEST, PARSE_ERROR

from emceepee.errors import PeerError
from emceepee.jsontext import loads

__all__ = ["Message", "Notification", "Request", "RequestId", "Response", "error_message", "parse", "result_message"]

JsonObject: TypeAlias = dict[str, Any]
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


def parse(data: bytes | str) -> Message:
    """
    Raises:
        PeerError: this is not a JSON-RPC 2.0 message; it says in what.
    """
    try:
        raw = loads(data)
    except (ValueError, RecursionError) as error:
        raise PeerError(PARSE_ERROR, f"Parse error: {error}") from None
    if not isinstance(raw, dict):
        raise PeerError(INVALID_REQUEST, "Expected one JSON-RPC message: an object, not a batch")
    if raw.get("jsonrpc") != "2.0":
        raise PeerError(INVALID_REQUEST, 'Expected "jsonrpc": "2.0"')
    params = raw.get("params", {})
    if "method" not in raw:
        return _response(raw)
    if not isinstance(raw["method"], str) or not isinstance(params, dict):
        raise PeerError(INVALID_REQUEST, "Expected a method name, and params that are an object")
    if "id" not in raw:
        return Notification(raw["method"], params)
    return Request(_request_id(raw["id"]), raw["method"], params)


def result_message(request_id: RequestId, result: Mapping[str, Any]) -> JsonObject:
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def error_message(request_id: RequestId | None, error: PeerError) -> JsonObject:
    told: JsonObject = {"code": error.code, "message": error.message}
    if error.data is not None:
        told["data"] = error.data
    return {"jsonrpc": "2.0", "id": request_id, "error": told}


def _response(raw: JsonObject) -> Response:
    if ("result" in raw) == ("error" in raw):
        raise PeerError(INVALID_REQUEST, "Expected a method, a result or an error")
    return Response(_request_id(raw.get("id")), raw)


def _request_id(value: object) -> RequestId:
    if isinstance(value, str | int) and not isinstance(value, bool):
        return value
    raise PeerError(INVALID_REQUEST, "Expected an id that is a string or an integer")
