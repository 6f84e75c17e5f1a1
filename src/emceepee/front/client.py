"""What a client has said of itself: once in its handshake, or with every request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from mcp_types import LOG_LEVEL_META_KEY

from emceepee.core.questions import QuestionKind
from emceepee.protocol import TASKS_EXTENSION, meta_of

__all__ = ["ClientFacts"]

JsonObject: TypeAlias = dict[str, Any]


RESUMABLE_SINCE = "2025-11-25"
"""From this version on clients understand an event without data, and knew tasks while there were sessions."""


@dataclass(frozen=True, slots=True)
class ClientFacts:
    era: Literal["handshake", "modern"]
    version: str
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    info: Mapping[str, Any] | None = None
    log_level: str | None = None
    """The lowest level that it wants to hear with this request; modern only."""

    @classmethod
    def of_handshake(cls, params: Mapping[str, Any], version: str) -> ClientFacts:
        return cls("handshake", version, _mapping(params.get("capabilities")), _mapping(params.get("clientInfo")))

    @classmethod
    def of_request(cls, version: str, capabilities: object, info: object, params: Mapping[str, Any]) -> ClientFacts:
        level = meta_of(params).get(LOG_LEVEL_META_KEY)
        known_info = info if isinstance(info, Mapping) else None
        return cls("modern", version, _mapping(capabilities), known_info, level if isinstance(level, str) else None)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ClientFacts:
        """A handshake client whose session was opened before a restart."""
        return cls("handshake", str(value.get("version", "")), _mapping(value.get("capabilities")))

    def as_json(self) -> JsonObject:
        return {"version": self.version, "capabilities": dict(self.capabilities)}

    @property
    def is_modern(self) -> bool:
        return self.era == "modern"

    @property
    def knows_tasks(self) -> bool:
        """Whether it declared the extension, so that a call may become a task of the protocol."""
        return self.is_modern and TASKS_EXTENSION in _mapping(self.capabilities.get("extensions"))

    @property
    def understands_resuming(self) -> bool:
        return not self.is_modern and self.version >= RESUMABLE_SINCE

    def can_be_asked(self, kind: QuestionKind, params: Mapping[str, Any]) -> bool:
        """Whether it declared what this question needs: its kind, its mode, the tools in it."""
        declared = self.capabilities.get(kind)
        if not isinstance(declared, Mapping):
            return False
        if kind == "sampling":
            return "tools" in declared or not (params.get("tools") or params.get("toolChoice"))
        # Before there were modes there was only the form, and an empty object still stands for it.
        mode = params.get("mode", "form")
        return isinstance(mode, str) and mode in (declared or {"form": {}})


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
