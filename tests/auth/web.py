"""A web application on a real loopback socket while a test runs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

__all__ = ["listening", "served"]

STOP_LIMIT_S = 60


@contextmanager
def listening() -> Iterator[tuple[socket.socket, str]]:
    """A listening socket and its URL, for applications that have to know where they are."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener, f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def served(app: ASGIApp, listener: socket.socket) -> Iterator[None]:
    """In a thread of its own, so that it answers whatever the test waits for."""
    config = uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(STOP_LIMIT_S)
