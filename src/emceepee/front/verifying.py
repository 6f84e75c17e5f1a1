"""Whether an access token is good here, and what it says: by its signature, or by asking the issuer (RFC 7662)."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

import httpx2
import jwt
from mcp.server.auth.provider import AccessToken

from emceepee.clock import Clock
from emceepee.config import OAuthSettings
from emceepee.errors import EmceepeeError
from emceepee.front.issuer import Issuer, IssuerUnavailable

__all__ = ["REMEMBERED_SECONDS", "BadToken", "IntrospectingVerifier", "SignatureVerifier", "Verifier"]

Claims: TypeAlias = Mapping[str, Any]

LEEWAY_SECONDS = 30
"""By which two clocks may differ."""

REMEMBERED_SECONDS = 10.0
"""How long an answer of the issuer's is good: a revoked token works that much longer, and a busy client costs less."""

REMEMBERED = 1000
"""Answers at a time, oldest out."""

TIMEOUT_SECONDS = 10.0


class BadToken(EmceepeeError):
    """The token is good for nothing here; `reason` may be told to whoever sent it."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Verifier(Protocol):
    async def verify(self, token: str) -> AccessToken:
        """
        Raises:
            BadToken: it is not from the issuer, not for us, or not good any more.
            IssuerUnavailable: nobody can say.
        """
        ...


class SignatureVerifier:
    """For tokens that are JWTs, with the keys that the issuer publishes."""

    def __init__(self, issuer: Issuer, audiences: list[str]) -> None:
        self._issuer = issuer
        self._audiences = audiences

    async def verify(self, token: str) -> AccessToken:
        try:
            key_id = jwt.get_unverified_header(token).get("kid")
        except jwt.PyJWTError:
            raise BadToken("it is no JWT") from None
        published = await self._issuer.keys_for(key_id)
        key = published.find(key_id)
        if key is None:
            raise BadToken("it is not signed with a key of the issuer")
        try:
            claims = jwt.decode(
                token,
                key.key,
                algorithms=key.algorithms,
                audience=self._audiences,
                issuer=published.name,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.ExpiredSignatureError:
            raise BadToken("it has expired") from None
        except jwt.InvalidAudienceError:
            raise BadToken("it is for somebody else") from None
        except jwt.InvalidIssuerError:
            raise BadToken("it is of another issuer") from None
        except (jwt.PyJWTError, TypeError, ValueError):
            raise BadToken("it is not valid") from None
        return _access_token(token, claims)


class IntrospectingVerifier:
    """Asks the issuer about every token, and remembers what it said for a moment."""

    def __init__(self, settings: OAuthSettings, audiences: list[str], clock: Clock) -> None:
        self._settings = settings
        self._audiences = audiences
        self._clock = clock
        self._answers: OrderedDict[bytes, tuple[float, Claims]] = OrderedDict()

    async def verify(self, token: str) -> AccessToken:
        claims = await self._claims(token)
        if claims.get("active") is not True:
            raise BadToken("the issuer says that it is not valid")
        expires_at = claims.get("exp")
        if isinstance(expires_at, int | float) and expires_at + LEEWAY_SECONDS < self._clock.now():
            raise BadToken("it has expired")
        if str(claims.get("iss", self._settings.issuer)).rstrip("/") != self._settings.issuer.rstrip("/"):
            raise BadToken("it is of another issuer")
        audience = claims.get("aud")
        if not any(name in self._audiences for name in (audience if isinstance(audience, list) else [audience])):
            raise BadToken("it is for somebody else")
        return _access_token(token, {"iss": self._settings.issuer, **claims})

    async def _claims(self, token: str) -> Claims:
        key, now = hashlib.sha256(token.encode()).digest(), self._clock.monotonic()
        known = self._answers.get(key)
        if known is not None and now - known[0] < REMEMBERED_SECONDS:
            return known[1]
        claims = await self._ask(token)
        self._answers[key] = (now, claims)
        self._answers.move_to_end(key)
        while len(self._answers) > REMEMBERED:
            self._answers.popitem(last=False)
        return claims

    async def _ask(self, token: str) -> Claims:
        settings = self._settings
        auth = httpx2.BasicAuth(settings.client_id, settings.client_secret) if settings.client_id else None
        try:
            async with httpx2.AsyncClient(timeout=TIMEOUT_SECONDS, auth=auth) as http:
                form = {"token": token, "token_type_hint": "access_token"}
                response = await http.post(settings.introspection_url, data=form)
        except httpx2.HTTPError as error:
            raise IssuerUnavailable(settings.issuer, f"it cannot be reached ({type(error).__name__})") from None
        try:
            claims = response.json() if response.status_code == 200 else None
        except ValueError:
            claims = None
        if not isinstance(claims, dict):
            raise IssuerUnavailable(settings.issuer, f"it does not answer about tokens (HTTP {response.status_code})")
        return claims


def _access_token(token: str, claims: Claims) -> AccessToken:
    subject, client = claims.get("sub"), claims.get("client_id") or claims.get("azp")
    if not subject and not client:
        raise BadToken("it does not say whose it is")
    scopes = claims.get("scope") or claims.get("scp")
    if isinstance(scopes, str):
        scopes = scopes.split()
    return AccessToken(
        token=token,
        client_id=str(client or ""),
        scopes=[str(scope) for scope in scopes] if isinstance(scopes, list) else [],
        subject=str(subject) if subject else None,
        claims=dict(claims),
    )
