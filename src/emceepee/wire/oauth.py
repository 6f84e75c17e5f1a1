"""Authorisation at servers that want OAuth: which token goes with a request, and where a new one comes from.

The flows are the SDK's: discovery, registration, authorisation code with PKCE, client credentials, refresh. Its
provider is not used as the `httpx2.Auth` that it is: it holds back each request until the server has answered the one
before, forgets over a restart when tokens expire and where to refresh them, and would have every link of a hub refresh
for itself. So `ServerAuth` sends requests with the token that there is, and has the provider's flow run beside them,
once for all, when a new one is needed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

import anyio
import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.auth.utils import extract_resource_metadata_from_www_auth
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from emceepee.clock import Clock, SystemClock
from emceepee.wire.http_client import CONNECT_TIMEOUT, NotAuthorized, tls
from emceepee.wire.token_file import Grant, MemoryGrants, TokenFile

__all__ = ["Consent", "OAuthOptions", "Redirect", "ServerAuth"]

Flow: TypeAlias = AsyncGenerator[httpx2.Request, httpx2.Response]

MARGIN_SECONDS = 10.0
"""A token that expires sooner than this is refreshed before it is used."""

NOWHERE = "http://127.0.0.1/callback"
"""The redirect URI of a client that cannot ask anybody; it is never used."""


@dataclass(frozen=True, slots=True)
class OAuthOptions:
    """What is arranged with the issuer beforehand; without anything we register ourselves."""

    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scopes: tuple[str, ...] = ()
    """Those to ask for, instead of what the server says."""
    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    issuer: str | None = None
    """Whose client we are: the secret goes nowhere else."""


@dataclass(frozen=True, slots=True)
class Redirect:
    """What the user's browser brought back from the issuer."""

    code: str
    state: str | None = None
    issuer: str | None = None


class Consent(Protocol):
    """A way to ask the user."""

    @property
    def redirect_uri(self) -> str: ...

    async def ask(self, url: str) -> None:
        """Have the user open `url`, where the issuer asks."""
        ...

    async def answer(self) -> Redirect:
        """
        Raises:
            NotAuthorized: the user said no.
        """
        ...


class ServerAuth(httpx2.Auth):
    """For the server `name` at `url`; one for all connections to it. Without a `consent` nobody can be asked."""

    def __init__(
        self,
        name: str,
        url: str,
        grants: TokenFile,
        options: OAuthOptions | None = None,
        consent: Consent | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._name = name
        self._url = url
        self._options = options or OAuthOptions()
        self._consent = consent
        self._clock = clock or SystemClock()
        self._is_unattended = self._options.grant == "client_credentials"
        self._grants: TokenFile | MemoryGrants = MemoryGrants() if self._is_unattended else grants
        self._lock = anyio.Lock()

    async def async_auth_flow(self, request: httpx2.Request) -> Flow:
        token = await self._current(request)
        if token is not None:
            request.headers["authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code == 401:
            token = await self._renewed(token, request, response)
            request.headers["authorization"] = f"Bearer {token}"
            yield request

    async def _current(self, request: httpx2.Request) -> str | None:
        if self._consent is not None:
            # Whoever is asked again wants what comes of it, and not what there was.
            return None
        grant = self._grants.read()
        is_over = grant.expires_at is not None and self._clock.now() > grant.expires_at - MARGIN_SECONDS
        if is_over and grant.can_refresh:
            return await self._renewed(grant.access_token, request, None)
        return grant.access_token

    async def _renewed(self, stale: str | None, request: httpx2.Request, response: httpx2.Response | None) -> str:
        """A token in place of `stale`, which is none any more: `response` says so, or it has expired.

        Raises:
            NotAuthorized: there is none to be had.
        """
        # While the user is asked, others go on with what they have.
        is_refresh = self._consent is None and self._grants.read().can_refresh
        async with self._lock, self._grants.alone() if is_refresh else nullcontext():
            grant = self._grants.read()
            if self._consent is None and grant.access_token not in (None, stale):
                # Another link or process has it already, or `emceepee login` was run.
                return str(grant.access_token)
            try:
                # Not to be left half-way: a new refresh token that is not written down is lost, and the old one void.
                with anyio.CancelScope(shield=self._consent is None):
                    self._grants.write(await self._run_flow(grant, request, response))
            except OAuthFlowError as error:
                raise self._not_authorized(_reason(error)) from None
            return str(self._grants.read().access_token)

    async def _run_flow(self, grant: Grant, request: httpx2.Request, response: httpx2.Response | None) -> Grant:
        probe = httpx2.Request(request.method, request.url, headers=_version_of(request))
        provider = await self._provider(grant)
        context = provider.context
        async with (
            httpx2.AsyncClient(timeout=CONNECT_TIMEOUT, verify=tls()) as http,
            aclosing(provider.async_auth_flow(probe)) as flow,
        ):
            outgoing = await anext(flow)
            while outgoing is not probe or not context.is_token_valid():
                if outgoing is not probe:
                    reply = await http.send(outgoing)
                    if context.current_tokens is not None and reply.status_code in (400, 401, 403):
                        # A refresh that was refused for good, and not one that failed for today.
                        self._grants.write(grant.model_copy(update={"tokens": None}))
                elif response is None or (self._consent is None and not self._is_unattended):
                    raise self._not_authorized()
                else:
                    reply = self._challenge(response, probe)
                outgoing = await flow.asend(reply)
        tokens = context.current_tokens
        lifetime = None if tokens is None else tokens.expires_in
        return Grant(
            tokens=tokens,
            expires_at=None if lifetime is None else self._clock.now() + lifetime,
            client=context.client_info,
            issuer=context.oauth_metadata,
            resource=context.protected_resource_metadata,
        )

    async def _provider(self, grant: Grant) -> OAuthClientProvider:
        """The SDK's provider, with what we know from before."""
        if self._is_unattended:
            return self._machines_provider()
        provider = self._users_provider(grant)
        await provider._initialize()
        context = provider.context
        context.oauth_metadata = grant.issuer
        context.protected_resource_metadata = grant.resource
        if grant.resource is not None:
            context.auth_server_url = str(grant.resource.authorization_servers[0])
        if self._consent is not None:
            context.clear_tokens()
            redirects = [] if context.client_info is None else context.client_info.redirect_uris or []
            if self._redirect_uri not in redirects and self._options.client_id is None:
                context.client_info = None
        elif context.current_tokens is not None:
            # Whatever it says of itself, it was refused or is about to be: refresh it.
            context.token_expiry_time = 1.0
        return provider

    def _machines_provider(self) -> OAuthClientProvider:
        """For client credentials, which need nothing from before."""
        return ClientCredentialsOAuthProvider(
            self._url,
            _Unstored(Grant()),
            client_id=self._options.client_id or "",
            client_secret=self._options.client_secret or "",
            scope=self._scope,
            issuer=self._options.issuer,
        )

    def _users_provider(self, grant: Grant) -> OAuthClientProvider:
        """For a user's consent, as the client that we were arranged or registered to be."""
        options, storage = self._options, _Unstored(grant)
        redirect_uris = [self._redirect_uri]
        if options.client_id is not None:
            storage.client = OAuthClientInformationFull(
                redirect_uris=redirect_uris,
                client_id=options.client_id,
                client_secret=options.client_secret,
                token_endpoint_auth_method="none" if options.client_secret is None else "client_secret_basic",
                issuer=options.issuer,
            )
        metadata = OAuthClientMetadata(redirect_uris=redirect_uris, client_name="emceepee", scope=self._scope)
        return OAuthClientProvider(self._url, metadata, storage, self._ask, self._answer)

    @property
    def _scope(self) -> str | None:
        return " ".join(self._options.scopes) or None

    @property
    def _redirect_uri(self) -> AnyUrl:
        return AnyUrl(NOWHERE if self._consent is None else self._consent.redirect_uri)

    def _challenge(self, response: httpx2.Response, probe: httpx2.Request) -> httpx2.Response:
        """The server's refusal as the provider is to see it: with our scopes, if we have any."""
        if not self._options.scopes:
            return response
        place = extract_resource_metadata_from_www_auth(response)
        challenge = f'Bearer scope="{" ".join(self._options.scopes)}"'
        challenge += f', resource_metadata="{place}"' if place else ""
        return httpx2.Response(401, headers={"www-authenticate": challenge}, request=probe)

    async def _ask(self, url: str) -> None:
        if self._consent is None:
            raise self._not_authorized()
        await self._consent.ask(url)

    async def _answer(self) -> AuthorizationCodeResult:
        if self._consent is None:
            raise self._not_authorized()
        found = await self._consent.answer()
        return AuthorizationCodeResult(code=found.code, state=found.state, iss=found.issuer)

    def _not_authorized(self, reason: str | None = None) -> NotAuthorized:
        if reason is not None:
            return NotAuthorized(f"authorisation failed: {reason}")
        remedy = f"run `emceepee login {self._name}`, or give it an Authorization header"
        return NotAuthorized(f"it needs authorisation: {remedy}")


class _Unstored:
    """The storage of the provider: what it has to say is taken from its context when it is done."""

    def __init__(self, grant: Grant) -> None:
        self._tokens = grant.tokens
        self.client = grant.client

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        return

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        return


def _version_of(request: httpx2.Request) -> dict[str, str]:
    version = request.headers.get("mcp-protocol-version")
    return {} if version is None else {"mcp-protocol-version": version}


def _reason(error: OAuthFlowError) -> str:
    """What went wrong, and nothing that an issuer sent along: it may be half a token."""
    if isinstance(error, OAuthRegistrationError):
        return "the issuer did not register us; give the server's entry an oauth.client_id"
    text = str(error)
    if text.startswith(("Protected resource", "No ", "Authorization server")):
        return text
    status = text.partition(":")[0] if text.startswith("Token exchange failed") else ""
    return f"the issuer gave no token ({status})" if status else "the issuer gave no token"
