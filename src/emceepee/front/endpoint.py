"""The methods of MCP as the hub answers them, whatever wire they came over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION
from structlog import get_logger

from emceepee import __version__
from emceepee.errors import PeerError
from emceepee.front.jsonrpc import Request, error_message, result_message
from emceepee.front.resources import OwnResources
from emceepee.front.served import ServedRequest
from emceepee.hub import Hub, Session
from emceepee.tools import Caller, ToolBox

__all__ = ["Endpoint"]

JsonObject: TypeAlias = dict[str, Any]
log = get_logger(__name__)

INSTRUCTIONS = (
    "emceepee connects you to other MCP servers. list_servers and list_tools show what there is; execute_tool calls a "
    "tool. A call that takes long or asks a question becomes a task: answer what stands in pending_client_action with "
    "respond_to_elicitation or respond_to_sampling, wait with await_activity, and get the result with get_task_result."
)


class Endpoint:
    """Serves handshake clients; one for all sessions of a front."""

    def __init__(self, hub: Hub, *, may_spawn: bool) -> None:
        self.hub = hub
        self._may_spawn = may_spawn
        self._tools = ToolBox()
        self._resources = OwnResources(hub)

    def initialize(self, params: Mapping[str, Any]) -> JsonObject:
        """The answer to `initialize`: the client's version if we speak it, else our newest of that era."""
        wished = params.get("protocolVersion")
        if not isinstance(wished, str):
            raise PeerError(INVALID_PARAMS, "initialize needs a protocolVersion")
        return {
            "protocolVersion": wished if wished in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION,
            "capabilities": {"tools": {}, "resources": {}},
            "serverInfo": {"name": "emceepee", "title": "emceepee", "version": __version__},
            "instructions": INSTRUCTIONS,
        }

    async def respond(self, session: Session, request: Request, served: ServedRequest) -> JsonObject:
        """The response message to a request of an open session."""
        try:
            return result_message(request.id, await self._answer(session, request, served))
        except PeerError as error:
            return error_message(request.id, error)
        except Exception:
            log.exception("request_failed", method=request.method)
            return error_message(request.id, PeerError(INTERNAL_ERROR, "Internal error"))

    async def _answer(self, session: Session, request: Request, served: ServedRequest) -> JsonObject:
        match request.method:
            case "tools/call":
                return await self._call_tool(session, request.params, served)
            case "tools/list":
                return {"tools": self._tools.definitions}
            case "resources/list":
                return {"resources": self._resources.definitions}
            case "resources/templates/list":
                return {"resourceTemplates": []}
            case "resources/read":
                return self._resources.read(session, request.params.get("uri"))
            case "ping":
                return {}
            case _:
                raise PeerError(METHOD_NOT_FOUND, f"Method not found: {request.method}")

    async def _call_tool(self, session: Session, params: Mapping[str, Any], served: ServedRequest) -> JsonObject:
        name = params.get("name")
        if not isinstance(name, str):
            raise PeerError(INVALID_PARAMS, "tools/call needs the name of a tool")
        caller = Caller(
            self.hub,
            session,
            may_spawn=self._may_spawn,
            attendant=served,
            hung_up=lambda: served.hang_up,
        )
        served.on_sent = caller.sent
        with session.in_use():
            return await self._tools.call(caller, name, params.get("arguments") or {})
