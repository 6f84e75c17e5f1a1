"""On whose behalf a tool runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from emceepee.core.events import Delivery
from emceepee.hub import Attendant, Call, Hub, Session

__all__ = ["Caller", "HangUp"]

HangUp: TypeAlias = Literal["gone", "timed_out", "cancelled"]
"""Why a client waits no longer: it vanished, it lost patience, or it does not want the result any more."""


@dataclass(slots=True)
class Caller:
    """One request of a client. When the front cancels the tool that runs for it, `hung_up` says why."""

    hub: Hub
    session: Session
    may_spawn: bool = False
    attendant: Attendant = field(default_factory=Attendant)
    hung_up: Callable[[], HangUp | None] = lambda: None
    wants_task: bool = False
    """It asked for a task of its protocol, and not for the result."""
    calls: list[Call] = field(default_factory=list)
    """What was done at servers for the request."""
    deliveries: list[Delivery] = field(default_factory=list)
    """The events that stand in the response."""

    def read_new(self) -> Delivery:
        return self._delivered(self.session.state.events.read_new())

    def read_after(self, event_id: str) -> Delivery:
        return self._delivered(self.session.state.events.read_after(event_id))

    def give_up(self, call: Call) -> None:
        """The client does not wait for the call any more."""
        if self.hung_up() == "cancelled":
            self.session.calls.cancel(call)
        else:
            self.session.calls.abandon(call)

    def sent(self) -> None:
        """The response is out. Not before that are its events forgotten: a hub that is killed must not lose them."""
        for delivery in self.deliveries:
            self.session.state.events.told(delivery)

    def unsent(self) -> None:
        """Nobody took the response: what it says has not been told, and what was done and is wanted becomes a task."""
        for call in self.calls:
            self.give_up(call)
        for delivery in reversed(self.deliveries):
            self.session.state.events.take_back(delivery)

    def _delivered(self, delivery: Delivery) -> Delivery:
        self.deliveries.append(delivery)
        return delivery
