"""What each command does: reads its settings, and hands over."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping

from structlog import get_logger

from emceepee.cli import running
from emceepee.cli.flags import given_flags
from emceepee.cli.login import login, logout
from emceepee.cli.watching import warn_of_oddities
from emceepee.config import Configuration, Settings, Sources
from emceepee.config.settings import LOGGING, merged
from emceepee.config.sources import environment_layer, flag_layer, misspelt
from emceepee.demo import run_http, run_stdio
from emceepee.errors import SettingsError
from emceepee.observe import configure_logging

__all__ = ["COMMANDS"]

log = get_logger(__name__)


def _serve(options: argparse.Namespace) -> int:
    sources = Sources.of(options.config, os.environ, given_flags(options))
    return running.serve(sources, _configured(sources))


def _stdio(options: argparse.Namespace) -> int:
    # Clients start us in whatever project they work on, whose files must not say what programs we run.
    sources = Sources.of(options.config, os.environ, given_flags(options), look_here=False)
    endpoint = "all" if options.all else "" if options.server is None else f"server/{options.server}"
    return running.stdio(sources, _configured(sources), endpoint=endpoint, workspace=options.workspace)


def _login(options: argparse.Namespace) -> int:
    found = _configured(Sources.of(options.config, os.environ, _flags_of_login(options)))
    directory = running.token_directory(found)
    return login(found, directory, options.server, port=options.port, opens_browser=not options.no_browser)


def _logout(options: argparse.Namespace) -> int:
    found = _configured(Sources.of(options.config, os.environ, _flags_of_login(options)))
    return logout(found, running.token_directory(found), options.server)


def _flags_of_login(options: argparse.Namespace) -> dict[str, str | bool]:
    # Its --port is another one.
    return {name: value for name, value in given_flags(options).items() if name != "port"}


def _demo_server(options: argparse.Namespace) -> int:
    # The variables are those of the hub, which may have started this server: only its logs are alike.
    settings = merged([environment_layer(os.environ, LOGGING), flag_layer(given_flags(options))])
    _configure_logging(settings)
    if options.port is None:
        run_stdio()
    else:
        try:
            run_http(settings.host, settings.port)
        except OSError as error:
            where = f"{settings.host}:{settings.port}"
            raise SettingsError("--port", f"cannot listen on {where} ({error.strerror}); choose another") from None
    return 0


def _configured(sources: Sources) -> Configuration:
    configuration = sources.read()
    _configure_logging(configuration.settings)
    for variable, meant in misspelt(sources.environment).items():
        log.warning("variable_ignored", variable=variable, did_you_mean=meant)
    warn_of_oddities(configuration)
    if missing := configuration.settings.missing_roots:
        log.warning("roots_missing", key=configuration.keys.get("roots"), roots=missing)
    if configuration.path is not None:
        log.info("settings_loaded", file=str(configuration.path), server_count=len(configuration.servers))
    return configuration


def _configure_logging(settings: Settings) -> None:
    configure_logging(settings.log_level, settings.log_format)


COMMANDS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "serve": _serve,
    "stdio": _stdio,
    "login": _login,
    "logout": _logout,
    "demo-server": _demo_server,
}
