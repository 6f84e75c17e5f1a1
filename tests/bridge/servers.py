"""The servers behind the hub: programs on the SDKs of others, each over stdio and over HTTP."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias

from emceepee.config import ServerConfig
from tests.peers.locate import program
from tests.process.hub_process import started

__all__ = ["SERVERS", "TRANSPORTS", "ServerName", "ServerProgram", "Transport", "configured", "server_name"]

ServerName: TypeAlias = Literal["python", "npm", "rounds", "fastmcp"]
Transport: TypeAlias = Literal["stdio", "HTTP"]

TRANSPORTS: tuple[Transport, ...] = ("stdio", "HTTP")


@dataclass(frozen=True, slots=True)
class ServerProgram:
    file: str
    about: str
    era: Literal["auto", "modern"] = "auto"
    """Those that know both eras are to be met in the modern one, whoever the client is."""


SERVERS: dict[ServerName, ServerProgram] = {
    "python": ServerProgram("tasks_server.py", "pip `mcp` 1.30 with its experimental tasks"),
    "npm": ServerProgram("tasks_server.mjs", "npm `@modelcontextprotocol/sdk` 1.x with its experimental tasks"),
    "rounds": ServerProgram("rounds_server.py", "pip `mcp` 2.3", "modern"),
    "fastmcp": ServerProgram("extension_server.py", "`fastmcp[tasks]` 4.1", "modern"),
}


def server_name(server: ServerName, transport: Transport) -> str:
    """What the hub calls it."""
    return f"{server}-{transport.lower()}"


@contextmanager
def configured() -> Iterator[list[ServerConfig]]:
    """The servers as a hub is told of them; those that speak HTTP run while the body does."""
    with ExitStack() as stack:
        commands = {server: program(about.file) for server, about in SERVERS.items()}
        # All are started before the first is waited for.
        running = {
            server: stack.enter_context(started([*command, "http"], _environment()))
            for server, command in commands.items()
        }
        yield [
            *(_over_http(server, running[server].wait_for_line("listening at").split()[-1]) for server in SERVERS),
            *(_over_stdio(server, command) for server, command in commands.items()),
        ]


def _over_http(server: ServerName, url: str) -> ServerConfig:
    return ServerConfig(name=server_name(server, "HTTP"), url=url, transport="http", era=SERVERS[server].era)


def _over_stdio(server: ServerName, command: list[str]) -> ServerConfig:
    return ServerConfig(
        name=server_name(server, "stdio"),
        command=command[0],
        args=(*command[1:], "stdio"),
        env=_environment(),
        era=SERVERS[server].era,
    )


def _environment() -> dict[str, str]:
    """The SDKs warn that their tasks are experimental; we know."""
    return {"PYTHONWARNINGS": "ignore", "PATH": os.environ["PATH"]}
