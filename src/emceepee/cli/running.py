"""Runs the hub and a front until a signal, or the client, ends it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from socket import socket

import anyio
import anyio.abc

from emceepee.config import HttpSettings, ServerConfig
from emceepee.front.serving import bind, serve_http
from emceepee.front.stdio import StdioFront, claimed_stdio
from emceepee.hub import Hub

__all__ = ["serve", "stdio"]

SHUTDOWN_SECONDS = 4.0
"""A graceful end takes at most 5 seconds, whatever the servers do."""


def serve(servers: Sequence[ServerConfig], settings: HttpSettings) -> int:
    listener = bind(settings)
    _run(partial(_serve, servers, settings, listener))
    return 0


def stdio(servers: Sequence[ServerConfig]) -> int:
    _run(partial(_stdio, servers))
    # A thread may still be blocked reading stdin, and would keep the interpreter from ending.
    sys.stderr.flush()
    os._exit(0)


def _run(main: Callable[[], Awaitable[None]]) -> None:
    anyio.run(main, backend_options={"use_uvloop": sys.platform != "win32"})


async def _serve(servers: Sequence[ServerConfig], settings: HttpSettings, listener: socket) -> None:
    hub = Hub(servers)
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        await tasks.start(hub.run)
        tasks.start_soon(_stop_on_signal, stop)
        async with anyio.create_task_group() as serving:
            serving.start_soon(serve_http, hub, settings, listener, stop)
            host, port = listener.getsockname()[:2]
            print(f"emceepee is serving on http://{host}:{port}/mcp", file=sys.stderr, flush=True)
            await stop.wait()
            # The links take their time to close, so they begin while the connections drain.
            hub.close()
        await _closed(hub)
        tasks.cancel_scope.cancel()


async def _stdio(servers: Sequence[ServerConfig]) -> None:
    hub = Hub(servers)
    stop = anyio.Event()
    with claimed_stdio() as (stdin, stdout):
        async with anyio.create_task_group() as tasks:
            await tasks.start(hub.run)
            tasks.start_soon(_stop_on_signal, stop)
            async with anyio.create_task_group() as serving:
                serving.start_soon(_cancel_when, stop, serving)
                await StdioFront(hub, stdin, stdout).run()
                serving.cancel_scope.cancel()
            hub.close()
            await _closed(hub)
            tasks.cancel_scope.cancel()


async def _closed(hub: Hub) -> None:
    with anyio.move_on_after(SHUTDOWN_SECONDS):
        await hub.closed.wait()


async def _cancel_when(stop: anyio.Event, tasks: anyio.abc.TaskGroup) -> None:
    await stop.wait()
    tasks.cancel_scope.cancel()


async def _stop_on_signal(stop: anyio.Event) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            stop.set()
