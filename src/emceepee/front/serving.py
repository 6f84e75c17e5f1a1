"""Runs the HTTP front on a socket until somebody says stop."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import anyio.abc
import uvicorn

from emceepee.config import HttpSettings
from emceepee.errors import SettingsError
from emceepee.front.gate import Gate
from emceepee.front.http import HttpFront
from emceepee.hub import Hub
from emceepee.loopback import is_loopback
from emceepee.observe import Metrics

__all__ = ["bind", "serve_http"]

DRAIN_SECONDS = 1
"""How long uvicorn waits for connections whose requests we have ended already."""

KEEP_ALIVE_SECONDS = 75
"""Longer than clients keep an idle connection, so that it is never us who close it under a request."""


class _Server(uvicorn.Server):
    """Signals are handled by whoever runs us."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind(settings: HttpSettings) -> socket.socket:
    """A listening socket.

    Raises:
        SettingsError: the address cannot be had, or is open to others without any authentication.
    """
    if not is_loopback(settings.host) and not settings.access.is_guarded:
        raise SettingsError(
            "--host",
            f"{settings.host} can be reached by others, who would need no credentials: set a token (--token-file, "
            "EMCEEPEE_TOKEN) or oauth_issuer, or use 127.0.0.1",
        )
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # The protocol is named, and inherited by what is accepted: asyncio switches Nagle off only where it reads TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
    except socket.gaierror as error:
        listener.close()
        raise SettingsError("--host", f"{settings.host} is not an address of this machine ({error.strerror})") from None
    except OSError as error:
        listener.close()
        raise SettingsError(
            "--port", f"cannot listen on {settings.host}:{settings.port} ({error.strerror}); choose another port"
        ) from None
    return listener


async def serve_http(
    hub: Hub,
    settings: HttpSettings,
    listener: socket.socket,
    stop: anyio.Event,
    *,
    metrics: Metrics | None = None,
    gate: Gate | None = None,
    task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `stop` is set; then end open requests and let the connections go."""
    front = HttpFront(hub, settings, metrics, gate)
    server = _Server(
        uvicorn.Config(
            front,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=DRAIN_SECONDS,
        )
    )

    async def stop_when_told() -> None:
        await stop.wait()
        front.stop()
        server.should_exit = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop_when_told)
        task_status.started()
        await server.serve(sockets=[listener])
        tasks.cancel_scope.cancel()
