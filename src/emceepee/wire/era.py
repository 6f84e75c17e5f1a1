"""What the two eras of the protocol add to a request.

`handshake` (2024-11-05 to 2025-11-25) agrees on everything once; `modern` (2026-07-28) says it with every request.
Above this module a request is a method and its parameters, whatever the era.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias

from mcp.shared.inbound import encode_header_value, mcp_param_headers, x_mcp_header_map
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from emceepee.protocol import TASKS_EXTENSION, with_meta

__all__ = [
    "ENVELOPE_KEYS",
    "HANDSHAKE_PROTOCOL_VERSIONS",
    "LATEST_HANDSHAKE_VERSION",
    "LATEST_MODERN_VERSION",
    "LOG_LEVEL_META_KEY",
    "Era",
    "EraName",
    "HandshakeEra",
    "Identity",
    "ModernEra",
    "Outgoing",
    "header_parameters",
    "with_tasks",
]

EraName: TypeAlias = Literal["handshake", "modern"]
JsonObject: TypeAlias = dict[str, Any]

ENVELOPE_KEYS = frozenset({PROTOCOL_VERSION_META_KEY, CLIENT_INFO_META_KEY, CLIENT_CAPABILITIES_META_KEY})
"""What a modern request says in its `_meta` of whoever sends it."""

_NAME_OF: Mapping[str, str] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""Which parameter the `Mcp-Name` header mirrors; the SDK leaves out `tasks/*`."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What we tell a server of ourselves."""

    info: JsonObject
    capabilities: JsonObject

    def with_extension(self, name: str) -> Identity:
        """The same, with a protocol extension declared."""
        extensions = {**self.capabilities.get("extensions", {}), name: {}}
        return Identity(self.info, {**self.capabilities, "extensions": extensions})


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request as its era sends it."""

    params: JsonObject | None
    headers: dict[str, str]


class Era(Protocol):
    @property
    def name(self) -> EraName: ...

    @property
    def version(self) -> str: ...

    def dress(self, method: str, params: Mapping[str, Any] | None) -> Outgoing: ...


@dataclass(frozen=True, slots=True)
class HandshakeEra:
    version: str
    name: EraName = "handshake"

    def dress(self, method: str, params: Mapping[str, Any] | None) -> Outgoing:
        return Outgoing(None if params is None else dict(params), {})


@dataclass(frozen=True, slots=True)
class ModernEra:
    identity: Identity
    version: str = LATEST_MODERN_VERSION
    name: EraName = "modern"

    def dress(self, method: str, params: Mapping[str, Any] | None) -> Outgoing:
        envelope = {
            PROTOCOL_VERSION_META_KEY: self.version,
            CLIENT_INFO_META_KEY: self.identity.info,
            CLIENT_CAPABILITIES_META_KEY: self.identity.capabilities,
        }
        dressed = with_meta(params or {}, envelope)
        headers = {"mcp-protocol-version": self.version, "mcp-method": method}
        name = dressed.get(_NAME_OF.get(method, ""))
        if isinstance(name, str):
            headers["mcp-name"] = encode_header_value(name)
        return Outgoing(dressed, headers)


def with_tasks(era: Era) -> Era:
    """The era as task-capable requests speak it: the modern one declares the extension, the other needs nothing."""
    return replace(era, identity=era.identity.with_extension(TASKS_EXTENSION)) if isinstance(era, ModernEra) else era


def header_parameters(input_schema: object, arguments: Mapping[str, Any]) -> dict[str, str]:
    """The `Mcp-Param-*` headers for a tool whose schema marks arguments with `x-mcp-header`."""
    header_map = x_mcp_header_map(input_schema)
    return mcp_param_headers(header_map, arguments) if header_map else {}
