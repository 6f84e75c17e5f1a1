"""Programs that we leave behind if we are killed: marked when they are started, and ended by whoever comes after us."""

from __future__ import annotations

from dataclasses import replace

from emceepee.client.targets import Stdio, Target
from emceepee.wire.process import PLACE_VARIABLE, end_leftovers

__all__ = ["end_leftovers", "marked"]


def marked(target: Target, place: str) -> Target:
    """`target`; if it is a program, with a mark by which `end_leftovers` finds what belongs to `place`."""
    return replace(target, env={**target.env, PLACE_VARIABLE: place}) if isinstance(target, Stdio) else target
