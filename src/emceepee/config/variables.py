"""Variables in the servers of a settings file: `${VAR}`, `${VAR:-default}` and `${env:VAR}`, as clients write them.

Only files have them. What a client sends with `add_server` is taken as it is: it must not read our environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emceepee.config.problems import printable

__all__ = ["Expansion"]

_FIELDS = ("command", "args", "env", "cwd", "url", "httpUrl", "serverUrl", "headers", "oauth", "auth")
"""Keys of a server whose texts may have variables in them."""

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}")
_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-((?:(?!\$\{).)*))?", re.DOTALL)
_OF_EDITORS = re.compile(r"(workspaceFolder\w*|file\w*|relativeFile\w*|cwd|execPath|input|command|config)(:[^-].*)?")
"""What VS Code and Cursor put in, and nobody else can."""

_WRITE = "write ${VAR}, ${VAR:-default} or ${env:VAR}, and $${ for ${ itself"


class Expansion:
    """Puts values in the place of variables, and notes in `problems` what it has none for, with keys but no values."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.problems: list[str] = []

    def of(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """A server's entry with every variable expanded."""
        return {key: self._in(key, value) if key in _FIELDS else value for key, value in entry.items()}

    def _in(self, key: str, value: Any, levels: int = 2) -> Any:
        if isinstance(value, str):
            return _REFERENCE.sub(lambda found: self._value(key, found), value)
        if isinstance(value, list) and levels:
            return [self._in(f"{key}.{position}", item, levels - 1) for position, item in enumerate(value)]
        if isinstance(value, dict) and levels:
            return {name: self._in(f"{key}.{printable(name)}", item, levels - 1) for name, item in value.items()}
        return value

    def _value(self, key: str, found: re.Match[str]) -> str:
        inside = found[1]
        if inside is None:
            return "${"
        if inside == "userHome":
            return str(Path.home())
        if inside in ("pathSeparator", "/"):
            return os.sep
        variable = _VARIABLE.fullmatch(inside)
        # Set counts, even to nothing: so do clients take `:-`, unlike shells.
        if variable is not None and (value := self._environment.get(variable[1], variable[2])) is not None:
            return value
        self.problems.append(f"{key}: {_complaint(inside, variable)}")
        return ""


def _complaint(inside: str, variable: re.Match[str] | None) -> str:
    # Only names are quoted: the rest may be a secret.
    if (editors := _OF_EDITORS.fullmatch(inside)) is not None:
        shown = f"${{{editors[1]}{':…' if editors[2] else ''}}}"
        instead = "set a variable and write ${env:NAME}" if editors[1] == "input" else "write what it stands for"
        return f"{shown} means something to an editor only; {instead}"
    if variable is not None:
        return f"the variable {variable[1]} is not set; set it, or write ${{{variable[1]}:-default}}"
    return f"has a ${{…}} that is not known here; {_WRITE}"
