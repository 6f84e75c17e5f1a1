"""Parses the command line and hands over to the command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from emceepee import __version__
from emceepee.cli import running
from emceepee.config import HttpSettings, ServerConfig, load_servers
from emceepee.demo import run_http, run_stdio
from emceepee.errors import EmceepeeError, SettingsError, exit_code
from emceepee.observe import configure_logging

__all__ = ["main"]

_DEFAULTS = HttpSettings()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    try:
        options = _parser().parse_args(arguments)
        configure_logging(options.log_level, options.log_format)
        status: int = options.run(options)
    except EmceepeeError as error:
        print(f"emceepee: {error}", file=sys.stderr)
        return exit_code(error)
    except KeyboardInterrupt as error:
        return exit_code(error)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="emceepee",
        description="A hub between any MCP client and any number of MCP servers.",
        epilog="Every flag can also be set as EMCEEPEE_<FLAG>, for example EMCEEPEE_PORT=9000.",
    )
    parser.add_argument("--version", action="version", version=f"emceepee {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    _add_serve(commands)
    _add_stdio(commands)
    _add_demo_server(commands)
    return parser


def _add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    serve = commands.add_parser("serve", help="serve clients over Streamable HTTP")
    serve.add_argument("--host", default=_environment("HOST", _DEFAULTS.host), help="default: %(default)s")
    serve.add_argument(
        "--port",
        type=_port,
        default=_environment("PORT", str(_DEFAULTS.port)),
        help="0 picks a free one; default: 8080",
    )
    serve.add_argument(
        "--allow-spawn",
        action="store_true",
        default=_environment_flag("ALLOW_SPAWN"),
        help="let clients start programs with add_server",
    )
    _add_common(serve)
    serve.set_defaults(run=_serve)


def _add_stdio(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    stdio = commands.add_parser("stdio", help="serve one client over stdin and stdout")
    _add_common(stdio)
    stdio.set_defaults(run=_stdio)


def _add_demo_server(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    demo = commands.add_parser("demo-server", help="run the demo MCP server, on stdio or with --port over HTTP")
    demo.add_argument("--host", default="127.0.0.1")
    demo.add_argument("--port", type=_port, default=None, help="serve Streamable HTTP on this port; 0 picks a free one")
    _add_logging(demo)
    demo.set_defaults(run=_demo_server)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        type=Path,
        default=_environment("CONFIG", None),
        metavar="FILE",
        help='the servers, as JSON: {"mcpServers": {"name": {"command": …} or {"url": …}}}',
    )
    parser.add_argument(
        "--demo", action="store_true", default=_environment_flag("DEMO"), help="also register the demo server"
    )
    _add_logging(parser)


def _add_logging(parser: argparse.ArgumentParser) -> None:
    levels, formats = ("debug", "info", "warning", "error"), ("json", "console")
    parser.add_argument("--log-level", choices=levels, default=_environment("LOG_LEVEL", "info"))
    parser.add_argument("--log-format", choices=formats, default=_environment("LOG_FORMAT", "json"))


def _serve(options: argparse.Namespace) -> int:
    settings = HttpSettings(host=options.host, port=options.port, allow_spawn=options.allow_spawn)
    return running.serve(_servers(options), settings)


def _stdio(options: argparse.Namespace) -> int:
    return running.stdio(_servers(options))


def _demo_server(options: argparse.Namespace) -> int:
    if options.port is None:
        run_stdio()
    else:
        run_http(options.host, options.port)
    return 0


def _servers(options: argparse.Namespace) -> list[ServerConfig]:
    servers = [] if options.config is None else load_servers(Path(options.config))
    if options.demo:
        servers.append(ServerConfig(name="demo", command=sys.executable, args=("-m", "emceepee.demo")))
    return servers


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"expected a port number from 0 to 65535, got {text!r}")
    return int(text)


def _environment(name: str, default: str | None) -> str | None:
    return os.environ.get(f"EMCEEPEE_{name}", default)


def _environment_flag(name: str) -> bool:
    word = os.environ.get(f"EMCEEPEE_{name}", "").lower()
    if word not in ("", "0", "1", "true", "false", "yes", "no"):
        raise SettingsError(f"EMCEEPEE_{name}", f"expected true or false, got {word!r}")
    return word in ("1", "true", "yes")
