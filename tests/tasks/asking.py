"""Connections of the library that answer every question as it comes, and keep a record."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc

from emceepee.client import ClientOptions, Question, ServerConnection, Target, connect
from tests.tasks.cases import answer_to
from tests.tasks.peers import PeerName, Servers, Transport

__all__ = ["LIMIT_S", "Asked", "Connections", "connections", "text_of"]

LIMIT_S = 180
"""The slowest program starts in seconds on a busy machine; only a hang meets this."""


@dataclass
class Asked:
    """A connection, and the questions that it was asked and has answered."""

    server: ServerConnection
    questions: list[Question] = field(default_factory=list)

    async def answer_all(self) -> None:
        async for question in self.server.questions():
            self.questions.append(question)
            await question.respond(answer_to(question.kind, question.params))

    def questions_of(self, origin: object) -> list[Question]:
        return [question for question in self.questions if question.belongs_to.call is origin]


class Connections:
    """One connection for each peer and transport, opened when it is first asked for and kept for the next test."""

    def __init__(self, servers: Servers, tasks: anyio.abc.TaskGroup) -> None:
        self._servers = servers
        self._tasks = tasks
        self._open: dict[tuple[PeerName, Transport], Asked] = {}

    async def to(self, peer: PeerName, transport: Transport) -> Asked:
        key = peer, transport
        if key not in self._open:
            target = self._servers.target(peer, transport)
            self._open[key] = await self._tasks.start(self._own, target)
        return self._open[key]

    async def _own(self, target: Target, *, task_status: anyio.abc.TaskStatus[Asked]) -> None:
        async with connect(target, options=ClientOptions(receiver_tasks=True)) as server:
            await server.list_tools()
            asked = Asked(server)
            task_status.started(asked)
            await asked.answer_all()


@asynccontextmanager
async def connections(servers: Servers) -> AsyncIterator[Connections]:
    async with anyio.create_task_group() as tasks:
        yield Connections(servers, tasks)
        tasks.cancel_scope.cancel()


def text_of(result: Mapping[str, Any]) -> str:
    """The text of a result's first block."""
    text: str = result["content"][0]["text"]
    return text
