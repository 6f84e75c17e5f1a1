"""A hub with all servers behind it, all clients connected to it, and every cell of the table tried at the same time.

Only calls of one session to one server wait for each other: over stdio nobody could tell whose question it is that such
a server asks.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.abc

from emceepee.concurrency import task_group
from emceepee.config import HttpSettings, HubSettings, Patience, ServerConfig
from emceepee.errors import EmceepeeError
from emceepee.front.serving import bind, serve_http
from emceepee.hub import Hub, Session
from tests.bridge.attempts import ENDPOINTS, Attempt, Cell, Endpoint, connection_of
from tests.bridge.cases import CASES
from tests.bridge.clients import ROLES, ProgramName, Role
from tests.bridge.programs import ClientProgram, LibraryProgram, LineProgram, SdkProgram
from tests.bridge.servers import TRANSPORTS, configured
from tests.peers.drive import LineClient
from tests.peers.locate import program

__all__ = ["CELLS", "Outcome", "tried"]

Outcome: TypeAlias = str | BaseException
"""How a call got its result, or why it did not."""

PATIENCE_MS = 600_000
"""What a client with the tasks extension waits before its call is a task: the plain calls are done by then."""

IMPATIENCE_MS = 300
"""The same once only those calls are left that are to become tasks by it."""

KEEPALIVE_S = 5.0
"""The silence after which a waiting client hears that we are still there: long after a call may have become a task."""

LIMIT_S = 180.0
"""For one call; only a hang meets this."""

CALLS_AT_ONCE = 12
"""Beside those that take long: more would only make each of them slower."""

OPENED_AT_ONCE = 2
"""Connections behind which programs start: more would only make each of them slower."""

OPENING_TRIES = 5
"""Clients have timeouts of their own, and on a busy machine the slowest server takes its time to start."""

PIPED: tuple[ProgramName, ...] = ("python", "sdk", "fastmcp")
"""The programs that start a hub of their own."""

STDIO = [sys.executable, "-m", "emceepee.cli", "stdio", "--config"]


def _is_tried(cell: Cell) -> bool:
    # Through a pipe there is one hub for each client, and its servers over stdio would be as many programs again.
    return cell.role.tries(cell.case, cell.transport) and (
        cell.endpoint != "emceepee stdio" or (cell.transport == "HTTP" and cell.role.program in PIPED)
    )


def _is_task_by_timeout(cell: Cell) -> bool:
    """Whether the settings decide when the call becomes a task, and neither the client nor an argument."""
    return cell.case.takes_long and cell.is_transparent and cell.role.kind == "modern with tasks"


CELLS: list[Cell] = [
    cell for cell in (Cell(*one) for one in product(ROLES, CASES, TRANSPORTS, ENDPOINTS)) if _is_tried(cell)
]


async def tried(folder: Path) -> Mapping[Cell, Outcome]:
    """What became of every cell."""
    with configured() as configs:
        async with _hub(configs) as (hub, url), _programs() as programs:
            await _Opening(hub, url, programs, _config_file(folder, configs)).run()
            run = _Run(programs)
            await run.of([cell for cell in CELLS if not _is_task_by_timeout(cell)])
            for session in hub.sessions.values():
                session.settings = replace(session.settings, default_timeout_ms=IMPATIENCE_MS)
            return await run.of([cell for cell in CELLS if _is_task_by_timeout(cell)])


@asynccontextmanager
async def _hub(configs: Iterable[ServerConfig]) -> AsyncIterator[tuple[Hub, str]]:
    hub = Hub(configs, settings=HubSettings(default_timeout_ms=PATIENCE_MS))
    settings = HttpSettings(port=0, patience=Patience(keepalive=KEEPALIVE_S))
    with bind(settings) as listener:
        listener.listen()
        stop = anyio.Event()
        async with task_group() as tasks:
            await tasks.start(hub.run)
            await tasks.start(serve_http, hub, settings, listener, stop)
            try:
                yield hub, f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
            finally:
                stop.set()
                hub.close()


@asynccontextmanager
async def _programs() -> AsyncIterator[Mapping[ProgramName, ClientProgram]]:
    files: Mapping[ProgramName, str] = {
        "python": "bridge_client.py",
        "npm": "bridge_client.mjs",
        "fastmcp": "bridge_extension_client.py",
    }
    async with AsyncExitStack() as stack:
        lines = {name: await stack.enter_async_context(LineClient(program(file))) for name, file in files.items()}
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        yield {
            **{name: LineProgram(client) for name, client in lines.items()},
            "sdk": SdkProgram(tasks),
            "library": LibraryProgram(tasks),
        }


def _config_file(folder: Path, configs: Iterable[ServerConfig]) -> Path:
    """The servers that speak HTTP, for hubs that clients start by themselves."""
    servers = {config.name: {"url": config.url, "era": config.era} for config in configs if config.url is not None}
    path = folder / "servers.json"
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return path


class _Opening:
    """Opens every connection, and waits until the servers behind it have started."""

    def __init__(self, hub: Hub, url: str, programs: Mapping[ProgramName, ClientProgram], config: Path) -> None:
        self._hub = hub
        self._url = url
        self._programs = programs
        self._config = config
        self._limiter = anyio.CapacityLimiter(OPENED_AT_ONCE)

    async def run(self) -> None:
        wanted = {
            connection_of(cell.role, cell.endpoint, cell.server): (cell.role, self._target(cell)) for cell in CELLS
        }
        # Servers behind the other connections are told what those can answer who have the tools.
        by_tools = {name: opening for name, opening in wanted.items() if name.endswith("/hub")}
        await self._open_all(by_tools)
        await self._open_all({name: opening for name, opening in wanted.items() if name not in by_tools})

    async def _open_all(self, wanted: Mapping[str, tuple[Role, Sequence[str]]]) -> None:
        async with anyio.create_task_group() as tasks:
            for name, (role, target) in wanted.items():
                tasks.start_soon(self._open, name, role, target)

    async def _open(self, name: str, role: Role, target: Sequence[str]) -> None:
        async with self._limiter:
            for tries_left in reversed(range(OPENING_TRIES)):
                try:
                    await self._open_once(name, role, target)
                    return
                except Exception:
                    if not tries_left:
                        raise

    async def _open_once(self, name: str, role: Role, target: Sequence[str]) -> None:
        client = self._programs[role.program]
        await client.open(name, target, asks=bool(role.answers))
        tool, arguments = ("list_tools", {}) if name.endswith(("/hub", "/pipe")) else ("echo", {"text": "hello"})
        await client.call(name, tool, arguments, as_task=False, on_news=None)
        for session in tuple(self._hub.sessions.values()):
            await _all_connected(session)

    def _target(self, cell: Cell) -> list[str]:
        if cell.endpoint == "emceepee stdio":
            return [*STDIO, str(self._config)]
        path = f"/server/{cell.server}" if cell.is_transparent else ""
        return [f"{self._url}{path}"]


async def _all_connected(session: Session) -> None:
    for link in tuple(session.links.values()):
        while link.server is None:
            try:
                await link.connected()
            except EmceepeeError:
                continue


class _Run:
    def __init__(self, programs: Mapping[ProgramName, ClientProgram]) -> None:
        self._programs = programs
        self._limiter = anyio.CapacityLimiter(CALLS_AT_ONCE)
        self._outcomes: dict[Cell, Outcome] = {}

    async def of(self, cells: Sequence[Cell]) -> Mapping[Cell, Outcome]:
        lanes: dict[tuple[str, Endpoint, str], list[tuple[int, Cell]]] = defaultdict(list)
        for cell in cells:
            place = cell.role.connections if cell.is_transparent else cell.role.session
            lanes[place, cell.endpoint, cell.server].append((CELLS.index(cell), cell))
        async with anyio.create_task_group() as tasks:
            for lane in lanes.values():
                tasks.start_soon(self._one_by_one, lane)
        return self._outcomes

    async def _one_by_one(self, lane: Sequence[tuple[int, Cell]]) -> None:
        for number, cell in lane:
            attempt = Attempt(cell, self._programs[cell.role.program], f"word{number}")
            async with nullcontext() if cell.case.takes_long else self._limiter:
                self._outcomes[cell] = await _outcome(attempt)


async def _outcome(attempt: Attempt) -> Outcome:
    try:
        with anyio.fail_after(LIMIT_S):
            return await attempt.run()
    except Exception as error:
        return error
