"""What all sessions of a hub have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from emceepee.client import Target
from emceepee.client.leftovers import marked
from emceepee.clock import Clock
from emceepee.config import HubSettings, ServerConfig
from emceepee.hub.board import Boards
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
    boards: Boards = field(default_factory=Boards)
    someone_answers: Callable[[str], bool] = lambda _principal: False
    """Whether a principal has a client that answers questions with the tools, whoever was asked."""

    def marked_target(self, config: ServerConfig) -> Target:
        """The server, with a mark on its program by which the next hub finds it if we are killed."""
        target = self.find_target(config)
        return target if self.store.place is None else marked(target, self.store.place)
