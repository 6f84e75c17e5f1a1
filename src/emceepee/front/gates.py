"""Which gate the settings ask for."""

from __future__ import annotations

from emceepee.clock import Clock, SystemClock
from emceepee.config import HttpSettings
from emceepee.front.gate import Gate, OpenGate
from emceepee.front.oauth import oauth_gate
from emceepee.front.tokens import TokenGate, token_holders
from emceepee.loopback import is_loopback

__all__ = ["gate_for"]


def gate_for(settings: HttpSettings, port: int, clock: Clock | None = None) -> Gate:
    """The gate of a hub that listens on `port`.

    Raises:
        SettingsError: what the settings name cannot be used.
    """
    access = settings.access
    if not access.is_guarded:
        return OpenGate()
    issued = None
    if access.oauth is not None:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        own_url = f"http://{host}:{port}/mcp" if is_loopback(settings.host) else ""
        issued = oauth_gate(access.oauth, own_url, clock or SystemClock())
    return TokenGate(token_holders(access), issued)
