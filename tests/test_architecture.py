"""Imports point one way (docs/architecture.md, "The house")."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "emceepee"

SMALL = {"clock", "concurrency", "errors", "ids", "jsontext", "loopback", "pace", "protocol", "timekeeper"}
MAY_IMPORT: dict[str, set[str]] = {
    "clock": set(),
    "concurrency": set(),
    "errors": set(),
    "ids": {"clock"},
    "jsontext": set(),
    "pace": {"clock"},
    "loopback": set(),
    "protocol": set(),
    "timekeeper": {"clock", "core"},
    "config": {*SMALL, "core"},
    "core": SMALL - {"timekeeper"},
    "store": SMALL,
    "wire": SMALL,
    "client": {*SMALL, "core", "wire"},
    "hub": {*SMALL, "config", "core", "client", "store"},
    "observe": {*SMALL, "config", "core", "hub"},
    "tools": {*SMALL, "config", "core", "client", "hub"},
    "front": {*SMALL, "config", "core", "client", "hub", "tools", "observe"},
    "demo": set(),
    "cli": {*SMALL, "config", "core", "store", "client", "hub", "observe", "tools", "front", "demo"},
    "testing": {*SMALL, "config", "core", "store", "wire", "client", "hub", "tools"},
}
LIBRARY = {*SMALL, "core", "wire", "client"}
SDK_AT_THE_EDGE = {"wire", "front", "demo"}


def modules() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or path.stem != "__init__")


def package_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_names(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield node.module or ""


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_what_lies_below_it(path: Path) -> None:
    package = package_of(path)
    ours = {name.split(".")[1] for name in imported_names(path) if name.startswith("emceepee.")}
    assert ours - {package} <= MAY_IMPORT[package]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_sdk_stays_at_the_edge(path: Path) -> None:
    if package_of(path) not in SDK_AT_THE_EDGE:
        used = {name.split(".")[0] for name in imported_names(path)}
        assert not used & {"mcp", "mcp_types"}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_library_logs_like_a_library(path: Path) -> None:
    """Structlog prints to stdout where nobody configures it, which is up to the programs that import us."""
    if package_of(path) in LIBRARY:
        assert "structlog" not in {name.split(".")[0] for name in imported_names(path)}


def test_every_package_has_its_place() -> None:
    assert {package_of(path) for path in modules()} == set(MAY_IMPORT)
