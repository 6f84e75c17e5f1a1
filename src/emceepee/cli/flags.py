"""A flag for each setting, made from the table of settings."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from emceepee.config.settings import SETTING_NAMES, Described, described
from emceepee.config.sources import flag_of

__all__ = ["add_flags", "given_flags"]


def add_flags(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """Flags that take any text: they are judged together with the other sources, and not one by one."""
    for name in names:
        parser.add_argument(flag_of(name), default=None, **_shape(described(name)))


def given_flags(options: argparse.Namespace) -> dict[str, str | bool]:
    """The settings that were given as flags."""
    return {name: value for name in SETTING_NAMES if (value := getattr(options, name, None)) is not None}


def _shape(setting: Described) -> dict[str, Any]:
    if setting.kind == "boolean":
        return {"action": argparse.BooleanOptionalAction, "help": setting.help}
    return {
        "metavar": _metavar(setting),
        "help": setting.help + (f"; default: {setting.default}" if setting.default else ""),
    }


def _metavar(setting: Described) -> str:
    if setting.choices:
        return "|".join(setting.choices)
    if setting.kind == "integer":
        return next((unit.upper() for unit in ("ms", "bytes") if setting.name.endswith(f"_{unit}")), "N")
    return setting.name.upper()
