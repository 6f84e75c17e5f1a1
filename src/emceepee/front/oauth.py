"""Letting clients in with the access tokens of an OAuth issuer; the hub is the resource server.

A client that has none is told where to learn how to get one: at the hub's protected resource metadata (RFC 9728), which
names the issuer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from mcp.server.auth.provider import AccessToken, principal_components
from mcp.server.auth.routes import build_resource_metadata_url
from mcp.shared.auth import ProtectedResourceMetadata
from mcp_types import INTERNAL_ERROR
from starlette.types import Scope
from structlog import get_logger

from emceepee.clock import Clock
from emceepee.config import OAuthSettings
from emceepee.errors import PeerError, SettingsError
from emceepee.front.credentials import bearer_token, unauthorized
from emceepee.front.issuer import Issuer, IssuerUnavailable, is_confidential
from emceepee.front.refusals import Refused
from emceepee.front.verifying import BadToken, IntrospectingVerifier, SignatureVerifier, Verifier

__all__ = ["OAuthGate", "oauth_gate"]

JsonObject: TypeAlias = dict[str, Any]
log = get_logger(__name__)

WELL_KNOWN = "/.well-known/oauth-protected-resource"


class OAuthGate:
    def __init__(self, verifier: Verifier, metadata: ProtectedResourceMetadata) -> None:
        self._verifier = verifier
        self._scopes = metadata.scopes_supported or []
        self._metadata_url = str(build_resource_metadata_url(metadata.resource))
        document = metadata.model_dump(mode="json", exclude_none=True)
        paths = (WELL_KNOWN, f"{WELL_KNOWN}/mcp", urlsplit(self._metadata_url).path)
        self.documents: Mapping[str, JsonObject] = dict.fromkeys(paths, document)

    async def principal_of(self, scope: Scope) -> str:
        token = bearer_token(scope)
        if token is None:
            raise self._refusal("this hub wants an access token of its issuer, as Authorization: Bearer TOKEN")
        try:
            access = await self._verifier.verify(token)
        except BadToken as error:
            log.warning("token_refused", client=(scope.get("client") or ("",))[0], reason=error.reason)
            raise self._refusal(f"the token is wrong: {error.reason}", error="invalid_token") from None
        except IssuerUnavailable as error:
            text = f"Nobody can say whether the token is good: {error.reason}; try again later"
            raise Refused(503, PeerError(INTERNAL_ERROR, text), ((b"retry-after", b"10"),)) from None
        if missing := [name for name in self._scopes if name not in access.scopes]:
            text = f"the token lacks the scope {' '.join(missing)}"
            raise self._refusal(text, error="insufficient_scope", scope=" ".join(self._scopes))
        return _principal(access)

    def _refusal(self, text: str, **challenge: str) -> Refused:
        return unauthorized(f"Unauthorized: {text}", **challenge, resource_metadata=self._metadata_url)


def _principal(access: AccessToken) -> str:
    """A subject is a user, whatever client it uses; a token without one stands for the client itself."""
    client, issuer, subject = principal_components(access)
    return f"oauth:{issuer} client:{client}" if subject is None else f"oauth:{issuer} sub:{subject}"


def oauth_gate(settings: OAuthSettings, own_url: str, clock: Clock) -> OAuthGate:
    """`own_url` is where we listen, for settings that do not say how clients know us.

    Raises:
        SettingsError: the settings are no good together.
    """
    if not is_confidential(settings.issuer):
        raise SettingsError("oauth_issuer", "expected a URL with https://, or one of this machine")
    if settings.introspection_url and not is_confidential(settings.introspection_url):
        raise SettingsError("oauth_introspection_url", "expected a URL with https://, or one of this machine")
    resource = settings.resource or own_url
    if not resource:
        raise SettingsError("oauth_resource", "expected the URL of this hub as clients know it, which tokens are for")
    # From texts: clients compare issuers to the letter, and a parsed URL may gain a slash.
    metadata = ProtectedResourceMetadata.model_validate(
        {
            "resource": resource,
            "authorization_servers": [settings.issuer],
            "scopes_supported": list(settings.scopes) or None,
            "resource_name": "emceepee",
        }
    )
    audiences = [settings.audience] if settings.audience else [resource.rstrip("/"), resource.rstrip("/") + "/"]
    verifier: Verifier = (
        IntrospectingVerifier(settings, audiences, clock)
        if settings.introspection_url
        else SignatureVerifier(Issuer(settings.issuer, clock), audiences)
    )
    return OAuthGate(verifier, metadata)
