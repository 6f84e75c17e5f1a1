"""The scripts that set everything up, with a Python that only pretends: what is cut short, and what is missing."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT_S = 120

PRETENDED_PYTHON = """#!/bin/bash
# Does what the scripts ask of Python, in no time. With GATE set, making a venv stops halfway until it is interrupted.
venv="$(dirname "$(dirname "$0")")"
case "$*" in
  -c*) exit "${TOO_OLD:-0}" ;;
  --version) echo "Python 3.${TOO_OLD:+1}0.0" ;;
  "-m venv --clear "*)
    rm -rf "$4"
    mkdir -p "$4/bin"
    cp "$0" "$4/bin/python"
    if [[ -n "${GATE:-}" ]]; then
      trap 'echo "Traceback (most recent call last):" >&2; exit 130' INT
      echo stopped > "$GATE"
      read -r < "$GATE"
    fi
    touch "$4/has-pip" ;;
  "-m pip --version") [[ -f "$venv/has-pip" ]] ;;
  *--editable*)
    if [[ ! -f "$venv/has-pip" ]]; then echo "No module named pip" >&2; exit 1; fi
    printf '#!/bin/bash\\necho "$PWD: $*"\\n' > "$venv/bin/emceepee"
    chmod +x "$venv/bin/emceepee" ;;
esac
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The repository as far as the scripts need it, with a Python beside it."""
    clone = tmp_path / "clone"
    shutil.copytree(ROOT / "scripts", clone / "scripts")
    shutil.copy(ROOT / "pyproject.toml", clone)
    python = tmp_path / "python"
    python.write_text(PRETENDED_PYTHON)
    python.chmod(0o755)
    return clone


@contextmanager
def starting(clone: Path, environment: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """`scripts/serve --demo`, called from the folder above the clone; in a group of its own, as on a terminal."""
    with subprocess.Popen(
        [clone / "scripts" / "serve", "--demo"],
        cwd=clone.parent,
        env={**os.environ, "PYTHON": str(clone.parent / "python"), **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def run(clone: Path, environment: Mapping[str, str] | None = None) -> tuple[int, str, list[str]]:
    """Exit status, output, and the lines on stderr."""
    with starting(clone, environment) as process:
        output, said = process.communicate(timeout=LIMIT_S)
    return process.returncode, output, said.splitlines()


MAKING = "making .venv with Python 3.0.0"
INSTALLING = "installing emceepee into .venv, which takes about a minute: pip install -e . "


def test_the_first_start_sets_up_and_serves_where_the_caller_is_and_the_second_just_serves(clone: Path) -> None:
    assert run(clone) == (0, f"{clone.parent}: serve --demo\n", [MAKING, INSTALLING])
    assert run(clone) == (0, f"{clone.parent}: serve --demo\n", [])


def test_a_start_that_was_interrupted_says_so_in_a_line_and_the_next_one_repairs_it(clone: Path) -> None:
    gate = clone.parent / "gate"
    os.mkfifo(gate)
    with starting(clone, {"GATE": str(gate)}) as process:
        assert gate.read_text() == "stopped\n"
        os.killpg(process.pid, signal.SIGINT)
        output, said = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, output) == (130, "")
    assert said.splitlines() == [MAKING, "interrupted before .venv was ready; the next start sees to it"]
    assert (clone / ".venv" / "bin" / "python").exists()
    assert run(clone) == (0, f"{clone.parent}: serve --demo\n", [MAKING, INSTALLING])


@pytest.mark.parametrize(
    ("environment", "found"), [({"PYTHON": "no-such-python"}, "no-such-python is none"), ({"TOO_OLD": "1"}, "10.0")]
)
def test_without_a_python_that_is_new_enough_nothing_is_made(
    clone: Path, environment: dict[str, str], found: str
) -> None:
    status, _, (said,) = run(clone, environment)
    assert status == 1
    assert said.startswith("needs Python 3.11 or newer; ")
    assert found in said
    assert not (clone / ".venv").exists()
