"""Whose a session is, and what for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["LOCAL", "Origin"]

LOCAL = "local"
"""The principal where nobody has to say who they are: whoever can reach us is the user that runs us."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Written down with the session, so that the next hub knows as well."""

    principal: str = LOCAL
    workspace: str | None = None
    """What a modern client keys its state by; a session of a handshake client has none."""
    endpoint: str = ""
    """What the client of a handshake session talks to: the hub's own tools, or servers as they are."""
    client: Mapping[str, Any] = field(default_factory=dict)
    """What a handshake client said of itself: its protocol version and capabilities."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
