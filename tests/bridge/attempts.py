"""One call of one client to one server through the hub: whether it ends well, and how it got there."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import anyio
import anyio.abc

from tests.bridge.cases import Case
from tests.bridge.clients import Role
from tests.bridge.programs import ClientProgram, Reply
from tests.bridge.servers import Transport, server_name
from tests.peers.drive import PeerError
from tests.process.hub_process import json_blocks, own_json

__all__ = ["ENDPOINTS", "Attempt", "Cell", "Endpoint", "connection_of"]

JsonObject: TypeAlias = dict[str, Any]
Endpoint: TypeAlias = Literal["/mcp", "/mcp/server/{name}", "emceepee stdio"]

ENDPOINTS: tuple[Endpoint, ...] = ("/mcp", "/mcp/server/{name}", "emceepee stdio")

URL_ELICITATION_REQUIRED = -32042
MISSING_REQUIRED_CLIENT_CAPABILITY = -32021

PATIENCE_MS = 600_000
"""A timeout that no call lives to see: what comes back earlier was promoted for another reason."""

IMPATIENCE_MS = 300
"""The timeout of a call that takes longer."""

GLANCE_MS = 200
"""How long to wait for news before looking again: another call of the session may have been told of them."""


@dataclass(frozen=True, slots=True)
class Cell:
    role: Role
    case: Case
    transport: Transport
    endpoint: Endpoint

    def __str__(self) -> str:
        place = {"/mcp": "hub", "/mcp/server/{name}": "transparent", "emceepee stdio": "pipe"}[self.endpoint]
        return f"{place}-{self.role}-{self.case}-{self.transport}"

    @property
    def server(self) -> str:
        return server_name(self.case.server, self.transport)

    @property
    def is_transparent(self) -> bool:
        return self.endpoint == "/mcp/server/{name}"


def connection_of(role: Role, endpoint: Endpoint, server: str) -> str:
    """The name of a connection: there is one for all of the hub's tools, or one for each server."""
    place = {"/mcp": "hub", "/mcp/server/{name}": server, "emceepee stdio": "pipe"}[endpoint]
    return f"{role.connections}/{place}"


@dataclass
class Attempt:
    """`word` is in what the server asks and answers, so that calls can be told apart."""

    cell: Cell
    program: ClientProgram
    word: str
    steps: list[str] = field(default_factory=list)
    _waits: anyio.Event = field(default_factory=anyio.Event)
    _is_task: anyio.Event = field(default_factory=anyio.Event)
    _answered: anyio.Event = field(default_factory=anyio.Event)

    async def run(self) -> str:
        """How the call got its result, in a few words."""
        case, role = self.cell.case, self.cell.role
        async with anyio.create_task_group() as tasks:
            if case.asks is not None and case.asks not in role.answers:
                tasks.start_soon(self._answer_with_tools)
            if case.takes_long:
                tasks.start_soon(self._release_when_seen)
            result = await self._result()
            tasks.cancel_scope.cancel()
        if result is None:
            return "refused"
        assert result["content"][0]["text"] == case.expected(self.word), result
        assert result.get("isError", False) is False
        return ", ".join(dict.fromkeys(self.steps)) or ("waits" if self._waits.is_set() else "result")

    async def _result(self) -> JsonObject | None:
        """None if the server does not serve such a client at all."""
        try:
            reply = await self._send()
        except PeerError as error:
            if error.code == MISSING_REQUIRED_CLIENT_CAPABILITY:
                return None
            if error.code != URL_ELICITATION_REQUIRED or f"{self.word}?" not in json.dumps(error.data):
                raise
            self.steps.append("error")
            reply = await self._send()
        if f"{self.word}?" in reply.asked:
            self.steps.append(self._how_asked())
        tasks = [block["proxy_task"] for block in json_blocks(reply.result) if "proxy_task" in block]
        return await self._fetched(tasks[0]["task_id"]) if tasks else reply.result

    def _how_asked(self) -> str:
        if "task" in self.steps:
            return "inputs" if self.cell.role.is_modern else "asked"
        return "`input_required`" if self.cell.role.is_modern else "asked"

    async def _send(self) -> Reply:
        cell, case = self.cell, self.cell.case
        arguments = case.arguments(self.word)
        connection = connection_of(cell.role, cell.endpoint, cell.server)
        tool = case.tool
        if not cell.is_transparent:
            timeout_ms = IMPATIENCE_MS if case.takes_long else PATIENCE_MS
            arguments = {"server": cell.server, "tool": tool, "args": arguments, "timeout_ms": timeout_ms}
            tool = "execute_tool"
        return await self.program.call(
            connection, tool, arguments, as_task=cell.role.as_task, on_news=self._on_news if self._wants_news else None
        )

    @property
    def _wants_news(self) -> bool:
        """A progress token makes clients hear that we are still there; tasks they tell of anyway."""
        return self.cell.case.takes_long or self._knows_tasks

    @property
    def _knows_tasks(self) -> bool:
        return self.cell.role.as_task or self.cell.role.kind == "modern with tasks"

    def _on_news(self, news: JsonObject) -> None:
        if "task" in news:
            self.steps.append("task")
            self._is_task.set()
        elif self.cell.case.takes_long:
            self._waits.set()

    async def _release_when_seen(self) -> None:
        """Let a call that takes long end once its client has a task, or has been told that it still runs."""
        await (self._is_task if self._knows_tasks else self._waits).wait()
        await self._release()

    async def _release(self) -> None:
        cell = self.cell
        if cell.is_transparent:
            connection = connection_of(cell.role, cell.endpoint, cell.server)
            await self.program.call(connection, "release", {"gate": self.word}, as_task=False, on_news=None)
        else:
            await self._tool("execute_tool", server=cell.server, tool="release", args={"gate": self.word})

    # With the hub's tools

    async def _fetched(self, task_id: str) -> JsonObject:
        self.steps.append("tools")
        if self.cell.case.takes_long:
            await self._release()
        if self.cell.case.asks is not None:
            await self._answered.wait()
        while True:
            result = await self._tool("get_task_result", task_id=task_id)
            if not any("questions" in block for block in json_blocks(result)):
                return result

    async def _answer_with_tools(self) -> None:
        sampling = self.cell.case.asks == "sampling"
        while (question := await self._question(sampling=sampling)) is None:
            await self._tool("await_activity", timeout_ms=GLANCE_MS)
        if self._knows_tasks:
            # The question makes the call a task. An answer that is quicker than the client's reading would end it.
            await self._is_task.wait()
        self.steps.append("tools")
        request_id = question["request_id"]
        if sampling:
            content = {"type": "text", "text": "word"}
            answered = await self._tool("respond_to_sampling", request_id=request_id, content=content, model="m")
        else:
            filled_in = {"content": {"name": self.word}} if self.cell.case.asks == "elicitation" else {}
            answered = await self._tool("respond_to_elicitation", request_id=request_id, action="accept", **filled_in)
        assert own_json(answered)["success"] is True
        self._answered.set()

    async def _question(self, *, sampling: bool) -> JsonObject | None:
        tool, key = ("get_sampling_requests", "sampling_requests") if sampling else ("get_elicitations", "elicitations")
        for question in own_json(await self._tool(tool))[key]:
            if f'"{self.word}?"' in json.dumps(question["params"]):
                found: JsonObject = question
                return found
        return None

    async def _tool(self, tool: str, /, **arguments: Any) -> JsonObject:
        endpoint: Endpoint = "/mcp" if self.cell.is_transparent else self.cell.endpoint
        connection = connection_of(self.cell.role, endpoint, self.cell.server)
        return (await self.program.call(connection, tool, arguments, as_task=False, on_news=None)).result
