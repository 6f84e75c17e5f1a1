"""What an OAuth issuer publishes about itself: its metadata, and the keys that it signs with.

Fetched when they are first needed and kept for an hour; a key that is not among them has them fetched again, since
issuers change their keys, but not for every token that somebody makes up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import anyio
import httpx2
import jwt
from mcp.client.auth.utils import build_oauth_authorization_server_metadata_discovery_urls, issuers_match
from structlog import get_logger

from emceepee.clock import Clock
from emceepee.errors import EmceepeeError
from emceepee.loopback import is_loopback

__all__ = [
    "FRESH_SECONDS",
    "PAUSE_SECONDS",
    "STALE_SECONDS",
    "Issuer",
    "IssuerKeys",
    "IssuerUnavailable",
    "SigningKey",
    "is_confidential",
]

JsonObject: TypeAlias = dict[str, Any]
log = get_logger(__name__)

ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""By the kind of key. Only signatures that the issuer alone can make: never `none`, never a shared secret."""

FRESH_SECONDS = 3600.0
"""How long keys are used without asking for them again."""

STALE_SECONDS = 24 * 3600.0
"""How long they are used while the issuer cannot be asked."""

PAUSE_SECONDS = 10.0
"""Between two fetches, whatever tokens come meanwhile."""

TIMEOUT_SECONDS = 10.0


class IssuerUnavailable(EmceepeeError):
    """The issuer cannot be asked, because of `reason`: nobody can say whether a token is good."""

    def __init__(self, issuer: str, reason: str) -> None:
        self.issuer = issuer
        self.reason = reason
        super().__init__(f"{issuer}: {reason}")


@dataclass(frozen=True, slots=True)
class SigningKey:
    key: Any
    algorithms: tuple[str, ...]
    """Those that it may have been used with."""


@dataclass(frozen=True, slots=True)
class IssuerKeys:
    name: str
    """What the issuer calls itself, to the letter: this is what stands in its tokens."""
    keys: Mapping[str | None, SigningKey]

    def find(self, key_id: str | None) -> SigningKey | None:
        if key_id is None and len(self.keys) == 1:
            return next(iter(self.keys.values()))
        return self.keys.get(key_id)


class Issuer:
    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._known: IssuerKeys | None = None
        self._fetched_at = 0.0
        self._tried_at: float | None = None
        self._trouble = ""
        self._lock = anyio.Lock()

    async def keys_for(self, key_id: str | None) -> IssuerKeys:
        """The issuer's keys, fetched again if `key_id` is not among those that we know.

        Raises:
            IssuerUnavailable: there is no way to know them.
        """
        if self._is_enough(key_id):
            return self._kept()
        async with self._lock:
            # Another request may have fetched them while this one waited.
            if not self._is_enough(key_id):
                await self._fetch()
        return self._kept()

    def _is_enough(self, key_id: str | None) -> bool:
        now = self._clock.monotonic()
        if self._tried_at is not None and now - self._tried_at < PAUSE_SECONDS:
            return True
        is_fresh = self._known is not None and now - self._fetched_at < FRESH_SECONDS
        return is_fresh and self._known is not None and self._known.find(key_id) is not None

    def _kept(self) -> IssuerKeys:
        if self._known is None or self._clock.monotonic() - self._fetched_at > STALE_SECONDS:
            raise IssuerUnavailable(self._url, self._trouble)
        return self._known

    async def _fetch(self) -> None:
        self._tried_at = self._clock.monotonic()
        try:
            async with httpx2.AsyncClient(timeout=TIMEOUT_SECONDS) as http:
                metadata = await self._metadata(http)
                self._known = IssuerKeys(metadata["issuer"], _keys(await _json(http, metadata["jwks_uri"])))
            self._fetched_at = self._clock.monotonic()
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            self._trouble = f"it cannot be reached ({type(error).__name__})"
        except ValueError as error:
            self._trouble = str(error)
        else:
            return
        log.warning("issuer_unavailable", issuer=self._url, reason=self._trouble)

    async def _metadata(self, http: httpx2.AsyncClient) -> JsonObject:
        for url in build_oauth_authorization_server_metadata_discovery_urls(self._url, self._url):
            response = await http.get(url)
            if response.status_code == 200:
                metadata = response.json()
                if not isinstance(metadata, dict) or not issuers_match(str(metadata.get("issuer")), self._url):
                    raise ValueError("its metadata is that of another issuer")
                if not is_confidential(str(metadata.get("jwks_uri", ""))):
                    raise ValueError("its metadata has no jwks_uri with https")
                return metadata
        raise ValueError("it publishes no metadata")


def is_confidential(url: str) -> bool:
    """Whether nobody on the way can change what comes from there."""
    parts = urlsplit(url)
    return bool(parts.hostname) and (
        parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    )


async def _json(http: httpx2.AsyncClient, url: str) -> JsonObject:
    response = await http.get(url)
    if response.status_code != 200:
        raise ValueError(f"its keys cannot be had (HTTP {response.status_code})")
    found = response.json()
    if not isinstance(found, dict):
        raise ValueError("its keys are no keys")
    return found


def _keys(document: JsonObject) -> dict[str | None, SigningKey]:
    keys: dict[str | None, SigningKey] = {}
    found = document.get("keys")
    for entry in found if isinstance(found, list) else []:
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
            continue
        try:
            key = jwt.PyJWK(entry)
        except jwt.PyJWTError:
            # Of a kind that we do not know; another one may do.
            continue
        # A key may say what it is for, and then is for nothing else.
        family = ALGORITHMS.get(entry["kty"], ())
        if fitting := tuple(name for name in family if entry.get("alg") in (None, name)):
            keys[key.key_id] = SigningKey(key.key, fitting)
    if not keys:
        raise ValueError("its keys are of no kind that we know")
    return keys
