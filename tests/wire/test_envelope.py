"""Messages as servers write them: what can be understood is, and what cannot is refused with a plain error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp_types import JSONRPCError, JSONRPCResponse

from emceepee.wire.envelope import decode


def response(result: str) -> bytes:
    return b'{"jsonrpc": "2.0", "id": 1, "result": %s}' % result.encode()


def test_a_text_that_was_cut_in_the_middle_of_a_character_arrives() -> None:
    (message,) = decode(response(r'{"text": "cut \ud83d"}'))
    assert isinstance(message, JSONRPCResponse)
    assert message.result == {"text": "cut �"}


@pytest.mark.parametrize("result", ["7", '"text"', "null"])
def test_a_response_that_is_no_result_is_an_error_for_its_request(result: str) -> None:
    (message,) = decode(response(result))
    assert isinstance(message, JSONRPCError)
    assert (message.id, message.error.message) == (1, "the server answered with something that is no result")


@pytest.mark.parametrize("data", [b"", b"{", b"[]x", b'{"jsonrpc": "2.0"}', b"\xff", response("[" * 5000 + "]" * 5000)])
def test_what_is_no_message_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (in the words of whoever found it)
        decode(data)


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def test_a_deep_message_is_understood_or_refused_but_breaks_nothing() -> None:
    (message,) = decode(response(json.dumps(nested(100))))
    assert isinstance(message, JSONRPCResponse)
    with pytest.raises(ValueError):  # noqa: PT011
        decode(response('{"a":' * 1500 + "{}" + "}" * 1500))
