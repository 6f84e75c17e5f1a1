"""An OAuth issuer as small as one can be: it publishes its keys, signs what it is told to, and answers about tokens."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.auth.web import listening, served

__all__ = ["CLIENT_ID", "CLIENT_SECRET", "TestIssuer", "running_issuer"]

CLIENT_ID, CLIENT_SECRET = "the-hub", "introspection-secret-8d1f"

JsonObject = dict[str, Any]


class TestIssuer:
    __test__ = False

    def __init__(self, url: str) -> None:
        self.url = url
        self.is_down = False
        self.fetches = 0
        self.questions = 0
        self.active: dict[str, JsonObject] = {}
        """What is told about tokens that are asked about."""
        self.new_key("first")

    def new_key(self, key_id: str) -> None:
        """Sign with another key from now on, and publish that one alone."""
        self.key_id = key_id
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key()))
        self.published: list[JsonObject] = [{**public, "kid": key_id, "use": "sig"}]

    def token(self, audience: str, subject: str | None = "alice", **claims: Any) -> str:
        now = int(time.time())
        said = {"iss": self.url, "aud": audience, "iat": now, "exp": now + 600, **claims}
        if subject is not None:
            said["sub"] = subject
        return jwt.encode(said, self._key, algorithm="ES256", headers={"kid": self.key_id})

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/oauth-authorization-server", self._metadata),
                Route("/keys", self._keys),
                Route("/introspect", self._introspect, methods=["POST"]),
            ]
        )

    async def _metadata(self, _request: Request) -> JSONResponse:
        if self.is_down:
            return JSONResponse({}, 503)
        endpoints = {"authorization_endpoint": f"{self.url}/authorize", "token_endpoint": f"{self.url}/token"}
        return JSONResponse({"issuer": self.url, "jwks_uri": f"{self.url}/keys", **endpoints})

    async def _keys(self, _request: Request) -> JSONResponse:
        self.fetches += 1
        return JSONResponse({"keys": self.published})

    async def _introspect(self, request: Request) -> JSONResponse:
        self.questions += 1
        if self.is_down or "authorization" not in request.headers:
            return JSONResponse({}, 503 if self.is_down else 401)
        form = await request.form()
        return JSONResponse(self.active.get(str(form["token"]), {"active": False}))


@contextmanager
def running_issuer() -> Iterator[TestIssuer]:
    with listening() as (listener, url):
        issuer = TestIssuer(url)
        with served(issuer.app(), listener):
            yield issuer
