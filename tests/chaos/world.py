"""What is there to be killed: a hub process, stdio servers that it starts, HTTP servers behind relays.

Nothing here knows what ought to happen; `schedule.py` decides what is done, `records.py` what it should have led to.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread
from anyio.abc import ByteReceiveStream, ByteSendStream, SocketAttribute, SocketStream

from tests.process.hub_process import EMCEEPEE, STOP_LIMIT_S, Program, free_port

__all__ = ["IDLE_MS", "POLL_S", "HttpServer", "HubProcess", "Relay", "World", "alive", "open_files", "until", "world"]

JsonObject = dict[str, Any]

CHAOS_SERVER = Path(__file__).resolve().parent / "programs" / "chaos_server.py"
# Without `site`, which is most of what starting Python costs.
PYTHON = [sys.executable, "-I", "-S"]

RETENTION_MS = 3_600_000
"""Longer than any run, so that every result that was completed has to be there at its end."""

IDLE_MS = 30_000
"""A client whose `initialize` was answered by a dying hub never learns of its session, which ends after this time."""

POLL_S = 0.05
"""How often we look at something that tells nobody when it changes, such as a process table."""


class HubProcess:
    """`emceepee serve` on one port and one data directory, life after life."""

    def __init__(self, folder: Path, servers: JsonObject) -> None:
        self.data = folder / "data"
        config = folder / "servers.json"
        config.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._flags = ["--port", str(self.port), "--config", str(config), "--data", str(self.data)]
        self._flags += ["--task-retention-ms", str(RETENTION_MS)]
        self._flags += ["--session-idle-ms", str(IDLE_MS), "--log-level", "warning"]
        self.life = 0
        self.up = anyio.Event()
        self.program: Program | None = None
        self.past_lines: list[str] = []

    @property
    def pid(self) -> int:
        assert self.program is not None
        return self.program.pid

    @property
    def lines(self) -> list[str]:
        """What all lives have written to stderr."""
        return self.past_lines + ([] if self.program is None else self.program.lines)

    async def start(self) -> None:
        self.life += 1
        self.program = Program(_popen([*EMCEEPEE, "serve", *self._flags], stdout=subprocess.DEVNULL))
        await anyio.to_thread.run_sync(self.program.wait_for_line, "emceepee is serving on")
        self.up.set()

    async def kill(self) -> None:
        assert self.program is not None
        self.up = anyio.Event()
        self.program.process.kill()
        await anyio.to_thread.run_sync(self._reap)

    async def stop(self) -> int:
        """The exit status of a hub that was asked to end."""
        assert self.program is not None
        self.program.process.send_signal(signal.SIGTERM)
        status = await anyio.to_thread.run_sync(self.program.wait, STOP_LIMIT_S)
        self._reap()
        return status

    def _reap(self) -> None:
        assert self.program is not None
        self.program.process.wait()
        self.program.stop()
        self.past_lines += self.program.lines
        self.program = None


class Relay:
    """A TCP relay with a port of its own that can be slowed and cut; where it leads to may change, or be nowhere."""

    def __init__(self) -> None:
        self.port = 0
        self.target: int | None = None
        self.delay_s = 0.0
        self._open: set[anyio.CancelScope] = set()

    def cut(self) -> int:
        """Drop every connection; how many there were."""
        count = len(self._open)
        for scope in tuple(self._open):
            scope.cancel()
        return count

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self.port = listener.extra(SocketAttribute.local_port)  # noqa: S610  # anyio's attribute, not Django's
        task_status.started()
        async with listener:
            await listener.serve(self._carry)

    async def _carry(self, near: SocketStream) -> None:
        async with near:
            if self.target is None:
                return
            with suppress(OSError), anyio.CancelScope() as scope:
                self._open.add(scope)
                try:
                    async with (
                        await anyio.connect_tcp("127.0.0.1", self.target) as far,
                        anyio.create_task_group() as pumps,
                    ):
                        pumps.start_soon(self._pump, near, far, pumps.cancel_scope)
                        pumps.start_soon(self._pump, far, near, pumps.cancel_scope)
                finally:
                    self._open.discard(scope)

    async def _pump(self, source: ByteReceiveStream, sink: ByteSendStream, both: anyio.CancelScope) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
            while chunk := await source.receive():
                if self.delay_s:
                    await anyio.sleep(self.delay_s)
                await sink.send(chunk)
        both.cancel()


class HttpServer:
    """A chaos server over HTTP that outlives the hub, behind a relay that outlives the server."""

    def __init__(self, name: str, ledger: Path) -> None:
        self.name = name
        self.relay = Relay()
        self._ledger = ledger
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        command = [*PYTHON, str(CHAOS_SERVER), "http", self.name, str(self._ledger)]
        self.process = process = _popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        self.relay.target = int(await anyio.to_thread.run_sync(process.stdout.readline))

    async def kill(self) -> None:
        self.relay.target = None
        if (process := self.process) is not None:
            process.kill()
            await anyio.to_thread.run_sync(process.wait)
            assert process.stdout is not None
            process.stdout.close()
            self.process = None


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = folder / "ledger.jsonl"
        self.ledger.touch()
        self.http = [HttpServer(name, self.ledger) for name in ("web-one", "web-two")]
        self.hub: HubProcess

    @property
    def servers(self) -> list[str]:
        return ["pipe", "stubborn", *(server.name for server in self.http)]

    def config(self) -> JsonObject:
        found: JsonObject = {
            server.name: {"url": f"http://127.0.0.1:{server.relay.port}/mcp", "transport": "http"}
            for server in self.http
        }
        for name, extra in (("pipe", []), ("stubborn", ["stubborn"])):
            args = [*PYTHON[1:], str(CHAOS_SERVER), "stdio", name, str(self.ledger), *extra]
            found[name] = {"command": PYTHON[0], "args": args}
        return found

    def told_by_servers(self, what: str) -> list[JsonObject]:
        """Lines of the ledger; the last one may have been cut short by a kill."""
        found = []
        for line in self.ledger.read_text(encoding="utf-8").splitlines():
            with suppress(json.JSONDecodeError):
                entry = json.loads(line)
                if entry["what"] == what:
                    found.append(entry)
        return found

    def stdio_pids(self) -> list[int]:
        """The living stdio servers, of whichever hub."""
        return sorted(
            {entry["pid"] for entry in self.told_by_servers("started") if entry["server"] in ("pipe", "stubborn")}
            & set(self._chaos_pids())
        )

    def _chaos_pids(self) -> list[int]:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and self._is_ours(int(name))]

    def _is_ours(self, pid: int) -> bool:
        with suppress(OSError):
            return str(self.ledger).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        return False

    def end_everything(self) -> None:
        for pid in self._chaos_pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    """Servers and relays are up, the hub is not; whatever is left at the end is killed."""
    found = World(folder)
    try:
        async with anyio.create_task_group() as tasks:
            for server in found.http:
                await tasks.start(server.relay.run)
                await server.start()
            found.hub = HubProcess(folder, found.config())
            yield found
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            if found.hub.program is not None:
                await found.hub.kill()
            for server in found.http:
                await server.kill()
            found.end_everything()


async def until(condition: Callable[[], bool], look_every_s: float = POLL_S) -> None:
    """Look until `condition` holds; whoever calls this bounds it."""
    while not condition():  # noqa: ASYNC110  # processes and files tell nobody when they change
        await anyio.sleep(look_every_s)


def _popen(command: list[str], *, stdout: int) -> subprocess.Popen[bytes]:
    stderr = subprocess.PIPE if stdout == subprocess.DEVNULL else None
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)


def alive(pid: int) -> bool:
    """Whether a process runs; one that waits to be reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
