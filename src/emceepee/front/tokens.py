"""Letting clients in by tokens that whoever runs the hub has handed out."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

from starlette.types import Scope
from structlog import get_logger

from emceepee.config import AccessSettings
from emceepee.front.credentials import bearer_token, unauthorized
from emceepee.front.gate import Gate

__all__ = ["TokenGate", "token_holders"]

log = get_logger(__name__)

HINT = "this hub wants the token that it was started with, as the header Authorization: Bearer TOKEN"

DIGITS = 16
"""Of the digest that a nameless token's holder is called by: enough to tell tokens apart, and no way back to them."""


class TokenGate:
    """Knows tokens by their digests. With an `otherwise`, that gate is asked about every other token."""

    def __init__(self, holders: Mapping[str, str], otherwise: Gate | None = None) -> None:
        """`holders` are tokens, each with the principal that it stands for."""
        self._holders = [(_digest(token), principal) for token, principal in holders.items()]
        self._otherwise = otherwise

    @property
    def documents(self) -> Mapping[str, Mapping[str, Any]]:
        return {} if self._otherwise is None else self._otherwise.documents

    async def principal_of(self, scope: Scope) -> str:
        token = bearer_token(scope)
        if token is not None and (principal := self._holder(token)) is not None:
            return principal
        if self._otherwise is not None:
            return await self._otherwise.principal_of(scope)
        if token is None:
            raise unauthorized(f"Unauthorized: {HINT}")
        log.warning("token_refused", client=(scope.get("client") or ("",))[0])
        raise unauthorized(f"Unauthorized: the token is wrong; {HINT}", error="invalid_token")

    def _holder(self, token: str) -> str | None:
        given, found = _digest(token), None
        # All of them, whichever fits: the time that it takes says nothing.
        for digest, principal in self._holders:
            if hmac.compare_digest(digest, given):
                found = principal
        return found


def token_holders(access: AccessSettings) -> dict[str, str]:
    """The tokens of the settings, each with the principal that it stands for.

    Raises:
        SettingsError: the file with the token cannot be used.
    """
    holders = {token: f"user:{name}" for name, token in access.tokens.items()}
    if token := access.read_token():
        holders.setdefault(token, f"token:{_digest(token).hex()[:DIGITS]}")
    return holders


def _digest(token: str) -> bytes:
    return hashlib.sha256(b"emceepee token " + token.encode("utf-8", "surrogateescape")).digest()
