"""A server's process: starting it in a group of its own, and making sure that nothing of the group outlives us.

`stdio.py` speaks with the process; this module only knows about its birth and its end.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
from anyio.abc import Process
from mcp.client.stdio import get_default_environment

from emceepee.errors import ConnectFailed

__all__ = ["PLACE_VARIABLE", "end_leftovers", "exit_reason", "kill_group", "spawn", "stop"]

logger = logging.getLogger(__name__)

PLACE_VARIABLE = "MCP_HUB_DATA"
"""Says in the environment of a program which hub it belongs to, by where that keeps its data."""

STEP_SECONDS = 1.0
"""For each of the two polite ways to end a server; both together stay below the transport's closing time."""

REAP_SECONDS = 0.3
"""After SIGKILL only the event loop has to notice; a process that the kernel cannot end is not waited for."""


async def spawn(
    command: Sequence[str], *, env: Mapping[str, str] | None, cwd: str | os.PathLike[str] | None, target: str
) -> Process:
    """Start `command` as the leader of a new process group, with pipes.

    Raises:
        ConnectFailed: it cannot be started.
    """
    environment = get_default_environment() | dict(env or {})
    try:
        # A cancellation in the midst of this would leave a process that nobody knows.
        with anyio.CancelScope(shield=True):
            process = await anyio.open_process(command, env=environment, cwd=cwd, start_new_session=True)
    except (OSError, ValueError) as error:
        raise ConnectFailed(target, _spawn_failure(command[0], cwd, error)) from error
    return process


def _spawn_failure(program: str, cwd: str | os.PathLike[str] | None, error: OSError | ValueError) -> str:
    # The error's own filename is no help: it names the directory, the program or nothing, depending on the event loop.
    if cwd is not None and not os.path.isdir(cwd):
        return f"{os.fspath(cwd)} is not a directory to start {program} in"
    match error:
        case FileNotFoundError():
            return f"there is no program {program}"
        case PermissionError():
            return f"{program} may not be executed"
        case OSError():
            return f"{program} cannot be started: {error.strerror or error}"
        case _:
            return f"{program} cannot be started: {error}"


def exit_reason(status: int) -> str:
    """`status` of a process in words."""
    if status < 0:
        return f"the server process was killed by signal {-status}"
    return f"the server process exited with status {status}"


async def stop(process: Process) -> None:
    """End the process and its whole group: by closing its stdin, by SIGTERM, and for certain by SIGKILL."""
    try:
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            if process.stdin is not None:
                await process.stdin.aclose()
        if not await _exited(process, STEP_SECONDS):
            _signal_group(process, signal.SIGTERM)
            await _exited(process, STEP_SECONDS)
    finally:
        kill_group(process)
    # Closing waits without a bound for a process that the kernel cannot end.
    if await _exited(process, REAP_SECONDS):
        await process.aclose()
    else:
        logger.warning("server process %d does not end", process.pid)


def kill_group(process: Process) -> None:
    """SIGKILL for everything in the group, also when its leader is gone."""
    _signal_group(process, signal.SIGKILL)


async def _exited(process: Process, seconds: float) -> bool:
    with anyio.move_on_after(seconds):
        await process.wait()
    return process.returncode is not None


def _signal_group(process: Process, number: signal.Signals) -> None:
    # The leader's pid is the group's id; getpgid() would fail once the leader is reaped.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def end_leftovers(place: str) -> int:
    """End the programs of a hub that kept its data at `place` and was killed; how many there were.

    They are known by a variable in their environment, which a program has from its first moment on, and its children
    as well: whatever is written down elsewhere comes too late for a hub that is killed in between.
    """
    mark = os.fsencode(f"{PLACE_VARIABLE}={place}")
    count = 0
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
                count += 1
    return count
