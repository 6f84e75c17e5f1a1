"""How a request to one server has to look: what its tools want of a call, and which log level was set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from emceepee.protocol import with_meta
from emceepee.wire.era import LOG_LEVEL_META_KEY, header_parameters
from emceepee.wire.negotiation import Negotiated

__all__ = ["TaskSupport", "Terms"]

JsonObject: TypeAlias = dict[str, Any]
TaskSupport: TypeAlias = Literal["forbidden", "optional", "required"]


class Terms:
    """Those of one connection; of tools it knows what `list_tools` has told."""

    def __init__(self, negotiated: Negotiated) -> None:
        self.log_level: str | None = None
        """What goes with every request; the handshake era sets it once, by a request of its own."""
        self._era = negotiated.era.name
        self._capabilities = negotiated.capabilities
        self._tools: dict[str, JsonObject] = {}

    def learn(self, tools: Iterable[JsonObject]) -> None:
        self._tools = {tool["name"]: tool for tool in tools if isinstance(tool.get("name"), str)}

    def task_support(self, tool: str) -> TaskSupport:
        """Whether a tool may or must be called as a task; no server that does not declare it may."""
        requests = _at(self._capabilities, "tasks", "requests", "tools", "call")
        support = _at(self._tools.get(tool), "execution", "taskSupport")
        if self._era != "handshake" or requests is None:
            return "forbidden"
        return support if support in ("optional", "required") else "forbidden"

    @property
    def can_cancel_tasks(self) -> bool:
        return self._era == "modern" or _at(self._capabilities, "tasks", "cancel") is not None

    def headers(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, str]:
        """Those that mirror arguments of a call, where the tool's schema wants it."""
        if self._era != "modern" or (definition := self._tools.get(tool)) is None:
            return {}
        return header_parameters(definition.get("inputSchema"), arguments)

    def with_log_level(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.log_level is None:
            return params
        return with_meta(params, {LOG_LEVEL_META_KEY: self.log_level})


def _at(value: object, *path: str) -> Any:
    """What stands at `path` in nested objects, or None."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
