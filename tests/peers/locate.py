"""Where the installed peers are. A missing one skips the test, or fails it where peers are required."""

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

__all__ = ["fastmcp_python", "mcp130_python", "node", "node_script", "program"]

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / ".peers"
BINARIES = PEERS / "node" / "node_modules" / ".bin"
PROGRAMS = Path(__file__).resolve().parent / "programs"
ON_FASTMCP = {
    "bridge_extension_client.py",
    "conformance_tasks_server.py",
    "extension_server.py",
    "rounds_server.py",
}


def mcp130_python() -> Path:
    """The interpreter of the venv that holds the last 1.x Python SDK."""
    python = PEERS / "mcp130" / "bin" / "python"
    return python if python.exists() else _missing("the 1.x Python SDK")


def fastmcp_python() -> Path:
    """The interpreter of the venv that holds FastMCP with its tasks extension."""
    python = PEERS / "fastmcp" / "bin" / "python"
    return python if python.exists() else _missing("FastMCP")


def node() -> str:
    """A Node new enough for every node peer: the one installed with them, or the machine's."""
    packaged = BINARIES / "node"
    if packaged.exists():
        return str(packaged)
    return shutil.which("node") or _missing("node")


def node_script(package_bin: str) -> list[str]:
    """The command of a node peer by the name of its binary: `mcp-server-everything`, `mcp-inspector`, `conformance`."""
    script = BINARIES / package_bin
    return [node(), str(script)] if script.exists() else _missing(f"the node peer {package_bin}")


def program(name: str) -> list[str]:
    """The command of one of our own `programs`, under the SDK it is written for."""
    if name in ON_FASTMCP:
        return [str(fastmcp_python()), str(PROGRAMS / name)]
    if name.endswith(".py"):
        return [str(mcp130_python()), str(PROGRAMS / name)]
    node_script("mcp-inspector")  # the programs' SDK is installed together with it
    return [node(), str(PROGRAMS / name)]


def _missing(what: str) -> NoReturn:
    reason = f"{what} is not installed: run scripts/peers"
    if os.environ.get("EMCEEPEE_REQUIRE_PEERS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
