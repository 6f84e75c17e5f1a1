"""Which service stands behind which name."""

from __future__ import annotations

from emceepee.front.combined import AllService
from emceepee.front.hub_service import HubService
from emceepee.front.service import Service
from emceepee.front.transparent import ServerService
from emceepee.hub import Hub

__all__ = ["Services"]

SERVER_PREFIX = "server/"


class Services:
    """The hub's own tools under "", all servers under `all`, and each server under `server/{name}`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._own = HubService(hub)
        self._all = AllService()
        self._servers: dict[str, ServerService] = {}

    def find(self, endpoint: str, principal: str) -> Service | None:
        """The service, if there is one for this principal."""
        if endpoint == "":
            return self._own
        if endpoint == "all":
            return self._all
        name = endpoint.removeprefix(SERVER_PREFIX)
        if name == endpoint or not self._hub.knows_server(name, principal):
            return None
        return self._servers.setdefault(name, ServerService(name))
