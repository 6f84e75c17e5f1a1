"""JSON from outside: what cannot go out again does not come in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emceepee.jsontext import Unwritable, dumps, loads, repaired

TEXTS = st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
)


@given(value=VALUES, is_ascii=st.booleans())
def test_json_is_read_and_written_whole(value: Any, is_ascii: bool) -> None:
    written = json.dumps(value, ensure_ascii=is_ascii)
    assert loads(written) == loads(written.encode()) == json.loads(repaired(written)) == value
    assert loads(dumps(value).encode()) == value


@pytest.mark.parametrize(
    "data",
    [
        r'"\ud800"',
        r'{"\uDFFF": 1}',
        r'["\udc00\ud800"]',
        rb'"\uD83D and no more"',
        b'"\xed\xa0\x80"',
        b'"\xff"',
        "NaN",
        '{"a": -Infinity}',
        "1e999",
        '{"a": [-1.5E+400]}',
        "1" * 400 + ".0",
        "{",
    ],
)
def test_what_is_no_json_or_cannot_be_written_again_is_refused(data: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (each in the words of whoever found it)
        loads(data)


@pytest.mark.parametrize("bad", [r'"\ud800"', "1e999", "NaN"])
def test_what_cannot_be_written_again_can_be_looked_at(bad: str) -> None:
    with pytest.raises(Unwritable) as refused:
        loads(f'{{"id": 7, "bad": {bad}}}')
    assert refused.value.value["id"] == 7
    assert "\ud800" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "value"), [("1e308", 1e308), ("-0.0", 0.0), ("1e-999", 0.0), ("10" * 200, int("10" * 200))]
)
def test_numbers_that_there_are_are_read(text: str, value: float) -> None:
    assert loads(text) == value


def test_a_whole_character_in_two_escapes_is_one() -> None:
    assert loads(r'"\ud83d\ude00"') == "😀"
    assert loads(r'"\\ud800"') == r"\ud800"


def test_half_a_character_is_replaced() -> None:
    assert json.loads(repaired(rb'{"text": "cut \ud83d", "\udc00": "\ud83d\ude00"}')) == {"text": "cut �", "�": "😀"}
