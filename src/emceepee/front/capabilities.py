"""A server's capabilities, as a client of either era is told of them through us."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from emceepee.front.client import ClientFacts
from emceepee.protocol import TASKS_EXTENSION

__all__ = ["HANDSHAKE_TASKS", "capabilities_for"]

JsonObject: TypeAlias = dict[str, Any]

HANDSHAKE_TASKS: JsonObject = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}


def capabilities_for(
    client: ClientFacts, declared: Mapping[str, Any], era: Literal["handshake", "modern"]
) -> JsonObject:
    """What the server declared; tasks are ours, in the client's own way, whatever the server has."""
    capabilities = {key: value for key, value in declared.items() if key not in ("tasks", "extensions")}
    extensions = {key: value for key, value in (declared.get("extensions") or {}).items() if key != TASKS_EXTENSION}
    if client.is_modern:
        extensions[TASKS_EXTENSION] = {}
    elif client.understands_resuming:
        capabilities["tasks"] = HANDSHAKE_TASKS
    if extensions:
        capabilities["extensions"] = extensions
    if era == "modern" and not client.is_modern and isinstance(capabilities.get("resources"), Mapping):
        # In its own era every resource can be listened for, without a word on it.
        capabilities["resources"] = {**capabilities["resources"], "subscribe": True}
    return capabilities
