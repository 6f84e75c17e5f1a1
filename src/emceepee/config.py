"""Settings, parsed once at the edge into frozen values.

`ServerConfig` is one entry of the `mcpServers` JSON that every client uses; `load_servers` reads such a file as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from emceepee.core.state import SessionLimits
from emceepee.errors import SettingsError

__all__ = ["HttpSettings", "HubSettings", "ServerConfig", "TransportChoice", "load_servers", "problems_of"]

TransportChoice: TypeAlias = Literal["auto", "http", "sse", "stdio"]
EraChoice: TypeAlias = Literal["auto", "handshake", "modern"]

_TRANSPORT_WORDS: Mapping[str, TransportChoice] = {
    "streamable-http": "http",
    "streamable_http": "http",
    "streamablehttp": "http",
}
"""What other clients call our `http`."""


class ServerConfig(BaseModel):
    """How to reach one server. Headers and environment are secrets: they are in no `repr`, and in no `public()`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str = Field(min_length=1, max_length=100)
    url: str | None = None
    command: str | None = Field(default=None, min_length=1)
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict, repr=False)
    cwd: str | None = None
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    transport: TransportChoice = Field(default="auto", validation_alias=AliasChoices("transport", "type"))
    era: EraChoice = "auto"

    @field_validator("name")
    @classmethod
    def _printable(cls, name: str) -> str:
        if not name.isprintable() or name != name.strip():
            raise ValueError("expected printable characters, without blanks around them")
        return name

    @field_validator("url")
    @classmethod
    def _http_url(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("http://", "https://")):
            raise ValueError("expected a URL that begins with http:// or https://")
        return url

    @field_validator("transport", mode="before")
    @classmethod
    def _known_word(cls, word: object) -> object:
        return _TRANSPORT_WORDS.get(word.lower(), word.lower()) if isinstance(word, str) else word

    @model_validator(mode="after")
    def _one_way_to_reach_it(self) -> ServerConfig:
        if (self.url is None) == (self.command is None):
            raise ValueError("expected either a url, or a command with its args")
        if self.transport == "stdio" and self.command is None:
            raise ValueError("transport stdio needs a command")
        if self.transport in ("http", "sse") and self.url is None:
            raise ValueError(f"transport {self.transport} needs a url")
        return self

    @property
    def is_program(self) -> bool:
        return self.command is not None

    def public(self) -> dict[str, Any]:
        """What may be shown of it: no header, no environment, no user info and no query in the URL."""
        if self.url is not None:
            return {"name": self.name, "url": _without_secrets(self.url)}
        return {"name": self.name, "command": " ".join((self.command or "", *self.args))}


def _without_secrets(url: str) -> str:
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    host = authority.rpartition("@")[2].partition("?")[0].partition("#")[0]
    return f"{scheme}://{host}{slash}{path.partition('?')[0].partition('#')[0]}"


@dataclass(frozen=True, slots=True)
class HubSettings:
    limits: SessionLimits = field(default_factory=SessionLimits)
    max_sessions: int = 1000
    session_idle_ms: int = 1_800_000
    default_timeout_ms: int = 120_000


@dataclass(frozen=True, slots=True)
class HttpSettings:
    host: str = "127.0.0.1"
    port: int = 8080
    allow_spawn: bool = False
    """Whether a client may have programs started with `add_server`."""
    max_body_bytes: int = 4 * 1024 * 1024
    keepalive_seconds: float = 15.0


def load_servers(path: Path) -> list[ServerConfig]:
    """The servers of an `mcpServers` JSON file; entries that say `"disabled": true` are left out.

    Raises:
        SettingsError: the file cannot be read, or an entry is wrong; it names the key.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(str(path), f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(str(path), f"is not JSON: {error}") from None
    entries = document.get("mcpServers") if isinstance(document, dict) else None
    if not isinstance(entries, dict):
        raise SettingsError(f"{path}: mcpServers", 'expected {"mcpServers": {"name": {"command": …} or {"url": …}}}')
    return [
        _server(path, name, entry)
        for name, entry in entries.items()
        if not (isinstance(entry, dict) and entry.get("disabled") is True)
    ]


def _server(path: Path, name: str, entry: object) -> ServerConfig:
    key = f"{path}: mcpServers.{name}"
    if not isinstance(entry, dict):
        raise SettingsError(key, 'expected an object with a "command" or a "url"')
    try:
        return ServerConfig.model_validate({**entry, "name": name})
    except ValidationError as error:
        raise SettingsError(key, "; ".join(problems_of(error))) from None


def problems_of(error: ValidationError) -> list[str]:
    """What is wrong, one line each, with the key in front and never the value: it may be a secret."""
    return [
        f"{'.'.join(str(part) for part in problem['loc'])}: {text}" if problem["loc"] else text
        for problem in error.errors(include_url=False, include_input=False)
        for text in [problem["msg"].removeprefix("Value error, ")]
    ]
