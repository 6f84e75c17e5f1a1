"""The hub's own tools and resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND

from emceepee import __version__
from emceepee.errors import PeerError
from emceepee.front.capabilities import HANDSHAKE_TASKS
from emceepee.front.client import ClientFacts
from emceepee.front.jsonrpc import Request
from emceepee.front.outcomes import AskedBack, BecameTask, Outcome, can_be_asked_back
from emceepee.front.resources import OwnResources
from emceepee.front.visit import Visit
from emceepee.hub import Hub, Session
from emceepee.protocol import TASKS_EXTENSION
from emceepee.tools import Caller, Reply, ToolBox, complete, replied, result_of_task

__all__ = ["HubService"]

JsonObject: TypeAlias = dict[str, Any]

INSTRUCTIONS = (
    "emceepee connects you to other MCP servers. list_servers and list_tools show what there is; execute_tool calls a "
    "tool. A call that takes long or asks a question becomes a task: answer what stands in pending_client_action with "
    "respond_to_elicitation or respond_to_sampling, wait with await_activity, and get the result with get_task_result."
)

ABOUT_WORKSPACES = (
    " Every tool takes a workspace: a name of your choice that keeps your tasks, questions and events apart from those "
    "of others. Leave it out, or give the same one with every call."
)

WORKSPACE: JsonObject = {"type": "string"}
"""Listed to modern clients with every tool, for they have no session to keep their state apart. What it means is said
once, in the instructions: 24 times over would cost a model more than the tools themselves."""


class HubService:
    endpoint = ""
    streams_at_once = False
    tells_changes = False

    def __init__(self, hub: Hub) -> None:
        self._tools = ToolBox()
        self._resources = OwnResources(hub)

    async def introduce(self, session: Session, client: ClientFacts) -> JsonObject:
        session.connect_all()
        capabilities: JsonObject = {"tools": {}, "resources": {}}
        if client.is_modern:
            capabilities["extensions"] = {TASKS_EXTENSION: {}}
        elif client.understands_resuming:
            capabilities["tasks"] = HANDSHAKE_TASKS
        return {
            "capabilities": capabilities,
            "serverInfo": {"name": "emceepee", "title": "emceepee", "version": __version__},
            "instructions": INSTRUCTIONS + ABOUT_WORKSPACES if client.is_modern else INSTRUCTIONS,
        }

    def workspace_of(self, request: Request) -> str | None:
        arguments = request.params.get("arguments")
        if request.method != "tools/call" or not isinstance(arguments, Mapping):
            return None
        workspace = arguments.get("workspace")
        if workspace is not None and not (isinstance(workspace, str) and workspace):
            raise PeerError(INVALID_PARAMS, "workspace is the name of one: a string that is not empty")
        return workspace

    async def answer(self, visit: Visit) -> Outcome:
        visit.session.connect_all()
        match visit.method:
            case "tools/call":
                return await self._call_tool(visit)
            case "tools/list":
                return {"tools": self._definitions(visit.client)}
            case "resources/list":
                return {"resources": self._resources.definitions}
            case "resources/templates/list":
                return {"resourceTemplates": []}
            case "resources/read":
                return self._resources.read(visit.session, visit.params.get("uri"))
            case _:
                raise PeerError(METHOD_NOT_FOUND, f"Method not found: {visit.method}")

    async def may_issue_states(self, visit: Visit) -> bool:
        return False

    async def go_on(self, visit: Visit, task_id: str) -> Outcome:
        if visit.asked_for_task is not None:
            return BecameTask(task_id)
        caller = visit.caller()
        arguments = _arguments(visit)
        timeout_ms = arguments.get("timeout_ms") if isinstance(arguments, dict) else None
        if not isinstance(timeout_ms, int):
            timeout_ms = visit.session.settings.default_timeout_ms
        with visit.session.in_use():
            reply = await replied(caller, lambda: result_of_task(visit.session, task_id, timeout_ms), "tools/call")
        return _told(visit, caller, reply)

    def on_client_notification(self, session: Session, method: str, params: Mapping[str, Any]) -> None:
        """None is for us: cancellations are the front's."""

    def passed_on(self, server: str, method: str, params: Mapping[str, Any]) -> JsonObject | None:
        """What servers say is in the events."""
        return None

    async def listen(self, session: Session, uris: Sequence[str]) -> None:
        """Our lists do not change, and our resources are read when somebody wants to know."""

    def stop_listening(self, session: Session, uris: Sequence[str]) -> None:
        """There is nothing to stop."""

    def _definitions(self, client: ClientFacts) -> list[JsonObject]:
        if client.is_modern:
            return [_with_workspace(tool) for tool in self._tools.definitions]
        if not client.understands_resuming:
            return self._tools.definitions
        return [
            {**tool, "execution": {"taskSupport": "optional"}} if tool["name"] == "execute_tool" else tool
            for tool in self._tools.definitions
        ]

    async def _call_tool(self, visit: Visit) -> Outcome:
        name = visit.params.get("name")
        if not isinstance(name, str):
            raise PeerError(INVALID_PARAMS, "tools/call needs the name of a tool")
        arguments = _arguments(visit)
        if visit.client.is_modern and isinstance(arguments, dict):
            arguments.pop("workspace", None)
        if visit.asked_for_task is not None:
            if name != "execute_tool":
                raise PeerError(METHOD_NOT_FOUND, f"{name} cannot be called as a task; execute_tool can")
            if visit.wished_ttl_ms is not None and isinstance(arguments, dict):
                arguments.setdefault("task_ttl_ms", visit.wished_ttl_ms)
        caller = visit.caller()
        with visit.session.in_use():
            reply = await self._tools.run(caller, name, arguments)
        return _told(visit, caller, reply)


def _told(visit: Visit, caller: Caller, reply: Reply) -> Outcome:
    """A reply in the client's own protocol, where that has a word for it."""
    if reply.task_id is not None:
        if caller.wants_task or (visit.client.knows_tasks and caller.calls):
            return BecameTask(reply.task_id)
        questions = visit.session.state.questions.pending(task_id=reply.task_id)
        if can_be_asked_back(visit.client, questions):
            return AskedBack(reply.task_id)
    if caller.wants_task:
        raise PeerError(INVALID_PARAMS, reply.content[0]["text"] if reply.content else "No task was made")
    return complete(reply, caller)


def _arguments(visit: Visit) -> object:
    """A copy of them; whatever else stands in their place is for the tool to refuse."""
    arguments = visit.params.get("arguments") or {}
    return dict(arguments) if isinstance(arguments, Mapping) else arguments


def _with_workspace(tool: JsonObject) -> JsonObject:
    schema = tool["inputSchema"]
    properties = {**schema.get("properties", {}), "workspace": WORKSPACE}
    return {**tool, "inputSchema": {**schema, "properties": properties}}
