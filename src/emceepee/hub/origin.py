"""Whose a session is, and what for."""

from __future__ import annotations

import json
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
    """What its clients talk to: the hub's own tools (empty), or servers as they are."""
    client: Mapping[str, Any] = field(default_factory=dict)
    """What a client said of itself: its protocol version and capabilities. Servers behind a workspace are told these
    once for all, so each set of them has a session of its own there; the hub's own tools need no such thing."""

    is_left: bool = False
    """Its client has gone for good, and left the results of its tasks to the next one."""

    @property
    def is_for_tools(self) -> bool:
        """Whether its client uses the hub's own tools, and so can answer what anybody is asked."""
        return not self.endpoint

    @property
    def key(self) -> str:
        """What tells a workspace from others."""
        return json.dumps(self.as_json(), sort_keys=True)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
