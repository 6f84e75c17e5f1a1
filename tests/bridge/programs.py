"""Clients that others wrote, and our own library: connections that are opened by name, and calls over them.

Those of another environment are programs in `tests/peers/programs`, driven over their pipes; the rest runs here. Each
answers what it is asked with the question's own words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import anyio
import anyio.abc
import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.session import ClientRequestContext

from emceepee.client import ClientOptions, Http, Question, ServerConnection, Stdio, TaskCreated, connect
from tests.peers.drive import LineClient, PeerError
from tests.tasks.cases import answer_to

__all__ = ["ClientProgram", "LibraryProgram", "LineProgram", "News", "Reply", "SdkProgram"]

JsonObject: TypeAlias = dict[str, Any]
News: TypeAlias = Callable[[JsonObject], None]
"""Told of a call while it is open: its progress, or `{"task": id}` when it has become one."""


@dataclass(frozen=True, slots=True)
class Reply:
    result: JsonObject
    asked: Sequence[str]
    """The words of all that the connection was asked so far."""


class ClientProgram(Protocol):
    async def open(self, connection: str, target: Sequence[str], *, asks: bool) -> None:
        """`target` is a URL, or a command; `asks` says whether to declare that one can be asked."""
        ...

    async def call(
        self, connection: str, tool: str, arguments: Mapping[str, Any], *, as_task: bool, on_news: News | None
    ) -> Reply: ...


class LineProgram:
    """A program of another environment."""

    def __init__(self, lines: LineClient) -> None:
        self._lines = lines

    async def open(self, connection: str, target: Sequence[str], *, asks: bool) -> None:
        await self._lines.request({"op": "open", "name": connection, "target": list(target), "asks": asks})

    async def call(
        self, connection: str, tool: str, arguments: Mapping[str, Any], *, as_task: bool, on_news: News | None
    ) -> Reply:
        request = {
            "op": "task" if as_task else "call",
            "on": connection,
            "tool": tool,
            "arguments": dict(arguments),
            "progress": on_news is not None,
        }
        return Reply(**await self._lines.request(request, on_news or _nobody))


class SdkProgram:
    """`mcp` 2.3's own client, in the modern era."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self._tasks = tasks
        self._clients: dict[str, Client] = {}
        self._asked: dict[str, list[str]] = {}

    async def open(self, connection: str, target: Sequence[str], *, asks: bool) -> None:
        asked = self._asked[connection] = []

        async def elicited(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
            asked.append(params.message)
            if isinstance(params, types.ElicitRequestURLParams):
                return types.ElicitResult(action="accept")
            return types.ElicitResult(action="accept", content={"name": params.message.rstrip("?")})

        async def sampled(
            context: ClientRequestContext, params: types.CreateMessageRequestParams
        ) -> types.CreateMessageResult:
            asked.append(_words(params.model_dump(mode="json", by_alias=True)))
            content = types.TextContent(type="text", text="word")
            return types.CreateMessageResult(role="assistant", content=content, model="m")

        where = target[0] if _is_url(target) else StdioServerParameters(command=target[0], args=list(target[1:]))
        client = Client(where, mode="2026-07-28", elicitation_callback=elicited, sampling_callback=sampled)
        self._clients[connection] = await self._tasks.start(self._hold, client)

    async def _hold(self, client: Client, *, task_status: anyio.abc.TaskStatus[Client]) -> None:
        async with client:
            task_status.started(client)
            await anyio.sleep_forever()

    async def call(
        self, connection: str, tool: str, arguments: Mapping[str, Any], *, as_task: bool, on_news: News | None
    ) -> Reply:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            if on_news is not None:
                on_news({"progress": progress, "message": message})

        client = self._clients[connection]
        try:
            result = await client.call_tool(
                tool, dict(arguments), progress_callback=None if on_news is None else on_progress
            )
        except MCPError as error:
            raise PeerError(error.code, error.message, error.data) from None
        return Reply(result.model_dump(mode="json", by_alias=True, exclude_none=True), self._asked[connection])


@dataclass
class _LibraryConnection:
    server: ServerConnection
    asked: list[str] = field(default_factory=list)

    async def answer_all(self) -> None:
        async for question in self.server.questions():
            self.asked.append(_words(question.params))
            await question.respond(_answer(question))


class LibraryProgram:
    """`emceepee.client`, in the modern era with the tasks extension."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self._tasks = tasks
        self._connections: dict[str, _LibraryConnection] = {}

    async def open(self, connection: str, target: Sequence[str], *, asks: bool) -> None:
        where = Http(target[0], fallback=False) if _is_url(target) else Stdio(target[0], list(target[1:]))
        self._connections[connection] = await self._tasks.start(self._hold, where)

    async def _hold(self, target: Http | Stdio, *, task_status: anyio.abc.TaskStatus[_LibraryConnection]) -> None:
        async with connect(target, options=ClientOptions(era="modern")) as server:
            opened = _LibraryConnection(server)
            task_status.started(opened)
            await opened.answer_all()

    async def call(
        self, connection: str, tool: str, arguments: Mapping[str, Any], *, as_task: bool, on_news: News | None
    ) -> Reply:
        opened = self._connections[connection]

        def on_task(update: object) -> None:
            if isinstance(update, TaskCreated) and on_news is not None:
                on_news({"task": update.task.task_id})

        result = await opened.server.call_tool_task(tool, arguments, on_task=on_task)
        return Reply(result, opened.asked)


def _answer(question: Question) -> JsonObject:
    if question.params.get("mode") == "url":
        return {"action": "accept"}
    return answer_to(question.kind, question.params)


def _words(params: Mapping[str, Any]) -> str:
    """What a question says."""
    if (message := params.get("message")) is not None:
        return str(message)
    content = params["messages"][0]["content"]
    return str((content[0] if isinstance(content, list) else content)["text"])


def _is_url(target: Sequence[str]) -> bool:
    return target[0].startswith("http://")


def _nobody(_news: JsonObject) -> None:
    """Who is told of what nobody asked for."""
