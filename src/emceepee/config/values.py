"""What inner code receives of the settings, and the defaults of all of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from emceepee.config.access import AccessSettings
from emceepee.core.backoff import Backoff
from emceepee.core.state import SessionLimits

__all__ = ["HttpSettings", "HubSettings", "Patience"]


@dataclass(frozen=True, slots=True)
class HubSettings:
    limits: SessionLimits = field(default_factory=SessionLimits)
    max_sessions: int = 1000
    session_idle_ms: int = 1_800_000
    default_timeout_ms: int = 120_000
    roots: tuple[str, ...] = ()
    """File URIs that servers are told of, unless the client has roots of its own."""
    backoff: Backoff = field(default_factory=Backoff)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long silences may be, in seconds."""

    keepalive: float = 15.0
    """After which something is sent that keeps the client's stream and timer alive."""
    prime: float = 1.0
    """After which a response turns into a stream, so that a client which is cut off can come back for it."""
    resume: float = 10.0
    """How long a client that was cut off has to come back, until its call goes on as a task."""


@dataclass(frozen=True, slots=True)
class HttpSettings:
    host: str = "127.0.0.1"
    port: int = 8080
    allow_spawn: bool = False
    """Whether a client may have programs started with `add_server`."""
    max_body_bytes: int = 4 * 1024 * 1024
    allowed_hosts: tuple[str, ...] = ()
    """Names under which clients reach us, besides those that we know ourselves."""
    access: AccessSettings = field(default_factory=AccessSettings)
    patience: Patience = field(default_factory=Patience)
