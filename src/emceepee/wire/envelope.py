"""JSON-RPC messages as bytes, and errors that stand in for responses which cannot arrive any more.

Every transport reads and writes through this module; what the messages mean is left to the peer.
"""

from __future__ import annotations

from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, ErrorData, JSONRPCError, JSONRPCMessage, RequestId, jsonrpc_message_adapter
from pydantic import TypeAdapter

from emceepee.wire.transport import TRANSPORT_FAILURE

__all__ = ["decode", "encode", "failure", "undelivered"]

_batch: TypeAdapter[list[JSONRPCMessage]] = TypeAdapter(list[JSONRPCMessage])


def decode(data: str | bytes) -> list[JSONRPCMessage]:
    """The messages in `data`: one, or those of a batch (which only 2025-03-26 has).

    Raises:
        ValueError: this is not JSON-RPC.
    """
    if data.lstrip()[:1] in ("[", b"["):
        return _batch.validate_json(data, by_name=False)
    return [jsonrpc_message_adapter.validate_json(data, by_name=False)]


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


def undelivered(text: str, code: int = CONNECTION_CLOSED) -> ErrorData:
    """The error of a request that the transport could not carry to the server and back."""
    return ErrorData(code=code, message=text, data={TRANSPORT_FAILURE: True})
