"""The kinds of clients, which are the columns of the table, and the programs that stand for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tests.bridge.cases import Asked, Case
from tests.bridge.servers import Transport

__all__ = ["CLIENT_KINDS", "PROGRAMS", "ROLES", "ClientKind", "ProgramName", "Role"]

ClientKind: TypeAlias = Literal[
    "handshake, tools only", "handshake, can be asked", "2025-11-25 with tasks", "modern", "modern with tasks"
]
ProgramName: TypeAlias = Literal["python", "npm", "sdk", "fastmcp", "library"]

CLIENT_KINDS: Mapping[ClientKind, str] = {
    "handshake, tools only": "declares nothing",
    "handshake, can be asked": "declares elicitation and sampling",
    "2025-11-25 with tasks": "the same, and calls with `task`",
    "modern": "2026-07-28, declares elicitation and sampling",
    "modern with tasks": "2026-07-28, declares the tasks extension as well",
}

PROGRAMS: Mapping[ProgramName, str] = {
    "python": "pip `mcp` 1.30",
    "npm": "npm `@modelcontextprotocol/sdk` 1.x",
    "sdk": "pip `mcp` 2.3",
    "fastmcp": "`fastmcp` 4.1, which cannot be asked for sampling inside a task",
    "library": "our own `emceepee.client`, where no other client can do it: sampling inside a task",
}

EVERYTHING: frozenset[Asked] = frozenset({"elicitation", "sampling", "url"})


@dataclass(frozen=True, slots=True)
class Role:
    """A program that behaves as one kind of client."""

    kind: ClientKind
    program: ProgramName
    answers: frozenset[Asked] = EVERYTHING
    """What it has declared that it can be asked."""
    as_task: bool = False
    is_modern: bool = False

    def __str__(self) -> str:
        return f"{self.kind.replace(',', '').replace(' ', '-')}-{self.program}"

    @property
    def connections(self) -> str:
        """What the names of its connections begin with: roles that declare the same share them."""
        return self.program if self.answers else f"{self.program}-mute"

    @property
    def session(self) -> str:
        """Whose state it uses at the hub's own tools: modern clients share a workspace."""
        return "workspace" if self.is_modern else self.connections

    def tries(self, case: Case, transport: Transport) -> bool:
        """Where two programs stand for one kind of client, each meets servers that are not of its own SDK.

        Over stdio every server is one more program for each client, so there the slower ones are left to one of them.
        """
        if self.program == "library":
            return case.asks == "sampling"
        if self.program == "python" and self.answers:
            return case.server in ("npm", "rounds") or case.kind == "extension task with inputs"
        if self.program == "npm":
            return case.server == "python" or (case.server == "fastmcp" and transport == "HTTP")
        return True


ROLES: tuple[Role, ...] = (
    Role("handshake, tools only", "python", answers=frozenset()),
    Role("handshake, can be asked", "python"),
    Role("handshake, can be asked", "npm"),
    Role("2025-11-25 with tasks", "python", as_task=True),
    Role("2025-11-25 with tasks", "npm", as_task=True),
    Role("modern", "sdk", is_modern=True),
    Role("modern with tasks", "fastmcp", frozenset({"elicitation", "url"}), is_modern=True),
    Role("modern with tasks", "library", is_modern=True),
)
