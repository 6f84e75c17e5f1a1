"""What a call does at its server: call a tool, read a resource, get a prompt.

Each gives a `CallToolResult`, so that whatever became a task has its result fetched in one way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

from emceepee.client import OnBehalfOf, Resumption, ServerConnection, TaskCreated, TaskStatus
from emceepee.core.reconcile import fate_of_call
from emceepee.errors import ConnectionLost
from emceepee.hub.link import Link
from emceepee.jsontext import dumps

__all__ = ["Forwarded", "Observer", "PromptGet", "ResourceRead", "ToolCall", "Work", "work_of"]

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
    def method(self) -> str:
        """The request of the protocol that it is."""
        ...

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
    method: ClassVar[str] = "tools/call"

    async def run(self, link: Link, call: Observer) -> JsonObject:
        async def ask(server: ServerConnection) -> JsonObject:
            return await server.call_tool_task(
                self.tool,
                self.args,
                ttl_ms=call.ttl_ms,
                origin=call,
                on_progress=call.on_progress,
                on_task=call.on_server_task,
                resumption=call.resumption,
            )

        return await _seen_through(link, call.resumption, ask, lambda: link.server_for_tool(self.tool))


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
        async def ask(server: ServerConnection) -> JsonObject:
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
                resumption=call.resumption,
            )

        return await _seen_through(link, call.resumption, ask, link.connected)


@dataclass(frozen=True, slots=True)
class ResourceRead:
    uri: str
    tool: ClassVar[str] = "read_resource"
    method: ClassVar[str] = "resources/read"

    @property
    def args(self) -> Mapping[str, Any]:
        return {"uri": self.uri}

    async def run(self, link: Link, call: Observer) -> JsonObject:
        async def ask(server: ServerConnection) -> JsonObject:
            return await server.read_resource(self.uri, origin=call, resumption=call.resumption)

        return _as_text(await _seen_through(link, call.resumption, ask, link.connected))


@dataclass(frozen=True, slots=True)
class PromptGet:
    name: str
    arguments: Mapping[str, str]
    tool: ClassVar[str] = "get_prompt"
    method: ClassVar[str] = "prompts/get"

    @property
    def args(self) -> Mapping[str, Any]:
        return {"name": self.name, "arguments": dict(self.arguments)}

    async def run(self, link: Link, call: Observer) -> JsonObject:
        async def ask(server: ServerConnection) -> JsonObject:
            return await server.get_prompt(self.name, self.arguments, origin=call, resumption=call.resumption)

        return _as_text(await _seen_through(link, call.resumption, ask, link.connected))


def work_of(method: str, tool: str, args: Mapping[str, Any], *, is_forwarded: bool = False) -> Work:
    """The work that a task was made of, from what is written down of it."""
    if is_forwarded:
        return Forwarded(method, {"name": tool, "arguments": args} if method == ToolCall.method else args)
    match method:
        case ResourceRead.method:
            return ResourceRead(args["uri"])
        case PromptGet.method:
            return PromptGet(args["name"], args["arguments"])
        case _:
            return ToolCall(tool, args)


async def _seen_through(
    link: Link,
    resumption: Resumption,
    ask: Callable[[ServerConnection], Awaitable[JsonObject]],
    first: Callable[[], Awaitable[ServerConnection]],
) -> JsonObject:
    """Ask on as many connections as it takes and as can be, beginning with the `first`."""
    server = await (link.back() if resumption.is_possible else first())
    was_sent_again = False
    while True:
        try:
            return await ask(server)
        except ConnectionLost as lost:
            fate = fate_of_call(
                can_be_resumed=resumption.is_possible, was_taken=lost.was_taken, was_sent_again=was_sent_again
            )
            if fate == "fails":
                raise
        was_sent_again = True
        server = await (link.back() if fate == "goes_on" else link.connected())


def _as_text(result: Mapping[str, Any]) -> JsonObject:
    shown = {key: value for key, value in result.items() if key != "resultType"}
    return {"content": [{"type": "text", "text": dumps(shown)}]}
