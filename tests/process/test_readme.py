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


def test_the_session_runs_as_it_is_written_and_ends_as_promised(tmp_path: Path) -> None:
    (session,) = [
        block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "anyio.run(main)" in block
    ]
    promised = re.search(r"It ends with the server's own result: `(.*)`", README)
    assert promised is not None
    with serving("--demo") as (url, _):
        program = tmp_path / "session.py"
        program.write_text(session.replace("http://127.0.0.1:8080/mcp", url), encoding="utf-8")
        ended = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=180, check=False)
    assert ended.returncode == 0, ended.stderr
    assert promised[1] in ended.stdout


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\((?!http)([^)#]+)\)", README))))
def test_every_link_leads_somewhere(target: str) -> None:
    assert (ROOT / target).exists()


@pytest.mark.parametrize("script", sorted(set(re.findall(r"scripts/\w+", README))))
def test_every_script_is_there(script: str) -> None:
    assert (ROOT / script).exists()
