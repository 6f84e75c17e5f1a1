"""Which states of a session's clients have been brought back: each counts once, for the next hub too."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["SpentStates"]


class SpentStates:
    """By their nonces, until they have expired; `save` writes one down, or with None forgets it."""

    def __init__(self, save: Callable[[str, float | None], None]) -> None:
        self._save = save
        self._expiries: dict[str, float] = {}

    def __contains__(self, nonce: str) -> bool:
        return nonce in self._expiries

    def add(self, nonce: str, expires_at: float, now: float) -> None:
        for old in [old for old, expiry in self._expiries.items() if expiry < now]:
            del self._expiries[old]
            self._save(old, None)
        self._expiries[nonce] = expires_at
        self._save(nonce, expires_at)

    def restore(self, nonce: str, expires_at: float) -> None:
        """Put back one from before a restart."""
        self._expiries[nonce] = expires_at
