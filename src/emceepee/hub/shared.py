"""What all sessions of a hub have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from emceepee.client import Target
from emceepee.clock import Clock
from emceepee.config import HubSettings, ServerConfig
from emceepee.hub.registry import ServerRegistry
from emceepee.hub.telemetry import Telemetry
from emceepee.store import Store

__all__ = ["Shared"]


@dataclass(frozen=True, slots=True)
class Shared:
    registry: ServerRegistry
    settings: HubSettings
    clock: Clock
    find_target: Callable[[ServerConfig], Target]
    """How to reach a server; tests put servers in memory there."""
    telemetry: Telemetry
    store: Store
