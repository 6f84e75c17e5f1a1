"""An OAuth authorization server on the SDK's own: registration, codes with PKCE, refresh with rotation, and consent at
once, since whoever opens the page agrees. Beside that: client credentials, and answers about its tokens (RFC 7662).
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs

from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from tests.auth.web import listening, served

__all__ = ["MACHINE", "MACHINE_SECRET", "AuthorizationServer", "running_authorization_server"]

MACHINE, MACHINE_SECRET = "machine", "machine-secret-6a3c"
SCOPE = "use"


class AuthorizationServer:
    """Implements the SDK's `OAuthAuthorizationServerProvider`. All secrets that it ever gave are in `given`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.lifetime = 3600
        self.refuses_refreshing = False
        self.refreshes = 0
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.given: list[str] = []

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info
        if client_info.client_secret:
            self.given.append(client_info.client_secret)

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = self._secret()
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [SCOPE],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
            subject="alice",
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._tokens(client.client_id, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return None if self.refuses_refreshing else self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        self.refreshes += 1
        del self.refresh[refresh_token.token]
        return self._tokens(client.client_id, scopes, refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        raise NotImplementedError

    async def exchange_identity_assertion(self, client: Any, params: Any) -> OAuthToken:
        raise NotImplementedError

    def app(self) -> Starlette:
        registration = ClientRegistrationOptions(enabled=True, valid_scopes=[SCOPE], default_scopes=[SCOPE])
        routes = create_auth_routes(self, AnyHttpUrl(self.url), client_registration_options=registration)
        (standard,) = [route for route in routes if route.path == "/token"]

        async def token(request: Request) -> Response:
            body = await request.body()
            form = {key: values[-1] for key, values in parse_qs(body.decode()).items()}
            if form.get("grant_type") != "client_credentials":
                return _Passed(standard, body)
            expected = "Basic " + base64.b64encode(f"{MACHINE}:{MACHINE_SECRET}".encode()).decode()
            if request.headers.get("authorization") != expected:
                return JSONResponse({"error": "invalid_client"}, 401)
            tokens = self._tokens(MACHINE, [SCOPE], form.get("resource"), refreshable=False)
            return JSONResponse(tokens.model_dump(exclude_none=True))

        introspection = Route("/introspect", self._introspect, methods=["POST"])
        return Starlette(routes=[Route("/token", token, methods=["POST"]), introspection, *routes])

    async def _introspect(self, request: Request) -> JSONResponse:
        found = self.access.get(str((await request.form())["token"]))
        if found is None:
            return JSONResponse({"active": False})
        return JSONResponse({"active": True, "client_id": found.client_id, "aud": found.resource, "scope": SCOPE})

    def _tokens(
        self, client_id: str, scopes: list[str], resource: str | None, *, refreshable: bool = True
    ) -> OAuthToken:
        access, refresh = self._secret(), self._secret()
        self.access[access] = AccessToken(token=access, client_id=client_id, scopes=scopes, resource=resource)
        if refreshable:
            self.refresh[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=scopes, resource=resource)
        return OAuthToken(
            access_token=access,
            expires_in=self.lifetime,
            refresh_token=refresh if refreshable else None,
            scope=" ".join(scopes),
        )

    def _secret(self) -> str:
        self.given.append(secrets.token_urlsafe(32))
        return self.given[-1]


class _Passed(Response):
    """Has another route answer a request whose body was read already."""

    def __init__(self, route: Route, body: bytes) -> None:
        super().__init__()
        self._route = route
        self._read = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def again() -> Message:
            return {"type": "http.request", "body": self._read, "more_body": False}

        await self._route.app(scope, again, send)


@contextmanager
def running_authorization_server() -> Iterator[AuthorizationServer]:
    with listening() as (listener, url):
        server = AuthorizationServer(url)
        with served(server.app(), listener):
            yield server
