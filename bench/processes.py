"""The processes under measurement: starting them, knowing when they serve, and the CPU time they have used."""

import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import anyio
import httpx2
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

__all__ = ["Served", "demo_server", "hub"]

START_LIMIT_S = 30
STOP_LIMIT_S = 10
POLL_S = 0.05
"""How often a starting hub is asked whether it serves; outside every measurement."""

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Served:
    """A running process that serves MCP at `url`."""

    url: str
    pid: int

    def cpu_s(self) -> float:
        """User and system CPU time of the process so far, all threads; counted in clock ticks of the kernel.

        Ticks are coarse (10 ms), so only sums over many calls mean something.
        """
        # The second field is the program's name in parentheses and may itself hold spaces.
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


@asynccontextmanager
async def demo_server() -> AsyncIterator[Served]:
    """The demo server over Streamable HTTP, on a port of its own choice."""
    command = [sys.executable, "-m", "emceepee.demo", "--port", "0"]
    async with _running(command, pipe_stderr=True) as process:
        assert process.stderr is not None
        with anyio.fail_after(START_LIMIT_S):
            line = await BufferedByteReceiveStream(process.stderr).receive_until(b"\n", 65536)
        yield Served(line.decode().split()[-1], process.pid)


@asynccontextmanager
async def hub(command: Sequence[str], server_url: str) -> AsyncIterator[Served]:
    """The hub with the server at `server_url` registered as `demo`."""
    port = _free_port()
    with TemporaryDirectory(prefix="emceepee-bench-") as folder:
        config = Path(folder) / "servers.json"
        config.write_text(json.dumps({"mcpServers": {"demo": {"url": server_url}}}))
        # The store is a real one, as for a user, but not the user's own.
        options = ["--port", str(port), "--config", str(config), "--data", str(Path(folder) / "data")]
        async with _running([*command, *options]) as process:
            url = f"http://127.0.0.1:{port}/mcp"
            with anyio.fail_after(START_LIMIT_S):
                await _serving(url, process)
            yield Served(url, process.pid)


@asynccontextmanager
async def _running(command: Sequence[str], *, pipe_stderr: bool = False) -> AsyncIterator[Process]:
    process = await anyio.open_process(command, stdin=None, stdout=None, stderr=-1 if pipe_stderr else None)
    try:
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            await _stop(process)


async def _stop(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
        with anyio.move_on_after(STOP_LIMIT_S):
            await process.wait()
    if process.returncode is None:
        process.kill()
    await process.aclose()


async def _serving(url: str, process: Process) -> None:
    """Return once the hub answers on /healthz."""
    health = urlsplit(url)._replace(path="/healthz").geturl()
    async with httpx2.AsyncClient() as http:
        while True:
            if process.returncode is not None:
                raise RuntimeError(f"the hub ended with status {process.returncode} before it served")
            try:
                if (await http.get(health)).is_success:
                    return
            except httpx2.TransportError:
                pass  # not listening yet
            await anyio.sleep(POLL_S)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
