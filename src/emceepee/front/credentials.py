"""What a client sends to say who it is, and how it is told that this was not enough."""

from __future__ import annotations

from mcp_types import INVALID_REQUEST
from starlette.datastructures import Headers
from starlette.types import Scope

from emceepee.errors import PeerError
from emceepee.front.refusals import Refused

__all__ = ["bearer_token", "unauthorized"]

LONGEST_TOKEN = 16 * 1024
"""Characters; longer ones are nobody's, and not worth looking at."""


def bearer_token(scope: Scope) -> str | None:
    """The token of the one `Authorization: Bearer` header; None if there is none, or more than one."""
    given = Headers(scope=scope).getlist("authorization")
    if len(given) != 1:
        return None
    scheme, _, token = given[0].partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and 0 < len(token) <= LONGEST_TOKEN else None


def unauthorized(text: str, **challenge: str) -> Refused:
    """A refusal that tells the client what it takes (RFC 6750)."""
    parts = ", ".join(f'{key}="{value}"' for key, value in {"realm": "emceepee", **challenge}.items())
    status = 403 if challenge.get("error") == "insufficient_scope" else 401
    header = (b"www-authenticate", f"Bearer {parts}".encode("latin-1", "replace"))
    return Refused(status, PeerError(INVALID_REQUEST, text), (header,))
