"""The README is true: its session runs as written, and what it points to is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.hub_process import serving

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def run(folder: Path, program: str) -> str:
    """What a program prints."""
    file = folder / "program.py"
    file.write_text(program, encoding="utf-8")
    ended = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=180, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_session_runs_as_it_is_written_and_ends_as_promised_even_after_one_that_was_cut_short(
    tmp_path: Path,
) -> None:
    (session,) = [program for program in PROGRAMS if "await_activity" in program]
    promised = re.search(r"It ends with the server's own result: `(.*)`", README)
    assert promised is not None
    with serving("--demo") as (url, _):
        session = session.replace("http://127.0.0.1:8080/mcp", url)
        cut_short = session.replace("await answer(pending,", "__import__('os')._exit(0) or (pending,")
        assert cut_short != session
        run(tmp_path, cut_short)
        assert promised[1] in run(tmp_path, session)


def test_the_library_is_used_as_it_is_written(tmp_path: Path) -> None:
    (program,) = [program for program in PROGRAMS if "EVERYTHING" in program]
    demo = f"EVERYTHING = Stdio({sys.executable!r}, ['-m', 'emceepee.demo'])"
    program = re.sub(r"EVERYTHING = .*", demo, program).replace('"message"', '"text"')
    assert "'text': 'hi'" in run(tmp_path, program)


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\((?!http)([^)#]+)\)", README))))
def test_every_link_leads_somewhere(target: str) -> None:
    assert (ROOT / target).exists()


@pytest.mark.parametrize("script", sorted(set(re.findall(r"scripts/\w+", README))))
def test_every_script_is_there(script: str) -> None:
    assert (ROOT / script).exists()
