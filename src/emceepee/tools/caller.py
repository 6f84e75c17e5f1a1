"""On whose behalf a tool runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from emceepee.hub import Hub, Session

__all__ = ["Caller", "HangUp"]

HangUp: TypeAlias = Literal["gone", "timed_out", "cancelled"]
"""Why a client waits no longer: it vanished, it lost patience, or it does not want the result any more."""


@dataclass(slots=True)
class Caller:
    """One request of a client. When the front cancels the tool that runs for it, `hung_up` says why."""

    hub: Hub
    session: Session
    may_spawn: bool = False
    on_progress: Callable[[float, float | None, str | None], None] | None = None
    hung_up: Callable[[], HangUp | None] = lambda: None
