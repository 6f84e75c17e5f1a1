"""What a call does at its server: call a tool, read a resource, get a prompt.

Each gives a `CallToolResult`, so that whatever became a task has its result fetched in one way.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from emceepee.client import OnBehalfOf, Resumption, ServerConnection, TaskCreated, TaskStatus
from emceepee.errors import ConnectionLost
from emceepee.hub.link import Link

__all__ = ["Forwarded", "Observer", "PromptGet", "ResourceRead", "ToolCall", "Work"]

JsonObject: TypeAlias = dict[str, Any]


class Observer(Protocol):
    """The call that work is done for."""

    @property
    def ttl_ms(self) -> int:
        """How long a task of it may live."""
        ...

    @property
    def resumption(self) -> Resumption:
        """How to go on with it on another connection."""
        ...

    @property
    def is_waited_for(self) -> bool:
        """Whether its client waits for the response, and does not have a task instead."""
        ...

    async def on_progress(self, progress: float, total: float | None, message: str | None) -> None: ...

    def on_server_task(self, update: TaskCreated | TaskStatus) -> None:
        """The server has made a task of it, or has news of that task."""
        ...


class Work(Protocol):
    @property
    def tool(self) -> str:
        """What it is called in a task."""
        ...

    @property
    def args(self) -> Mapping[str, Any]: ...

    async def run(self, link: Link, call: Observer) -> JsonObject:
        """Do it; questions that come up meanwhile belong to `call`."""
        ...


@dataclass(frozen=True, slots=True)
class ToolCall:
    tool: str
    args: Mapping[str, Any]

    async def run(self, link: Link, call: Observer) -> JsonObject:
        resumption = call.resumption
        server = await (link.back() if resumption.is_possible else link.server_for_tool(self.tool))
        is_second_try = False
        while True:
            try:
                return await server.call_tool_task(
                    self.tool,
                    self.args,
                    ttl_ms=call.ttl_ms,
                    origin=call,
                    on_progress=call.on_progress,
                    on_task=call.on_server_task,
                    resumption=resumption,
                )
            except ConnectionLost as lost:
                if not resumption.is_possible and (lost.was_taken or is_second_try):
                    raise
            # A server that was restarted knows nothing of our session, nor of the call, which can go to the new one.
            is_second_try = True
            server = await (link.back() if resumption.is_possible else link.connected())


@dataclass(frozen=True, slots=True)
class Forwarded:
    """A client's own request, for the server as it is."""

    method: str
    params: Mapping[str, Any]
    client: OnBehalfOf | None = None
    passes_urls: bool = False
    """Whether the client itself sees to URLs that the server wants opened first."""
    takes_tasks: bool = False
    wants_progress: bool = False

    @property
    def tool(self) -> str:
        name = self.params.get("name")
        return name if self.method == "tools/call" and isinstance(name, str) else self.method

    @property
    def args(self) -> Mapping[str, Any]:
        arguments = self.params.get("arguments") if self.method == "tools/call" else self.params
        return arguments if isinstance(arguments, Mapping) else {}

    async def run(self, link: Link, call: Observer) -> JsonObject:
        resumption = call.resumption
        server = await link.connected()
        is_second_try = False
        while True:
            try:
                return await server.forward(
                    self.method,
                    self.params,
                    client=self.client,
                    passes_urls=self.passes_urls,
                    is_waited_for=lambda: call.is_waited_for,
                    task_ttl_ms=call.ttl_ms if self.takes_tasks else None,
                    on_progress=call.on_progress if self.wants_progress else None,
                    on_task=call.on_server_task,
                    origin=call,
                    resumption=resumption,
                )
            except ConnectionLost as lost:
                if not resumption.is_possible and (lost.was_taken or is_second_try):
                    raise
            is_second_try = True
            server = await (link.back() if resumption.is_possible else link.connected())


@dataclass(frozen=True, slots=True)
class ResourceRead:
    uri: str
    tool: str = "read_resource"

    @property
    def args(self) -> Mapping[str, Any]:
        return {"uri": self.uri}

    async def run(self, link: Link, call: Observer) -> JsonObject:
        return _as_text(await _asked(link, lambda server: server.read_resource(self.uri, origin=call)))


@dataclass(frozen=True, slots=True)
class PromptGet:
    name: str
    arguments: Mapping[str, str]
    tool: str = "get_prompt"

    @property
    def args(self) -> Mapping[str, Any]:
        return {"name": self.name, "arguments": dict(self.arguments)}

    async def run(self, link: Link, call: Observer) -> JsonObject:
        return _as_text(await _asked(link, lambda server: server.get_prompt(self.name, self.arguments, origin=call)))


async def _asked(link: Link, ask: Callable[[ServerConnection], Awaitable[JsonObject]]) -> JsonObject:
    """Ask, and once more if a server that was restarted had not even taken the request."""
    try:
        return await ask(await link.connected())
    except ConnectionLost as lost:
        if lost.was_taken:
            raise
    return await ask(await link.connected())


def _as_text(result: Mapping[str, Any]) -> JsonObject:
    shown = {key: value for key, value in result.items() if key != "resultType"}
    return {"content": [{"type": "text", "text": json.dumps(shown, ensure_ascii=False, separators=(",", ":"))}]}
