"""How to reach a server: one entry of the `mcpServers` that every client has."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)

__all__ = ["OAuthConfig", "ServerConfig", "TransportChoice", "fitting_name", "problems_of"]

TransportChoice: TypeAlias = Literal["auto", "http", "sse", "stdio"]
EraChoice: TypeAlias = Literal["auto", "handshake", "modern"]
AuthChoice: TypeAlias = Literal["auto", "none", "oauth"]

_TRANSPORT_WORDS: Mapping[str, TransportChoice] = {
    "streamable-http": "http",
    "streamable_http": "http",
    "streamablehttp": "http",
}
"""What other clients call our `http`."""


_MISFITS = re.compile(r"[^A-Za-z0-9_.-]+")


def fitting_name(name: str) -> str:
    """What a server that somebody called `name` may be called here; empty if nothing of it is left."""
    fits = _MISFITS.search(name) is None and name.strip(".")
    return name if fits else _MISFITS.sub("-", name).strip("-.")


class OAuthConfig(BaseModel):
    """What is arranged with the issuer of a server that wants OAuth; without anything the hub registers itself."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    client_id: str | None = Field(default=None, validation_alias=AliasChoices("client_id", "clientId", "CLIENT_ID"))
    client_secret: str | None = Field(
        default=None, repr=False, validation_alias=AliasChoices("client_secret", "clientSecret", "CLIENT_SECRET")
    )
    scopes: tuple[str, ...] = ()
    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    issuer: str | None = None
    callback_port: int | None = Field(
        default=None, ge=1, le=65_535, validation_alias=AliasChoices("callback_port", "callbackPort")
    )
    """The port of the redirect URI that the issuer knows, for `emceepee login`."""

    @model_validator(mode="after")
    def _complete(self) -> OAuthConfig:
        if self.grant == "client_credentials" and not (self.client_id and self.client_secret and self.issuer):
            raise ValueError("client_credentials needs client_id, client_secret, and the issuer that they are for")
        return self


class ServerConfig(BaseModel):
    """How to reach one server.

    Headers, environment, and user info and query of the URL are secrets: they are in no `repr`, and in no `public()`.
    Nor are the values of variables in a file, wherever they stand: both show what is written there.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    name: str = Field(min_length=1, max_length=100)
    url: str | None = Field(default=None, validation_alias=AliasChoices("url", "httpUrl", "serverUrl"))
    command: str | None = Field(default=None, min_length=1)
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict, repr=False)
    cwd: str | None = None
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    transport: TransportChoice = Field(default="auto", validation_alias=AliasChoices("transport", "type"))
    era: EraChoice = "auto"
    auth: AuthChoice = "auto"
    """Whether tokens of `emceepee login` go with the requests: `auto` unless there is an `Authorization` header."""
    oauth: OAuthConfig | None = None

    _written: dict[str, Any] = PrivateAttr(default_factory=dict)
    """What of `url`, `command`, `args` and `cwd` is to be shown as it is written."""

    @field_validator("name")
    @classmethod
    def _fits_everywhere(cls, name: str) -> str:
        if (fitting := fitting_name(name)) != name:
            instead = f": say, {fitting}" if fitting else ""
            raise ValueError(
                "expected letters from A to Z, digits, and _ . - alone, for it becomes a part of URLs and of the names "
                f"of tools{instead}"
            )
        return name

    @field_validator("url")
    @classmethod
    def _http_url(cls, url: str | None) -> str | None:
        if url is not None and not _has_http_host(url):
            raise ValueError("expected a URL that begins with http:// or https:// and a host")
        return url

    @field_validator("transport", mode="before")
    @classmethod
    def _known_word(cls, word: object) -> object:
        return _TRANSPORT_WORDS.get(word.lower(), word.lower()) if isinstance(word, str) else word

    @model_validator(mode="before")
    @classmethod
    def _as_others_write_it(cls, entry: Any) -> Any:
        """Some clients have under `auth` what is `oauth` here."""
        if isinstance(entry, dict) and isinstance(entry.get("auth"), dict):
            return {**entry, "auth": "oauth", "oauth": entry["auth"]}
        return entry

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

    @property
    def missing_program(self) -> str | None:
        """The command, as it is written, if there is no such program here."""
        if self.command is None:
            return None
        # A path is taken from where the program would be started, a bare name is looked up in its own PATH.
        program = os.path.join(self.cwd, self.command) if self.cwd and os.path.dirname(self.command) else self.command
        found = shutil.which(program, path=self.env.get("PATH"))
        return str(self._written.get("command", self.command)) if found is None else None

    @property
    def may_use_oauth(self) -> bool:
        if self.url is None:
            return False
        has_credentials = "@" in urlsplit(self.url).netloc or any(
            name.lower() == "authorization" for name in self.headers
        )
        return self.auth == "oauth" or (self.auth == "auto" and not has_credentials)

    def written_as(self, entry: Mapping[str, Any]) -> ServerConfig:
        """The same server, of which is shown what stands in `entry`, where variables are not expanded."""
        url = next((entry[key] for key in ("url", "httpUrl", "serverUrl") if key in entry), None)
        config = self.model_copy()
        config._written = {"url": url, **{key: entry[key] for key in ("command", "args", "cwd") if key in entry}}
        return config

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for key, value in super().__repr_args__():
            shown = self._written.get(key or "", value)
            yield key, _without_secrets(shown) if key == "url" and shown is not None else shown

    def public(self) -> dict[str, Any]:
        """What may be shown of it: no header, no environment, no user info and no query in the URL."""
        if self.url is not None:
            return {"name": self.name, "url": _without_secrets(self._written.get("url") or self.url)}
        words = (self.command or "", *self.args)
        if self._written:
            words = (self._written["command"], *self._written.get("args", ()))
        return {"name": self.name, "command": " ".join(words)}


def _has_http_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _without_secrets(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        # As it is written, with a variable where an address has to be, it may be no URL.
        return ""
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


_EXPECTED = {
    "tuple_type": 'expected a list, such as ["one", "two"]',
    "dict_type": 'expected an object, such as {"NAME": "text"}',
    "string_type": "expected a text, in quotes",
    "int_type": "expected a whole number",
    "bool_type": "expected true or false",
    "missing": "it is required",
    "extra_forbidden": "there is no such key",
}
"""Our words for what is wrong, by pydantic's name for it; the rest it says well itself."""


def problems_of(error: ValidationError) -> list[str]:
    """What is wrong, one line each, with the key in front and never the value: it may be a secret."""
    return [
        f"{'.'.join(str(part) for part in problem['loc'])}: {text}" if problem["loc"] else text
        for problem in error.errors(include_url=False, include_input=False)
        for text in [_EXPECTED.get(problem["type"]) or problem["msg"].removeprefix("Value error, ")]
    ]
