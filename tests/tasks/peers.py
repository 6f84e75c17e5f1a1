"""The programs of others that have tasks, and how to reach each of them over stdio and HTTP.

The programs in `tests/peers/programs` run on somebody else's SDK and share their tools' names; `server-everything` is
somebody else's altogether.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias

from emceepee.client import Http, Stdio
from emceepee.config import ServerConfig
from tests.peers.locate import node_script, program
from tests.process.everything import everything_over_http
from tests.process.hub_process import started

__all__ = ["PEERS", "TRANSPORTS", "Era", "Peer", "PeerName", "Servers", "Transport"]

PeerName: TypeAlias = Literal["python", "npm", "everything", "fastmcp"]
Transport: TypeAlias = Literal["stdio", "HTTP"]
Era: TypeAlias = Literal["2025-11-25", "2026-07-28"]

TRANSPORTS: tuple[Transport, ...] = ("stdio", "HTTP")


@dataclass(frozen=True, slots=True)
class Peer:
    name: PeerName
    letter: str
    """What stands for it in the table."""
    about: str
    era: Era
    command: Callable[[], list[str]]
    """Without the transport; skips the test where the program is not installed."""


PEERS: dict[PeerName, Peer] = {
    peer.name: peer
    for peer in (
        Peer(
            "python",
            "P",
            "a server on pip `mcp` 1.30 with its experimental tasks",
            "2025-11-25",
            lambda: program("tasks_server.py"),
        ),
        Peer(
            "npm",
            "N",
            "a server on npm `@modelcontextprotocol/sdk` 1.x with its experimental tasks",
            "2025-11-25",
            lambda: program("tasks_server.mjs"),
        ),
        Peer(
            "everything",
            "E",
            "npm `@modelcontextprotocol/server-everything` as it is",
            "2025-11-25",
            lambda: node_script("mcp-server-everything"),
        ),
        Peer(
            "fastmcp",
            "F",
            "a server on `fastmcp[tasks]` 4.1, which has the extension `io.modelcontextprotocol/tasks`",
            "2026-07-28",
            lambda: program("extension_server.py"),
        ),
    )
}


class Servers:
    """Peers to connect to; those that speak HTTP are started when they are first asked for, and run until the end."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._urls: dict[PeerName, str] = {}

    def target(self, peer: PeerName, transport: Transport) -> Http | Stdio:
        if transport == "HTTP":
            return Http(self._url(peer), fallback=False)
        command, *args = PEERS[peer].command()
        return Stdio(command, [*args, "stdio"], env=_environment())

    def config(self, peer: PeerName, transport: Transport, name: str) -> ServerConfig:
        """The same for a hub that is to know the peer by `name`."""
        target = self.target(peer, transport)
        if isinstance(target, Http):
            return ServerConfig(name=name, url=target.url, transport="http")
        return ServerConfig(name=name, command=target.command, args=tuple(target.args), env=dict(target.env))

    def _url(self, peer: PeerName) -> str:
        if peer not in self._urls:
            serve = everything_over_http() if peer == "everything" else _serving(PEERS[peer].command())
            self._urls[peer] = self._stack.enter_context(serve)
        return self._urls[peer]


@contextmanager
def _serving(command: list[str]) -> Iterator[str]:
    with started([*command, "http"], _environment()) as server:
        yield server.wait_for_line("listening at").split()[-1]


def _environment() -> dict[str, str]:
    """The SDKs warn that their tasks are experimental; we know."""
    return {"PYTHONWARNINGS": "ignore", "PATH": os.environ["PATH"]}
