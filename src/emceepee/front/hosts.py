"""Whether a request means us: its Host and Origin have to name this hub.

A web page can have its own name resolve to our address and then talk to us from a browser (DNS rebinding); what it
cannot do is send another Host than its own name.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp_types import INVALID_REQUEST
from starlette.datastructures import Headers
from starlette.requests import Request as HttpRequest
from starlette.types import Scope

from emceepee.config import HttpSettings
from emceepee.errors import PeerError
from emceepee.front.refusals import Refused
from emceepee.loopback import is_loopback

__all__ = ["HostCheck"]

_HOST = re.compile(r"(\[[^][@/]*\]|[^][:@/]*)(:[0-9]*)?")
_ORIGIN = re.compile(rf"null|[^:/@]*://{_HOST.pattern}")

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")


class HostCheck:
    """Good names are those of loopback, the address that we were told to bind, `allowed_hosts` and the one that tokens
    are for; on a bind beyond loopback also the machine's own, and the address that the connection came to, as no page
    can have an address for its name."""

    def __init__(self, settings: HttpSettings) -> None:
        self._names = [*LOOPBACK_NAMES, settings.host, *settings.allowed_hosts]
        if settings.access.oauth is not None and settings.access.oauth.resource:
            self._names.append(urlsplit(settings.access.oauth.resource).netloc.lower())
        self._is_open = not is_loopback(settings.host)
        if self._is_open:
            self._names.append(socket.gethostname().lower())
        self._checks: dict[str, TransportSecurityMiddleware] = {}

    async def check(self, scope: Scope) -> None:
        """
        Raises:
            Refused: the request is meant for somebody else, or comes from a page of somebody else.
        """
        _check_form(Headers(scope=scope))
        refused = await self._for(scope).validate_request(HttpRequest(scope), is_post=scope["method"] == "POST")
        if refused is not None:
            reason = bytes(refused.body).decode()
            if refused.status_code == 421:
                reason += ": if clients reach the hub under that name, put it into allowed_hosts"
            raise Refused(refused.status_code, PeerError(INVALID_REQUEST, reason))

    def _for(self, scope: Scope) -> TransportSecurityMiddleware:
        server = scope.get("server")
        address = server[0] if self._is_open and server else ""
        if address not in self._checks:
            self._checks[address] = TransportSecurityMiddleware(_allowing([*self._names, *filter(None, [address])]))
        return self._checks[address]


def _check_form(headers: Headers) -> None:
    """A name and a port, and nothing else: the SDK takes whatever begins with a good name and a colon."""
    if _HOST.fullmatch(headers.get("host", "")) is None:
        raise Refused(421, PeerError(INVALID_REQUEST, "Invalid Host header"))
    if _ORIGIN.fullmatch(headers.get("origin", "null")) is None:
        raise Refused(403, PeerError(INVALID_REQUEST, "Invalid Origin header"))


def _allowing(names: Iterable[str]) -> TransportSecuritySettings:
    hosts = [f"[{name}]" if name.count(":") > 1 and not name.startswith("[") else name for name in names]
    return TransportSecuritySettings(
        allowed_hosts=[pattern for host in hosts for pattern in (host, f"{host}:*")],
        allowed_origins=[
            f"{scheme}://{pattern}" for host in hosts for scheme in ("http", "https") for pattern in (host, f"{host}:*")
        ],
    )
