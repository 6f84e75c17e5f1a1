"""JSON as editors have it in their settings: with comments, and commas after the last item."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["loads"]

_COMMENT = r"//[^\n]*|/\*.*?\*/"
_STRING_OR_EXTRA = re.compile(rf'"(?:\\.|[^"\\])*"|{_COMMENT}|,(?=(?:\s|{_COMMENT})*[}}\]])', re.DOTALL)


def loads(text: str) -> Any:
    """
    Raises:
        ValueError: it is no JSON; the place is that in `text`.
    """
    return json.loads(_STRING_OR_EXTRA.sub(_blanked, text))


def _blanked(found: re.Match[str]) -> str:
    extra = found[0]
    return extra if extra.startswith('"') else re.sub(r"[^\n]", " ", extra)
