"""Kinds of settings that are more than a text or a number: lists, tables, URLs, tokens.

A list or a table is one in the file; variables and flags write it in one line, with commas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from emceepee.config.access import is_token

__all__ = ["AnyCase", "HostNames", "HttpUrl", "Token", "Tokens", "Words"]


def _words(value: object) -> object:
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(",") if word.strip())
    return tuple(value) if isinstance(value, list) else value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _pairs(value: object) -> object:
    if not isinstance(value, str):
        return value
    pairs = [word.partition("=") for word in value.split(",")]
    if not all(sign for _, sign, _ in pairs):
        raise ValueError("no =")
    return {name.strip(): token.strip() for name, _, token in pairs}


def _host_names(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        parts = urlsplit(f"//{name}")
        if parts.netloc != name or not parts.hostname or "@" in name or "*" in name:
            raise ValueError("no host name")
    return tuple(name.lower() for name in names)


def _http_url(url: str) -> str:
    if url:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("no URL")
    return url


def _token(token: str) -> str:
    if token and not is_token(token):
        raise ValueError("no token")
    return token


def _tokens(tokens: Mapping[str, str]) -> Mapping[str, str]:
    names_are_good = all(name and name.isprintable() and name == name.strip() for name in tokens)
    if not names_are_good or not all(map(is_token, tokens.values())) or len(set(tokens.values())) < len(tokens):
        raise ValueError("no tokens")
    return tokens


def _shown_as(kind: str, expected: str) -> WithJsonSchema:
    schema: dict[str, Any] = {"type": kind, "expected": expected}
    return WithJsonSchema(schema)


AnyCase = BeforeValidator(_lower)
"""For words that are commonly written in capitals as well."""

Words: TypeAlias = Annotated[
    tuple[str, ...], BeforeValidator(_words), _shown_as("array", "a list of words, or one line with commas")
]

HostNames: TypeAlias = Annotated[
    tuple[str, ...],
    BeforeValidator(_words),
    AfterValidator(_host_names),
    _shown_as("array", "host names such as hub.example or hub.example:8443"),
]

HttpUrl: TypeAlias = Annotated[
    str, AfterValidator(_http_url), _shown_as("string", "a URL with https:// or http://, and without a query")
]

Token: TypeAlias = Annotated[str, AfterValidator(_token), _shown_as("string", "visible ASCII characters, no blanks")]

Tokens: TypeAlias = Annotated[
    dict[str, str],
    BeforeValidator(_pairs),
    AfterValidator(_tokens),
    _shown_as("object", "a table of names, each with a token of its own in visible ASCII characters"),
]
