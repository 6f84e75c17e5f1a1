"""The flags and arguments of each command."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from emceepee import __version__
from emceepee.cli.flags import add_flags
from emceepee.config.problems import nearest
from emceepee.config.settings import LOGGING, SERVE_ONLY, SETTING_NAMES
from emceepee.config.sources import DEFAULT_FILE

__all__ = ["parsed"]


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The arguments, or an end with status 2 and what is wrong with them."""
    options, strangers = _parser().parse_known_args(arguments)
    if strangers:
        command: argparse.ArgumentParser = options.parser
        command.error(f"unrecognized arguments: {' '.join(strangers)}{_meant(strangers, command)}")
    return options


def _meant(strangers: Sequence[str], command: argparse.ArgumentParser) -> str:
    known = [flag for action in command._actions for flag in action.option_strings]
    guesses = [nearest(word.partition("=")[0], known) for word in strangers if word.startswith("--")]
    meant = [guess for guess in guesses if guess is not None]
    return f" (did you mean {', '.join(meant)}?)" if meant else ""


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
    serve.usage = "emceepee serve [--config FILE] [--demo] [flags]"
    add_flags(serve, SETTING_NAMES)
    serve.set_defaults(parser=serve)


def _add_stdio(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    stdio = _add_hub_command(commands, "stdio", "serve one client over stdin and stdout")
    stdio.usage = "emceepee stdio [--config FILE] [--server NAME | --all] [flags]"
    what = stdio.add_mutually_exclusive_group()
    what.add_argument("--server", metavar="NAME", help="be this one server as it is, and not the hub's own tools")
    what.add_argument(
        "--all", action="store_true", help="be all servers in one, with their names before those of their tools"
    )
    stdio.add_argument(
        "--workspace", metavar="NAME", help="whose state clients of 2026-07-28 use unless they say; default: default"
    )
    add_flags(stdio, [name for name in SETTING_NAMES if name not in SERVE_ONLY])
    stdio.set_defaults(parser=stdio)


def _add_hub_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog="Every setting has a flag, a variable and a key of the file: --task-ttl-ms 5000, "
        "EMCEEPEE_TASK_TTL_MS=5000, task_ttl_ms = 5000. A flag counts more than the environment, and the environment "
        "more than the file, which EMCEEPEE_CONFIG may name as well.",
        allow_abbrev=False,
    )
    where = "default: none" if name == "stdio" else f"default: {DEFAULT_FILE}, if it is there"
    command.add_argument(
        "--config",
        metavar="FILE",
        help=f"settings and servers, as TOML or as the mcpServers JSON of any client; {where}",
    )
    return command


def _add_login(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    login = _add_hub_command(commands, "login", "authorise the hub to use a server that wants OAuth")
    login.add_argument("server", metavar="NAME", help="the name of a server of the configuration, or a URL")
    login.add_argument("--port", metavar="N", type=int, help="the loopback port that the browser comes back to")
    login.add_argument("--no-browser", action="store_true", help="only print the page that has to be opened")
    logout = _add_hub_command(commands, "logout", "forget the authorisation to use a server")
    logout.add_argument("server", metavar="NAME", help="the name of a server of the configuration, or a URL")
    for command in (login, logout):
        add_flags(command, ("data", *LOGGING))
        command.set_defaults(parser=command)


def _add_demo_server(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    demo = commands.add_parser(
        "demo-server", help="run the demo MCP server, on stdio or with --port over HTTP", allow_abbrev=False
    )
    add_flags(demo, ("host",))
    demo.add_argument("--port", metavar="N", help="serve Streamable HTTP on this port; 0 picks a free one")
    add_flags(demo, LOGGING)
    demo.set_defaults(parser=demo)
