"""`emceepee login` and `logout`: getting and giving up the authorisation to use a server, with the user at hand."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import httpx2
from pydantic import ValidationError

from emceepee.cli.callback import BrowserConsent, browser_consent
from emceepee.client import ClientOptions, Http, NotAuthorized, TokenFile, connect
from emceepee.config import Configuration, ServerConfig, fitting_name
from emceepee.errors import ConnectFailed, EmceepeeError, SettingsError
from emceepee.hub import Authorizations

__all__ = ["LoginFailed", "login", "logout"]

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "emceepee", "version": "0"}},
}
"""Any request would do: what matters is that the server refuses it."""


class LoginFailed(EmceepeeError):
    def __init__(self, server: str, reason: str) -> None:
        self.server = server
        self.reason = reason
        super().__init__(f"{server}: {reason}")


def login(configuration: Configuration, directory: Path, server: str, *, port: int | None, opens_browser: bool) -> int:
    """Have the user authorise us to use `server`, a name or a URL, and keep what comes of it."""
    config = _server(configuration, server)
    authorizations = Authorizations(directory)
    anyio.run(_login, config, authorizations, port, opens_browser)
    return 0


def logout(configuration: Configuration, directory: Path, server: str) -> int:
    config = _server(configuration, server)
    had = Authorizations(directory).file(config).forget()
    print(f"{config.name}: {'forgotten' if had else 'there was nothing to forget'}", file=sys.stderr)
    return 0


def _server(configuration: Configuration, server: str) -> ServerConfig:
    found = next((config for config in configuration.servers if config.name == server), None)
    if found is None and "://" in server:
        try:
            found = ServerConfig(name=fitting_name(urlsplit(server).netloc.rpartition("@")[2]) or "server", url=server)
        except ValidationError:
            found = None
    if found is None:
        known = ", ".join(config.name for config in configuration.servers) or "none"
        raise SettingsError(
            "SERVER", f"there is no server {server!r} in the configuration, which has {known}; or give the URL of one"
        )
    if found.url is None:
        raise SettingsError("login", f"{server} is a program, which needs no authorisation")
    if found.oauth is not None and found.oauth.grant == "client_credentials":
        raise SettingsError("login", f"{server} has credentials of its own, and nobody has to be asked")
    return found


async def _login(config: ServerConfig, authorizations: Authorizations, port: int | None, opens_browser: bool) -> None:
    url = config.url or ""
    async with AsyncExitStack() as stack:
        consent = await _consent(stack, config, authorizations.file(config), port, opens_browser)
        auth = authorizations.auth(config, consent)
        headers = {**config.headers, "accept": "application/json, text/event-stream"}
        try:
            async with (
                httpx2.AsyncClient(auth=auth, timeout=30.0) as http,
                http.stream("POST", url, json=INITIALIZE, headers=headers) as response,
            ):
                status = response.status_code
        except NotAuthorized as error:
            raise LoginFailed(config.name, str(error)) from None
        except httpx2.HTTPError as error:
            raise LoginFailed(config.name, f"cannot be reached ({type(error).__name__}: {error})") from None
    if authorizations.file(config).read().access_token is None:
        text = "it answers without any authorisation" if status < 400 else f"it answers with HTTP {status}"
        raise LoginFailed(config.name, text)
    try:
        target = Http(url, config.headers, auth=authorizations.auth(config))
        async with connect(target, options=ClientOptions(era=config.era)) as server:
            name = server.server_info.get("name", "a server without a name")
    except ConnectFailed as error:
        raise LoginFailed(config.name, f"it is authorised, but {error}") from None
    print(f"emceepee may use {config.name} now ({name}).", file=sys.stderr)


async def _consent(
    stack: AsyncExitStack, config: ServerConfig, file: TokenFile, port: int | None, opens_browser: bool
) -> BrowserConsent:
    """On the port that was asked for or arranged, else on that of the last time, for which we are registered."""
    wanted = port or (config.oauth.callback_port if config.oauth is not None else None)
    for candidate in [wanted] if wanted else [file.registered_port, 0]:
        try:
            return await stack.enter_async_context(browser_consent(config.name, candidate, opens_browser=opens_browser))
        except SettingsError:
            if wanted or candidate == 0:
                raise
    raise AssertionError("a free port is always tried last")
