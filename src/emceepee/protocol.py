"""Words of the protocol that several packages say, and `_meta`, which every request, notification and result may carry.

Only `wire` and `front` import the SDK, which has names for some of these; the rest of the house has them from here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

__all__ = [
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "METHOD_NOT_FOUND",
    "RELATED_TASK_META_KEY",
    "REQUEST_CANCELLED",
    "RESOURCE_NOT_FOUND",
    "SERVER_INFO_META_KEY",
    "SUBSCRIPTION_ID_META_KEY",
    "TASKS_EXTENSION",
    "URL_ELICITATION_REQUIRED",
    "meta_of",
    "with_meta",
    "without_meta",
]

JsonObject: TypeAlias = dict[str, Any]

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

RESOURCE_NOT_FOUND = -32002
"""What the handshake versions use for it; the modern one has it among the invalid parameters."""

URL_ELICITATION_REQUIRED = -32042
"""Of 2025-11-25 only: the user has to open a URL before the server does what it was asked for."""

REQUEST_CANCELLED = -32800
"""As the Language Server Protocol has it; MCP names none."""

TASKS_EXTENSION = "io.modelcontextprotocol/tasks"

RELATED_TASK_META_KEY = "io.modelcontextprotocol/related-task"
SERVER_INFO_META_KEY = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID_META_KEY = "io.modelcontextprotocol/subscriptionId"


def meta_of(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `_meta` of parameters or of a result; whoever puts something else there than an object has said nothing."""
    meta = message.get("_meta")
    return meta if isinstance(meta, Mapping) else {}


def with_meta(message: Mapping[str, Any], added: Mapping[str, Any]) -> JsonObject:
    return {**message, "_meta": {**meta_of(message), **added}}


def without_meta(message: Mapping[str, Any], keys: Collection[str]) -> JsonObject:
    """The message without these keys in its `_meta`, and without a `_meta` that would be empty."""
    kept = {key: value for key, value in meta_of(message).items() if key not in keys}
    rest = {key: value for key, value in message.items() if key != "_meta"}
    return {**rest, "_meta": kept} if kept else rest
