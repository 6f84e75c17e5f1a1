"""Which servers are reached with the tokens of an authorisation, and where those are kept."""

from __future__ import annotations

from pathlib import Path
from weakref import WeakValueDictionary

from emceepee.client import Consent, OAuthOptions, ServerAuth, Target, TokenFile
from emceepee.config import OAuthConfig, ServerConfig
from emceepee.hub.targets import target_of

__all__ = ["Authorizations"]


class Authorizations:
    """Kept in `directory`. All links to a server share one `ServerAuth`, so that a token is refreshed once for all."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._shared: WeakValueDictionary[tuple[str, str, OAuthConfig | None], ServerAuth] = WeakValueDictionary()

    def target_of(self, config: ServerConfig) -> Target:
        """How to reach a server, with what it needs to let us in."""
        if not config.may_use_oauth:
            return target_of(config)
        key = (config.name, config.url or "", config.oauth)
        auth = self._shared.get(key)
        if auth is None:
            auth = self._shared[key] = self.auth(config)
        return target_of(config, auth)

    def auth(self, config: ServerConfig, consent: Consent | None = None) -> ServerAuth:
        return ServerAuth(config.name, config.url or "", self.file(config), _options(config.oauth), consent)

    def file(self, config: ServerConfig) -> TokenFile:
        return TokenFile(self._directory, config.url or "")


def _options(given: OAuthConfig | None) -> OAuthOptions:
    if given is None:
        return OAuthOptions()
    return OAuthOptions(given.client_id, given.client_secret, given.scopes, given.grant, given.issuer)
