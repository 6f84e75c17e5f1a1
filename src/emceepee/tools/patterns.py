"""Names by pattern: a glob, or a regular expression between slashes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate

from emceepee.errors import InvalidArguments

__all__ = ["matching"]


def matching(names: Iterable[str], pattern: str | None, key: str) -> list[str]:
    """The names that fit `pattern`; all of them without one. A glob has to fit the whole name.

    Raises:
        InvalidArguments: the argument `key` is not a regular expression.
    """
    if pattern is None:
        return list(names)
    is_regex = len(pattern) > 1 and pattern.startswith("/") and pattern.endswith("/")
    try:
        expression = re.compile(pattern[1:-1] if is_regex else translate(pattern))
    except re.error as error:
        raise InvalidArguments([f"{key}: {pattern!r} is not a regular expression: {error}"]) from None
    return [name for name in names if (expression.search if is_regex else expression.match)(name)]
