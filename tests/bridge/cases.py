"""What is tried: every way in which a server does its work, with the programs that do it so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tests.bridge.servers import ServerName

__all__ = ["CASES", "SERVER_KINDS", "Asked", "Case", "ServerKind"]

ServerKind: TypeAlias = Literal[
    "answers at once",
    "takes long",
    "blocks on an elicitation",
    "blocks on sampling",
    "2025-11-25 task that asks",
    "asks with a task of its own",
    "wants a URL opened first",
    "`input_required`",
    "extension task with inputs",
]

Asked: TypeAlias = Literal["elicitation", "sampling", "url"]

SERVER_KINDS: Mapping[ServerKind, Asked | None] = {
    "answers at once": None,
    "takes long": None,
    "blocks on an elicitation": "elicitation",
    "blocks on sampling": "sampling",
    "2025-11-25 task that asks": "elicitation",
    "asks with a task of its own": "elicitation",
    "wants a URL opened first": "url",
    "`input_required`": "elicitation",
    "extension task with inputs": "elicitation",
}
"""The rows of the table, and what a client has to be able to answer there."""


@dataclass(frozen=True, slots=True)
class Case:
    """One tool of one program; what it asks, and what it answers, holds a word that tells one call from another."""

    server: ServerName
    kind: ServerKind
    tool: str
    text: str
    """The result, with `{word}` in it if that comes back."""
    argument: str = "question"
    """Which argument takes the word."""

    def __str__(self) -> str:
        return f"{self.server}-{self.tool}"

    @property
    def asks(self) -> Asked | None:
        return SERVER_KINDS[self.kind]

    @property
    def takes_long(self) -> bool:
        return self.kind == "takes long"

    def arguments(self, word: str) -> dict[str, Any]:
        return {self.argument: f"{word}?" if self.argument == "question" else word}

    def expected(self, word: str) -> str:
        return self.text.format(word=word)


CASES: list[Case] = [
    *(Case(name, "answers at once", "echo", "{word}", "text") for name in ("python", "npm", "rounds", "fastmcp")),
    *(Case(name, "takes long", "wait", "waited at {word}", "gate") for name in ("python", "npm", "rounds")),
    *(Case(name, "blocks on an elicitation", "elicit", "accept {word}") for name in ("python", "npm")),
    *(Case(name, "blocks on sampling", "sample", "m said word") for name in ("python", "npm")),
    *(Case(name, "2025-11-25 task that asks", "elicit_inside", "accept {word}") for name in ("python", "npm")),
    *(Case(name, "asks with a task of its own", "elicit_as_task", "accept {word}") for name in ("python", "npm")),
    *(Case(name, "wants a URL opened first", "open_url", "opened {word}") for name in ("python", "npm")),
    *(Case(name, "`input_required`", "ask", "accept {word}, asked once") for name in ("rounds", "fastmcp")),
    Case("fastmcp", "extension task with inputs", "ask_one", "accept {word}"),
]
