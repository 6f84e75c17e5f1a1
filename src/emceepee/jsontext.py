"""JSON that others wrote, and JSON for others.

Python reads more than JSON has, and more than UTF-8 can carry: `NaN`, and half of a character that is written as two
escapes. Taken in, it would come out again much later, in a store or on a stream that cannot write it.
"""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["dumps", "loads", "repaired"]

_MAY_BE_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def loads(data: str | bytes) -> Any:
    """
    Raises:
        ValueError: this is not JSON in UTF-8.
        RecursionError: it is too deep.
    """
    text = data if isinstance(data, str) else data.decode("utf-8-sig")
    value = json.loads(text, parse_constant=_refuse)
    if _MAY_BE_HALF.search(text):
        dumps(value).encode()
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


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
