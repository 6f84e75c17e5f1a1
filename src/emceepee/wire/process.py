"""A server's process: starting it in a group of its own, and making sure that nothing of it outlives us.

`stdio.py` speaks with the process; this module only knows about its birth and its end.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
from mcp.client.stdio import get_default_environment

from emceepee.errors import ConnectFailed
from emceepee.wire.pipes import PipeReader, PipeWriter

__all__ = ["PLACE_VARIABLE", "ServerProcess", "end_leftovers", "exit_reason", "kill_group", "spawn", "stop"]

logger = logging.getLogger(__name__)

PLACE_VARIABLE = "MCP_HUB_DATA"
"""Says in the environment of a program which hub it belongs to: its place is what no other hub has at the same time."""

STEP_SECONDS = 1.0
"""For each of the two polite ways to end a server; both together stay below the transport's closing time."""

REAP_SECONDS = 0.3
"""After SIGKILL only the event loop has to notice; a process that the kernel cannot end is not waited for."""


PROBE = 0
"""A signal that nobody gets: it only shows whether there is somebody."""


class ServerProcess:
    """A running program and our ends of its pipes.

    Started by `subprocess` and not by the event loop: uvloop's children keep a second copy of their pipes, so that one
    which closes its output and lives on would never be noticed.
    """

    def __init__(self, popen: subprocess.Popen[bytes], stdin: int, stdout: int, stderr: int) -> None:
        self._popen = popen
        self.stdin = PipeWriter(stdin)
        self.stdout = PipeReader(stdout)
        self.stderr = PipeReader(stderr)
        self._exit_handle = _exit_handle(popen)

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        return self._popen.returncode

    async def wait(self) -> int:
        """The exit status, once there is one; any number of tasks may wait for it."""
        while (status := self._popen.poll()) is None:
            if self._exit_handle < 0:
                await anyio.sleep_forever()  # given up: as far as we know it never ends
            # Only one task can wait for the same handle.
            handle = os.dup(self._exit_handle)
            try:
                await anyio.wait_readable(handle)
            finally:
                os.close(handle)
        return status

    def close(self) -> None:
        """Let go of the pipes, and of the process, which has ended or is not waited for any more."""
        for end in (self.stdin, self.stdout, self.stderr):
            end.close()
        if self._exit_handle >= 0:
            os.close(self._exit_handle)
            self._exit_handle = -1


def _exit_handle(popen: subprocess.Popen[bytes]) -> int:
    """A file descriptor that can be read when the process has ended."""
    if hasattr(os, "pidfd_open"):
        with suppress(OSError):  # the kernel, or a sandbox, may not have it
            return os.pidfd_open(popen.pid)
    readable, held = os.pipe()

    def wait() -> None:
        popen.wait()
        os.close(held)

    threading.Thread(target=wait, name=f"wait-{popen.pid}", daemon=True).start()
    return readable


def spawn(
    command: Sequence[str], *, env: Mapping[str, str] | None, cwd: str | os.PathLike[str] | None, target: str
) -> ServerProcess:
    """Start `command` as the leader of a new process group, with pipes.

    Synchronous: it takes a millisecond or two, and a cancellation in its midst would leave a process that nobody knows.

    Raises:
        ConnectFailed: it cannot be started.
    """
    environment = get_default_environment() | dict(env or {})
    ours: list[int] = []
    theirs: list[int] = []
    try:
        for we_write in (True, False, False):
            readable, writable = os.pipe()
            ours.append(writable if we_write else readable)
            theirs.append(readable if we_write else writable)
        stdin, stdout, stderr = theirs
        popen = subprocess.Popen(
            command, stdin=stdin, stdout=stdout, stderr=stderr, env=environment, cwd=cwd, start_new_session=True
        )
    except (OSError, ValueError) as error:
        _close_all(ours)
        raise ConnectFailed(target, _spawn_failure(command[0], cwd, error)) from error
    finally:
        # Not one copy may stay with us, or the end of the program's output would never be seen.
        _close_all(theirs)
    try:
        return ServerProcess(popen, *ours)
    except OSError as error:
        # There is no file descriptor left to watch it with.
        popen.kill()
        popen.wait()
        _close_all(ours)
        raise ConnectFailed(target, _spawn_failure(command[0], cwd, error)) from error


def _close_all(handles: Sequence[int]) -> None:
    for handle in handles:
        os.close(handle)


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


async def stop(process: ServerProcess) -> None:
    """End the process and its whole group: by closing its stdin, by SIGTERM, and for certain by SIGKILL."""
    try:
        process.stdin.close()
        if not await _exited(process, STEP_SECONDS):
            _signal_group(process.pid, signal.SIGTERM)
            await _exited(process, STEP_SECONDS)
    finally:
        kill_group(process)
    if not await _exited(process, REAP_SECONDS):
        logger.warning("server process %d does not end", process.pid)
    process.close()


def kill_group(process: ServerProcess) -> None:
    """SIGKILL for everything in the group, also when its leader is gone, and for the groups that were started from it.

    A hub, for one, has each of its programs in a group of its own, and needs about as long to end a stubborn one as we
    give it for all.
    """
    if not _signal_group(process.pid, PROBE):
        return
    for group in (process.pid, *_groups_below(process.pid)):
        _signal_group(group, signal.SIGKILL)


async def _exited(process: ServerProcess, seconds: float) -> bool:
    with anyio.move_on_after(seconds):
        await process.wait()
    return process.returncode is not None


def _signal_group(group: int, number: int) -> bool:
    """Send a signal to a group; whether there is one. Its id is the leader's pid, also once the leader is reaped."""
    with suppress(PermissionError):
        try:
            os.killpg(group, number)
        except ProcessLookupError:
            return False
    return True


def _groups_below(group: int) -> set[int]:
    """The groups of what descends from the processes of `group`, as far as that can be seen."""
    groups: dict[int, int] = {}
    children: defaultdict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent, groups[int(entry.name)] = _parent_and_group(entry)
            children[parent].append(int(entry.name))
    found = {pid for pid, of in groups.items() if of == group}
    to_see = list(found)
    while to_see:
        below = [pid for pid in children[to_see.pop()] if pid not in found]
        found.update(below)
        to_see += below
    # To signal group 0 is to signal our own.
    return {groups[pid] for pid in found} - {0, group, os.getpgrp()}


def _parent_and_group(entry: Path) -> tuple[int, int]:
    """Of the process that has this directory in `/proc`."""
    # The name, in parentheses, may hold anything.
    _state, parent, group, *_ = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    return int(parent), int(group)


def end_leftovers(*places: str) -> int:
    """End the programs of hubs that had these places and were killed; how many there were.

    They are known by a variable in their environment, which a program has from its first moment on, and its children
    as well: whatever is written down elsewhere comes too late for a hub that is killed in between. We may have it
    ourselves, if we were started by such a program: then neither we are a leftover, nor what we were started by.
    """
    marks = {os.fsencode(f"{PLACE_VARIABLE}={place}") for place in places}
    spared = _our_line()
    count = 0
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        with suppress(OSError):
            is_marked = not marks.isdisjoint((entry / "environ").read_bytes().split(b"\0"))
            # Our group has the other ends of our pipes, say of what writes our log.
            if is_marked and pid not in spared and os.getpgid(pid) != os.getpgrp():
                os.kill(pid, signal.SIGKILL)
                count += 1
    return count


def _our_line() -> set[int]:
    """We and all that we descend from, as far as that can be seen."""
    line: set[int] = set()
    pid = os.getpid()
    with suppress(OSError):
        while pid > 0 and pid not in line:
            line.add(pid)
            pid, _ = _parent_and_group(Path("/proc") / str(pid))
    return line
