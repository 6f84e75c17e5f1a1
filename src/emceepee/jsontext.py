"""JSON that others wrote, and JSON for others.

Python reads more than JSON has, and more than can be written again: `NaN`, a number that is too large and becomes
`Infinity`, and half of a character that is written as two escapes. Taken in, it would come out again much later, as
something else, or in a store or on a stream that cannot write it.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

__all__ = ["Unwritable", "dumps", "is_text", "loads", "repaired"]

_MAY_BE_HALF = re.compile(r"\\u[dD][89a-fA-F]")


NUMBER_SHOWN = 40
"""Characters; a number that is too large may be so by its length."""


class Unwritable(ValueError):
    """There is something in it that cannot be passed on; `value` is what was read, and only good to look around in."""

    def __init__(self, problem: str, value: Any) -> None:
        self.value = value
        super().__init__(problem)


def loads(data: str | bytes) -> Any:
    """
    Raises:
        ValueError: this is not JSON in UTF-8; or `Unwritable`.
        RecursionError: it is too deep.
    """
    text = data if isinstance(data, str) else data.decode("utf-8-sig")
    problems: list[str] = []

    def number(digits: str) -> float:
        if math.isinf(value := float(digits)):
            problems.append(f"the number {digits[:NUMBER_SHOWN]} is too large")
        return value

    value = json.loads(text, parse_constant=lambda word: problems.append(f"{word} is not JSON"), parse_float=number)
    if _MAY_BE_HALF.search(text) and not is_text(dumps(value)):
        problems.append("there is half of a character (a lone surrogate) in it")
    if problems:
        raise Unwritable(problems[0], value)
    return value


def dumps(value: object) -> str:
    """As short as can be."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def repaired(data: str | bytes) -> str:
    """The same JSON with a replacement character for each half of one; a server may cut a text anywhere.

    Raises:
        ValueError: this is not JSON, whatever is replaced.
        RecursionError: it is too deep.
    """
    return dumps(json.loads(data)).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_text(text: str) -> bool:
    """Whether there are only whole characters in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
