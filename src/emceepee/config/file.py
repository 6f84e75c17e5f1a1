"""The settings file: our own TOML, or the `mcpServers` JSON that every client has, with or without settings beside it.

TOML is ours alone, so a key that is not known is a mistake. JSON may belong to another client: what it has besides is
none of our business, unless one of our settings shows that the file is meant for us; and since it has its own idea of
names (`io.github.owner/repo`), a server whose name does not fit gets one that does. VS Code has its servers under
`servers`. Variables in the entries are expanded in `variables`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import ValidationError

from emceepee.config import jsonc
from emceepee.config.problems import WrongSettings, did_you_mean, nearest, printable
from emceepee.config.servers import ServerConfig, fitting_name, problems_of
from emceepee.config.settings import SETTING_NAMES, Layer, layer
from emceepee.config.variables import Expansion
from emceepee.errors import SettingsError

__all__ = ["FileSettings", "load_servers", "read_file"]

Format: TypeAlias = Literal["TOML", "JSON"]
JsonObject: TypeAlias = dict[str, Any]

SERVER_TABLES = ("servers", "mcpServers")
"""Where the servers are."""

_SERVER_KEYS = (*ServerConfig.model_fields, "type", "httpUrl", "serverUrl", "disabled")

_KEYS_OF_CLIENTS = frozenset(
    {
        "alwaysAllow",
        "auth",
        "authProviderType",
        "autoApprove",
        "description",
        "disabledTools",
        "enabled",
        "env_file",
        "envFile",
        "excludeTools",
        "icon",
        "includeTools",
        "networkTimeout",
        "oauth",
        "scopes",
        "source",
        "startup_timeout_sec",
        "timeout",
        "tool_timeout_sec",
        "tools",
        "transportType",
        "trust",
        "version",
    }
)
"""What clients put into their entries for themselves; none of these is a mistake."""

_EXAMPLE = 'expected {"mcpServers": {"name": {"command": …} or {"url": …}}}'


@dataclass(frozen=True, slots=True)
class FileSettings:
    layer: Layer
    servers: tuple[ServerConfig, ...]
    ignored: Mapping[str, str] = field(default_factory=dict)
    """Keys that mean nothing to us, each with the one that was probably meant."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Names of servers in another client's file that do not fit here, each with what the server is called instead."""


def load_servers(path: Path, environment: Mapping[str, str] = os.environ) -> list[ServerConfig]:
    """The servers of a settings file; entries that say `"disabled": true` are left out.

    Raises:
        SettingsError: the file cannot be read, or something in it is wrong; it names the key.
    """
    return list(read_file(path, environment).servers)


def read_file(path: Path, environment: Mapping[str, str]) -> FileSettings:
    """What a settings file says, with the variables of its servers taken from `environment`.

    Raises:
        WrongSettings: the file cannot be read, or something in it is wrong.
    """
    text = _text_of(path)
    kind = _format_of(path, text)
    document = _parsed(path, kind, text)
    tables = _tables(kind, document)
    problems: list[SettingsError] = []
    servers = _servers(path, kind, {table: document.get(table, {}) for table in tables}, environment, problems)
    try:
        values = _settings_of(kind, document, tables)
        found = layer(values, lambda name: f"{path}: {name}", strict=True, others=tables)
    except WrongSettings as error:
        raise WrongSettings([*error.problems, *problems]) from None
    if problems:
        # As everywhere here: a traceback shows the context, and what that quotes.
        raise WrongSettings(problems) from None
    ignored = _ignored(document, tables) if kind == "JSON" else {}
    renamed = {printable(name): server.name for name, server in servers.items() if name != server.name}
    return FileSettings(found, tuple(servers.values()), ignored, renamed)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        # The whole path: a relative one may have been looked for elsewhere than its writer thinks.
        raise WrongSettings([SettingsError(str(path.absolute()), f"cannot be read: {error.strerror}")]) from None
    except UnicodeDecodeError as error:
        raise WrongSettings([SettingsError(str(path), f"is not UTF-8: {error.reason}")]) from None


def _format_of(path: Path, text: str) -> Format:
    match path.suffix.lower():
        case ".toml":
            return "TOML"
        case ".json":
            return "JSON"
        case _:
            return "JSON" if text.lstrip().startswith("{") else "TOML"


def _parsed(path: Path, kind: Format, text: str) -> JsonObject:
    try:
        document = tomllib.loads(text) if kind == "TOML" else jsonc.loads(text)
    except (ValueError, RecursionError) as error:
        raise WrongSettings([SettingsError(str(path), f"is not {kind}: {error}")]) from None
    is_for_us = kind == "TOML" or (isinstance(document, dict) and any(_is_ours(key) for key in document))
    if not is_for_us:
        raise WrongSettings([SettingsError(f"{path}: mcpServers", _EXAMPLE)])
    return dict(document)


def _is_ours(key: str) -> bool:
    return key in SERVER_TABLES or key in SETTING_NAMES


def _tables(kind: Format, document: JsonObject) -> tuple[str, ...]:
    """The keys that hold servers. Beside the `mcpServers` of another client, `servers` may be anything."""
    if kind == "TOML":
        return SERVER_TABLES
    return ("servers",) if "servers" in document and "mcpServers" not in document else ("mcpServers",)


def _settings_of(kind: Format, document: JsonObject, tables: Sequence[str]) -> JsonObject:
    values = {key: value for key, value in document.items() if key not in tables and not key.startswith("$")}
    return values if kind == "TOML" or any(key in SETTING_NAMES for key in values) else {}


def _servers(
    path: Path,
    kind: Format,
    tables: Mapping[str, object],
    environment: Mapping[str, str],
    problems: list[SettingsError],
) -> dict[str, ServerConfig]:
    """By their names in the file."""
    found: dict[str, ServerConfig] = {}
    for table, entries in tables.items():
        if not isinstance(entries, dict):
            expected = "expected a table [servers.NAME] for each server" if kind == "TOML" else _EXAMPLE
            problems.append(SettingsError(f"{path}: {table}", expected))
            continue
        for name, entry in entries.items():
            key = f"{path}: {table}.{printable(name)}"
            try:
                server = _server(key, kind, name, entry, environment)
                if server is not None and any(server.name == other.name for other in found.values()):
                    raise SettingsError(key, f"expected another name: there is a server {server.name} already")
            except SettingsError as error:
                problems.append(error)
                continue
            if server is not None:
                found[name] = server
    return found


def _server(key: str, kind: Format, name: str, entry: object, environment: Mapping[str, str]) -> ServerConfig | None:
    if not isinstance(entry, dict):
        raise SettingsError(key, 'expected an object with a "command" or a "url"')
    if kind == "TOML":
        _refuse_strangers(key, entry)
    if entry.get("disabled") is True:
        return None
    expansion = Expansion(environment)
    expanded = expansion.of(entry)
    if expansion.problems:
        raise SettingsError(key, "; ".join(expansion.problems))
    try:
        known_as = name if kind == "TOML" else fitting_name(name) or name
        config = ServerConfig.model_validate({**expanded, "name": known_as})
        return config if expanded == entry else config.written_as(entry)
    except ValidationError as error:
        guesses = [f"{printable(stranger)} is not known; did you mean {meant}?" for stranger, meant in _misspelt(entry)]
        raise SettingsError(key, "; ".join([*problems_of(error), *guesses])) from None


def _ignored(document: JsonObject, tables: Sequence[str]) -> dict[str, str]:
    beside = {} if any(key in SETTING_NAMES for key in document) else document
    meant_for_us = {
        printable(key): meant
        for key in beside
        if key not in tables
        and key not in SETTING_NAMES
        and (meant := nearest(key, (*SETTING_NAMES, "mcpServers"))) is not None
    }
    return meant_for_us | {
        f"{table}.{printable(name)}.{printable(stranger)}": meant
        for table in tables
        for name, entry in document.get(table, {}).items()
        if entry.get("disabled") is not True
        for stranger, meant in _misspelt(entry)
    }


def _misspelt(entry: Mapping[str, object]) -> list[tuple[str, str]]:
    """The keys that look like one of ours, each with that one; the others may be another client's."""
    strangers = [key for key in entry if key not in _SERVER_KEYS and key not in _KEYS_OF_CLIENTS]
    return [(key, meant) for key in strangers if (meant := nearest(key, _SERVER_KEYS)) is not None]


def _refuse_strangers(key: str, entry: Mapping[str, object]) -> None:
    for stranger in entry:
        if stranger in SETTING_NAMES:
            # In TOML everything below a table's head belongs to that table.
            raise SettingsError(f"{key}.{stranger}", "expected above the first [table], where the hub's settings are")
        if stranger not in _SERVER_KEYS:
            meant = did_you_mean(stranger, _SERVER_KEYS)
            raise SettingsError(f"{key}.{printable(stranger)}", f"there is no such key of a server{meant}")
