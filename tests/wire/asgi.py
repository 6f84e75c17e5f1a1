"""ASGI applications on a real socket, served by uvicorn in the test's own event loop."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

import anyio
import uvicorn
from starlette.types import ASGIApp


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = anyio.Event()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        # Signals are pytest's.
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncGenerator[str]:
    """The root URL of `app` while it is served."""
    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=0)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = _Server(config)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listening])
            await server.ready.wait()
            try:
                yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            finally:
                server.should_exit = server.force_exit = True
