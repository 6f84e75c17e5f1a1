"""Runs the hub and a front until a signal, or the client, ends it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from socket import socket

import anyio
import anyio.abc
from platformdirs import user_data_dir
from structlog import get_logger

from emceepee.cli.watching import watching
from emceepee.client.leftovers import end_leftovers
from emceepee.concurrency import task_group
from emceepee.config import Configuration, ServerConfig, Sources
from emceepee.errors import EmceepeeError, SettingsError
from emceepee.front.gate import Gate
from emceepee.front.gates import gate_for
from emceepee.front.serving import bind, serve_http
from emceepee.front.stdio import StdioFront, claimed_stdio
from emceepee.hub import Authorizations, Hub, Telemetry
from emceepee.observe import Metrics
from emceepee.store import MemoryStore, SqliteStore, Store, abandoned_places, claimed_place

__all__ = ["serve", "stdio", "token_directory"]

log = get_logger(__name__)

MEMORY = ":memory:"
"""In place of a data directory: keep nothing."""

SHUTDOWN_SECONDS = 4.0
"""A graceful end takes at most 5 seconds, whatever the servers do."""

ASKED_TO_END = (signal.SIGINT, signal.SIGTERM)

FATAL = (
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGABRT,
    signal.SIGALRM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGXCPU,
)
"""Whatever else would end us on the spot, and leave the servers' programs behind: a terminal that is closed, above all.
Faults of the process itself (`SIGSEGV` and its like) cannot be handled; the next hub cleans up after them."""

DEMO = ServerConfig(name="demo", command=sys.executable, args=("-m", "emceepee.demo"))
"""What `--demo` registers, unless the file has a server of that name."""


def serve(sources: Sources, configuration: Configuration) -> int:
    settings = configuration.http
    listener = bind(settings)
    gate = gate_for(settings, listener.getsockname()[1])
    # From here on clients wait in the queue instead of being refused, so that we may say where we are.
    listener.listen()
    with _store(configuration.settings.data or user_data_dir("emceepee")) as store:
        _run(partial(_serve, sources, configuration, store, listener, gate))
    return 0


def stdio(sources: Sources, configuration: Configuration, *, endpoint: str = "", workspace: str | None = None) -> int:
    name = endpoint.removeprefix("server/")
    known = sorted(server.name for server in _servers(configuration))
    if name != endpoint and name not in known:
        there = f"there are: {', '.join(known)}" if known else "there are none: give some with --config FILE, or --demo"
        raise SettingsError("--server", f"there is no server {name}; {there}")
    # Nothing is kept unless that is asked for: two clients may each start one of us.
    with _store(configuration.settings.data or MEMORY) as store:
        _run(partial(_stdio, sources, configuration, store, endpoint, workspace))
    # A thread may still be blocked reading stdin, and would keep the interpreter from ending.
    sys.stderr.flush()
    os._exit(0)


def _run(main: Callable[[], Awaitable[None]]) -> None:
    try:
        anyio.run(main, backend_options={"use_uvloop": sys.platform != "win32"})
    except BaseExceptionGroup as group:
        ours, others = group.split(EmceepeeError)
        if ours is None or others is not None:
            raise
        # What we say on purpose comes in a sentence, and not in a traceback of task groups.
        raise _first(ours) from None


def _first(group: BaseExceptionGroup[EmceepeeError]) -> EmceepeeError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


async def _serve(sources: Sources, configuration: Configuration, store: Store, listener: socket, gate: Gate) -> None:
    metrics = Metrics()
    hub = _hub(
        configuration,
        store,
        metrics,
        restore_programs=configuration.settings.allow_spawn,
        has_local_user=not configuration.settings.http.access.is_guarded,
    )
    metrics.watch(hub)
    stop = anyio.Event()
    async with task_group() as tasks:
        # First of all: sessions that are taken up again start programs.
        await tasks.start(_stop_on_signal, stop)
        await tasks.start(hub.run)
        async with anyio.create_task_group() as serving:
            serving.start_soon(
                partial(serve_http, hub, configuration.settings.http, listener, stop, metrics=metrics, gate=gate)
            )
            host, port = listener.getsockname()[:2]
            host = f"[{host}]" if ":" in host else host
            print(f"emceepee is serving on http://{host}:{port}/mcp", file=sys.stderr, flush=True)
            async with watching(hub, sources.read, configuration):
                await stop.wait()
            # The links take their time to close, so they begin while the connections drain.
            hub.close()
        await _closed(hub)
        tasks.cancel_scope.cancel()


async def _stdio(
    sources: Sources, configuration: Configuration, store: Store, endpoint: str, workspace: str | None
) -> None:
    hub = _hub(configuration, store)
    stop = anyio.Event()
    with claimed_stdio() as (stdin, stdout):
        async with task_group() as tasks:
            await tasks.start(_stop_on_signal, stop)
            await tasks.start(hub.run)
            async with anyio.create_task_group() as serving:
                serving.start_soon(_cancel_when, stop, serving)
                async with watching(hub, sources.read, configuration):
                    front = StdioFront(
                        hub,
                        stdin,
                        stdout,
                        endpoint=endpoint,
                        workspace=workspace,
                        max_line_bytes=configuration.settings.max_body_bytes,
                    )
                    await front.run()
                serving.cancel_scope.cancel()
            hub.close()
            await _closed(hub)
            tasks.cancel_scope.cancel()


def token_directory(configuration: Configuration) -> Path:
    """Where the tokens of `login` are: in the user's own directory for hubs that keep nothing, too."""
    data = configuration.settings.data
    return Path(user_data_dir("emceepee") if data in ("", MEMORY) else data).expanduser() / "oauth"


@contextmanager
def _store(data: str) -> Iterator[Store]:
    """Where records go; and first of all an end to the programs of hubs that kept none and were killed."""
    places = Path(user_data_dir("emceepee")) / "running"
    with abandoned_places(places) as abandoned:
        if abandoned and (count := end_leftovers(*abandoned)):
            log.warning("leftover_programs_ended", count=count)
    if data != MEMORY:
        yield SqliteStore(Path(data).expanduser())
        return
    with claimed_place(places) as place:
        yield MemoryStore(place)


def _servers(configuration: Configuration) -> list[ServerConfig]:
    servers = list(configuration.servers)
    if configuration.settings.demo and not any(server.name == DEMO.name for server in servers):
        servers.append(DEMO)
    return servers


def _hub(
    configuration: Configuration,
    store: Store,
    telemetry: Telemetry | None = None,
    *,
    restore_programs: bool = True,
    has_local_user: bool = True,
) -> Hub:
    return Hub(
        _servers(configuration),
        find_target=Authorizations(token_directory(configuration)).target_of,
        settings=configuration.settings.hub,
        store=store,
        telemetry=telemetry,
        restore_programs=restore_programs,
        has_local_user=has_local_user,
    )


async def _closed(hub: Hub) -> None:
    with anyio.move_on_after(SHUTDOWN_SECONDS):
        await hub.closed.wait()


async def _cancel_when(stop: anyio.Event, tasks: anyio.abc.TaskGroup) -> None:
    await stop.wait()
    tasks.cancel_scope.cancel()


async def _stop_on_signal(stop: anyio.Event, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    # What is ignored stays so: with `nohup` we outlive the terminal.
    wanted = [number for number in FATAL if signal.getsignal(number) != signal.SIG_IGN]
    with anyio.open_signal_receiver(*ASKED_TO_END, *wanted) as signals:
        task_status.started()
        async for _ in signals:
            stop.set()
