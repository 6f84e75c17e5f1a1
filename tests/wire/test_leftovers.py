"""Programs that outlived their hub, as the next one finds them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from emceepee.client import Stdio
from emceepee.client.leftovers import end_leftovers, marked

LIMIT_S = 120

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="programs are found in /proc")


@contextmanager
def left_behind(place: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program of the hub at `place`, as far as its environment says."""
    target = marked(Stdio("sleep", ["600"]), place)
    assert isinstance(target, Stdio)
    process = subprocess.Popen([target.command, *target.args], env={**os.environ, **target.env}, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_the_programs_of_the_named_places_are_ended_and_no_others(tmp_path: Path) -> None:
    one, two, other = (str(tmp_path / name) for name in ("one", "two", "other"))
    with left_behind(one) as first, left_behind(two) as second, left_behind(other) as third:
        assert end_leftovers(one, two) == 2
        assert (first.wait(LIMIT_S), second.wait(LIMIT_S)) == (-9, -9)
        assert third.poll() is None


STARTED_BY_A_LEFTOVER = """
import os, subprocess, sys
from emceepee.client.leftovers import end_leftovers
print(end_leftovers(os.environ["MCP_HUB_DATA"]), flush=True)
"""


def test_a_hub_that_was_started_by_a_leftover_ends_neither_itself_nor_what_it_was_started_by(tmp_path: Path) -> None:
    """Somebody restarts the hub in a shell that one of its own servers opened; the log goes through a pipe."""
    place = str(tmp_path)
    pipeline = '"$0" -c "$1" | cat; echo the shell is there'
    with left_behind(place) as beside:
        shell = subprocess.run(
            ["sh", "-c", pipeline, sys.executable, STARTED_BY_A_LEFTOVER],
            env={**os.environ, "MCP_HUB_DATA": place},
            start_new_session=True,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert (shell.stdout, shell.returncode) == ("1\nthe shell is there\n", 0)
        assert beside.wait(LIMIT_S) == -9
