"""Which gate the settings ask for."""

from __future__ import annotations

from emceepee.config import HttpSettings
from emceepee.front.gate import Gate, OpenGate
from emceepee.front.tokens import TokenGate, token_holders

__all__ = ["gate_for"]


def gate_for(settings: HttpSettings) -> Gate:
    """
    Raises:
        SettingsError: what the settings name cannot be used.
    """
    if not settings.access.is_guarded:
        return OpenGate()
    return TokenGate(token_holders(settings.access))
