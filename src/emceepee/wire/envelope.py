"""JSON-RPC messages as bytes, and errors that stand in for responses which cannot arrive any more.

Every transport reads and writes through this module; what the messages mean is left to the peer.
"""

from __future__ import annotations

import json

from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import TypeAdapter

from emceepee.jsontext import repaired
from emceepee.wire.transport import NEVER_TAKEN, TRANSPORT_FAILURE

__all__ = ["decode", "encode", "failure", "undelivered"]

_batch: TypeAdapter[list[JSONRPCMessage]] = TypeAdapter(list[JSONRPCMessage])


def decode(data: str | bytes) -> list[JSONRPCMessage]:
    """The messages in `data`: one, or those of a batch (which only 2025-03-26 has).

    A response that breaks the protocol, but says to which request, is an error for that request.

    Raises:
        ValueError: this is not JSON-RPC.
    """
    if data.lstrip()[:1] in ("[", b"["):
        return _batch.validate_json(data, by_name=False)
    try:
        return [jsonrpc_message_adapter.validate_json(data, by_name=False)]
    except ValueError as error:
        try:
            return [_mended(repaired(data))]
        except RecursionError:
            raise error from None


def _mended(data: str) -> JSONRPCMessage:
    try:
        return jsonrpc_message_adapter.validate_json(data, by_name=False)
    except ValueError:
        if (broken := _broken_response(data)) is None:
            raise
        return broken


def _broken_response(data: str) -> JSONRPCError | None:
    raw = json.loads(data)
    if not isinstance(raw, dict) or "method" in raw or not isinstance(raw.get("id"), str | int):
        return None
    text = "the server answered with something that is no result"
    return JSONRPCError(jsonrpc="2.0", id=raw["id"], error=ErrorData(code=INTERNAL_ERROR, message=text))


def encode(message: JSONRPCMessage) -> bytes:
    """`message` as one line of JSON.

    Raises:
        ValueError: it holds something that JSON has no word for.
    """
    # JSON-RPC knows no `"params": null`, and strict servers refuse it.
    without = {"params"} if getattr(message, "params", ...) is None else None
    return message.model_dump_json(by_alias=True, exclude_unset=True, exclude=without).encode()


def failure(request_id: RequestId, error: ErrorData) -> SessionMessage:
    """The response that ends a request with `error`."""
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))


def undelivered(text: str, code: int = CONNECTION_CLOSED, *, was_taken: bool = True) -> ErrorData:
    """The error of a request that the transport could not carry to the server and back, or not even there."""
    data = {TRANSPORT_FAILURE: True} if was_taken else {TRANSPORT_FAILURE: True, NEVER_TAKEN: True}
    return ErrorData(code=code, message=text, data=data)
