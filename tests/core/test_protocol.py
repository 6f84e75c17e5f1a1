from __future__ import annotations

from typing import Any

import pytest

from emceepee.protocol import meta_of, with_meta, without_meta


@pytest.mark.parametrize("nonsense", [None, 5, "text", ["a"]])
def test_a_meta_that_is_no_object_says_nothing(nonsense: Any) -> None:
    message = {"name": "echo", "_meta": nonsense}
    assert meta_of(message) == {}
    assert with_meta(message, {"key": 1}) == {"name": "echo", "_meta": {"key": 1}}
    assert without_meta(message, {"key"}) == {"name": "echo"}


def test_what_is_added_joins_what_is_there() -> None:
    assert with_meta({"_meta": {"a": 1, "b": 2}}, {"b": 3}) == {"_meta": {"a": 1, "b": 3}}


def test_the_rest_of_the_meta_stays() -> None:
    assert without_meta({"_meta": {"a": 1, "b": 2}}, {"b"}) == {"_meta": {"a": 1}}
    assert without_meta({"name": "echo", "_meta": {"b": 2}}, {"b"}) == {"name": "echo"}


def test_a_message_is_never_changed() -> None:
    message = {"_meta": {"a": 1}}
    with_meta(message, {"b": 2})
    without_meta(message, {"a"})
    assert message == {"_meta": {"a": 1}}
