"""Every promise has a test that names it, and every name in a test is a promise.

The promises are in `tests/requirements.py`; a folder may have a `requirements.py` of its own, of the same form.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def _lists(name: str) -> Iterator[Mapping[str, str]]:
    """What every `requirements.py` has under `name`."""
    for path in sorted(TESTS.rglob("requirements.py")):
        module = import_module(".".join(path.relative_to(TESTS.parent).with_suffix("").parts))
        yield getattr(module, name, {})


REQUIREMENTS = {id_: text for found in _lists("REQUIREMENTS") for id_, text in found.items()}
LATER = {id_: text for found in _lists("LATER") for id_, text in found.items()}


def _ids_in(text: str, name: str) -> Iterator[tuple[str, str]]:
    """The ids that the tests in the text of a file name, each with its test."""
    for node in ast.walk(ast.parse(text, name)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            where = f"{name}::{node.name}"
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and _is_requirement(decorator.func):
                    assert node.name.startswith("test_"), f"{where} names requirements and is no test"
                    assert decorator.args, f"{where} names no requirement"
                    for argument in decorator.args:
                        yield ast.literal_eval(argument), where


def _is_requirement(function: ast.expr) -> bool:
    return (isinstance(function, ast.Name) and function.id == "requirement") or (
        isinstance(function, ast.Attribute) and function.attr == "requirement"
    )


@pytest.fixture(scope="module")
def named() -> dict[str, list[str]]:
    """The tests that name each id."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for id_, where in _ids_in(path.read_text(encoding="utf-8"), path.relative_to(TESTS).as_posix()):
            found.setdefault(id_, []).append(where)
    return found


def test_every_requirement_has_a_test_that_names_it(named: dict[str, list[str]]) -> None:
    assert sorted(REQUIREMENTS.keys() - named.keys()) == []


def test_every_id_that_a_test_names_is_a_requirement(named: dict[str, list[str]]) -> None:
    unknown = {id_: where for id_, where in named.items() if id_ not in REQUIREMENTS and id_ not in LATER}
    assert unknown == {}


def test_what_comes_later_is_not_claimed_yet(named: dict[str, list[str]]) -> None:
    assert {id_: where for id_, where in named.items() if id_ in LATER} == {}


def test_an_id_stands_for_one_promise() -> None:
    ids = [id_ for name in ("REQUIREMENTS", "LATER") for found in _lists(name) for id_ in found]
    assert sorted(ids) == sorted(set(ids))


def test_an_id_is_found_however_the_marker_is_written() -> None:
    text = '@requirement("A", "B")\nasync def test_x(): ...\n\n@pytest.mark.requirement("C")\ndef test_y(): ...\n'
    assert list(_ids_in(text, "test_z.py")) == [
        ("A", "test_z.py::test_x"),
        ("B", "test_z.py::test_x"),
        ("C", "test_z.py::test_y"),
    ]
