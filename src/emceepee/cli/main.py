"""Parses the command line and hands over to the command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from structlog import get_logger

from emceepee import __version__
from emceepee.cli import running
from emceepee.cli.flags import add_flags, given_flags
from emceepee.cli.login import login, logout
from emceepee.cli.watching import warn_of_ignored
from emceepee.config import Configuration, Settings, Sources
from emceepee.config.settings import SERVE_ONLY, SETTING_NAMES, merged
from emceepee.config.sources import DEFAULT_FILE, environment_layer, flag_layer, misspelt
from emceepee.demo import run_http, run_stdio
from emceepee.errors import EmceepeeError, SettingsError, exit_code
from emceepee.observe import configure_logging

__all__ = ["main"]

log = get_logger(__name__)

_LOGGING = ("log_level", "log_format")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    try:
        options = _parser().parse_args(arguments)
        status: int = options.run(options)
    except EmceepeeError as error:
        for line in str(error).splitlines():
            print(f"emceepee: {line}", file=sys.stderr)
        return exit_code(error)
    except KeyboardInterrupt as error:
        return exit_code(error)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="emceepee",
        description="A hub between any MCP client and any number of MCP servers.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"emceepee {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    _add_serve(commands)
    _add_stdio(commands)
    _add_login(commands)
    _add_demo_server(commands)
    return parser


def _add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    serve = _add_hub_command(commands, "serve", "serve clients over Streamable HTTP")
    add_flags(serve, SETTING_NAMES)
    serve.set_defaults(run=_serve)


def _add_stdio(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    stdio = _add_hub_command(commands, "stdio", "serve one client over stdin and stdout")
    what = stdio.add_mutually_exclusive_group()
    what.add_argument("--server", metavar="NAME", help="be this one server as it is, and not the hub's own tools")
    what.add_argument(
        "--all", action="store_true", help="be all servers in one, with their names before those of their tools"
    )
    stdio.add_argument(
        "--workspace", metavar="NAME", help="whose state clients of 2026-07-28 use unless they say; default: default"
    )
    add_flags(stdio, [name for name in SETTING_NAMES if name not in SERVE_ONLY])
    stdio.set_defaults(run=_stdio)


def _add_hub_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog="Every flag can also be set as EMCEEPEE_<FLAG>, for example EMCEEPEE_CALL_TIMEOUT_MS=5000, and all but "
        "--config as a key of the file, for example call_timeout_ms = 5000. A flag counts more than the environment, "
        "and the environment more than the file.",
        allow_abbrev=False,
    )
    command.add_argument(
        "--config",
        metavar="FILE",
        help="settings and servers, as TOML or as the mcpServers JSON of any client; its servers are followed while "
        f"running; default for serve: {DEFAULT_FILE}, if it is there",
    )
    return command


def _add_login(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    login = _add_hub_command(commands, "login", "authorise the hub to use a server that wants OAuth")
    login.add_argument("server", metavar="NAME", help="the name of a server of the configuration, or a URL")
    login.add_argument("--port", metavar="N", type=int, help="the loopback port that the browser comes back to")
    login.add_argument("--no-browser", action="store_true", help="only print the page that has to be opened")
    logout = _add_hub_command(commands, "logout", "forget the authorisation to use a server")
    logout.add_argument("server", metavar="NAME", help="the name of a server of the configuration, or a URL")
    for command, run in ((login, _login), (logout, _logout)):
        add_flags(command, ("data", *_LOGGING))
        command.set_defaults(run=run)


def _add_demo_server(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    demo = commands.add_parser(
        "demo-server", help="run the demo MCP server, on stdio or with --port over HTTP", allow_abbrev=False
    )
    add_flags(demo, ("host",))
    demo.add_argument("--port", metavar="N", help="serve Streamable HTTP on this port; 0 picks a free one")
    add_flags(demo, _LOGGING)
    demo.set_defaults(run=_demo_server)


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
    settings = merged([environment_layer(os.environ, _LOGGING), flag_layer(given_flags(options))])
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
    warn_of_ignored(configuration)
    if configuration.path is not None:
        log.info("settings_loaded", file=str(configuration.path), server_count=len(configuration.servers))
    return configuration


def _configure_logging(settings: Settings) -> None:
    configure_logging(settings.log_level, settings.log_format)
