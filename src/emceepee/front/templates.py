"""How well a resource's URI fits the templates that servers list (RFC 6570)."""

from __future__ import annotations

import re

__all__ = ["fits", "prefix_of"]

MAX_URI = 8192
"""Longer ones are not looked at: nobody writes them, and it would take long."""

_EXPRESSION = re.compile(r"\{([^{}]*)\}")

_MAY_BE_ANYTHING = ("+", "#", "/", "?", "&")
"""The operators of expressions that stand for anything, or for nothing; others stand for a part without a slash."""


def prefix_of(template: str) -> str:
    """What every URI of the template begins with."""
    return template.partition("{")[0]


def fits(template: str, uri: str) -> bool:
    """Whether the template may have given the URI; in steps that no template can make many."""
    if len(uri) > MAX_URI:
        return False
    reached = {0}
    for number, part in enumerate(_EXPRESSION.split(template)):
        if number % 2 == 0:
            reached = {at + len(part) for at in reached if uri.startswith(part, at)}
        elif part.startswith(_MAY_BE_ANYTHING):
            reached = set(range(min(reached), len(uri) + 1))
        else:
            reached = _within_a_part(uri, reached)
        if not reached:
            return False
    return len(uri) in reached


def _within_a_part(uri: str, reached: set[int]) -> set[int]:
    """Where at least one character that is no slash may lead to."""
    found: set[int] = set()
    for start in sorted(reached):
        at = start
        while at < len(uri) and uri[at] != "/" and at + 1 not in found:
            at += 1
            found.add(at)
    return found
