"""One connection to one server, with all of MCP that a client may ask for.

Results are the server's own JSON, untouched: what we do not know survives. Who opens and closes a connection is in
`connect.py`; how a request that asks back is carried on is in `interactive.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeAlias

import anyio

from emceepee.client.inbound import Inbound
from emceepee.client.interactive import InteractiveRequest
from emceepee.client.listening import Listener
from emceepee.client.questions import CallRef, Question
from emceepee.errors import PeerError
from emceepee.wire.era import EraName, header_parameters
from emceepee.wire.negotiation import Negotiated
from emceepee.wire.peer import OnProgress, Peer
from emceepee.wire.transport import TransportKind

__all__ = ["ServerConnection"]

JsonObject: TypeAlias = dict[str, Any]

MAX_PAGES = 1000
"""A server that hands out cursors forever is broken, and is told so."""

LOG_LEVEL_META_KEY = "io.modelcontextprotocol/logLevel"


class ServerConnection:
    """An open connection; get one with `connect`. Every request raises `WireError`s, and `PeerError` for a refusal."""

    def __init__(self, peer: Peer, negotiated: Negotiated, inbound: Inbound, listener: Listener) -> None:
        self._peer = peer
        self._negotiated = negotiated
        self._inbound = inbound
        self._listener = listener
        self._log_level: str | None = None
        self._input_schemas: dict[str, object] = {}

    # What was agreed on

    @property
    def era(self) -> EraName:
        return self._negotiated.era.name

    @property
    def protocol_version(self) -> str:
        return self._negotiated.era.version

    @property
    def server_info(self) -> Mapping[str, Any]:
        return self._negotiated.server_info

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self._negotiated.capabilities

    @property
    def instructions(self) -> str | None:
        instructions = self._negotiated.answer.get("instructions")
        return instructions if isinstance(instructions, str) else None

    @property
    def transport(self) -> TransportKind:
        return self._peer.transport.kind

    @property
    def session_id(self) -> str | None:
        return self._peer.state.session_id

    @property
    def process_id(self) -> int | None:
        return self._peer.state.process_id

    @property
    def closed(self) -> anyio.Event:
        """Set when the connection has ended; `lost_reason` says why."""
        return self._peer.closed

    @property
    def lost_reason(self) -> str:
        return self._peer.lost_reason

    # Tools

    async def list_tools(self) -> list[JsonObject]:
        """Every tool, over all pages."""
        tools = await self._all_pages("tools/list", "tools")
        self._input_schemas = {tool["name"]: tool.get("inputSchema") for tool in tools if "name" in tool}
        return tools

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        origin: object | None = None,
    ) -> JsonObject:
        """Call a tool and wait for its result; questions that it asks come through `questions()` meanwhile.

        Cancelling the caller cancels the call at the server. `origin` is handed back as `question.belongs_to.call`.
        """
        params: JsonObject = {"name": name, "arguments": dict(arguments or {})}
        if meta:
            params["_meta"] = dict(meta)
        headers = {}
        if self.era == "modern":
            headers = header_parameters(self._input_schemas.get(name), params["arguments"])
        request = self._interactive("tools/call", params, origin or CallRef("tools/call", name))
        return await request.run(timeout=timeout, on_progress=on_progress, headers=headers)

    # Resources and prompts

    async def list_resources(self) -> list[JsonObject]:
        return await self._all_pages("resources/list", "resources")

    async def list_resource_templates(self) -> list[JsonObject]:
        return await self._all_pages("resources/templates/list", "resourceTemplates")

    async def read_resource(
        self, uri: str, *, timeout: float | None = None, origin: object | None = None
    ) -> JsonObject:
        request = self._interactive("resources/read", {"uri": uri}, origin or CallRef("resources/read", uri))
        return await request.run(timeout=timeout)

    async def subscribe(self, uri: str) -> None:
        """Have `notifications/resources/updated` sent for `uri`."""
        if self.era == "handshake":
            await self.request("resources/subscribe", {"uri": uri})
        else:
            self._listener.add_resource(uri)

    async def unsubscribe(self, uri: str) -> None:
        if self.era == "handshake":
            await self.request("resources/unsubscribe", {"uri": uri})
        else:
            self._listener.remove_resource(uri)

    async def list_prompts(self) -> list[JsonObject]:
        return await self._all_pages("prompts/list", "prompts")

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
        origin: object | None = None,
    ) -> JsonObject:
        params: JsonObject = {"name": name}
        if arguments is not None:
            params["arguments"] = dict(arguments)
        request = self._interactive("prompts/get", params, origin or CallRef("prompts/get", name))
        return await request.run(timeout=timeout)

    async def complete(
        self, ref: Mapping[str, Any], argument: Mapping[str, str], context: Mapping[str, Any] | None = None
    ) -> JsonObject:
        """Completions for an argument of a prompt or a resource template, as the server gives them."""
        params: JsonObject = {"ref": dict(ref), "argument": dict(argument)}
        if context is not None:
            params["context"] = dict(context)
        return await self.request("completion/complete", params)

    # The rest

    async def set_log_level(self, level: str) -> None:
        """Have the server log at `level` and above: once for all, or with every request, as the era has it."""
        if self.era == "handshake":
            await self.request("logging/setLevel", {"level": level})
        else:
            self._log_level = level

    async def ping(self, *, timeout: float | None = 10.0) -> None:
        """Make sure that the server answers; any answer will do."""
        method = "ping" if self.era == "handshake" else "server/discover"
        try:
            await self.request(method, timeout=timeout)
        except PeerError:
            return

    async def roots_changed(self, roots: list[str]) -> None:
        """Answer `roots/list` with `roots` from now on, and tell the server."""
        self._inbound.roots = tuple(roots)
        if self.era == "handshake":
            await self.notify("notifications/roots/list_changed")

    def questions(self) -> AsyncIterator[Question]:
        """The server's questions as they come, beginning with those that nobody has taken yet."""
        return self._inbound.questions()

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> JsonObject:
        """Any request at all, for what has no method of its own here."""
        return await self._peer.request(method, self._with_log_level(params), timeout=timeout, on_progress=on_progress)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        await self._peer.notify(method, params)

    def _interactive(self, method: str, params: Mapping[str, Any], origin: object) -> InteractiveRequest:
        return InteractiveRequest(self._peer, self._inbound, method, self._with_log_level(params) or {}, origin)

    async def _all_pages(self, method: str, key: str) -> list[JsonObject]:
        items: list[JsonObject] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self.request(method, {} if cursor is None else {"cursor": cursor})
            found = page.get(key, [])
            if not isinstance(found, list):
                raise PeerError(-32603, f"{method} answered without a list of {key}")
            items.extend(item for item in found if isinstance(item, dict))
            following = page.get("nextCursor")
            if not following:
                return items
            if following == cursor:
                raise PeerError(-32603, f"{method} answered with the same cursor twice")
            cursor = following
        raise PeerError(-32603, f"{method} has more than {MAX_PAGES} pages")

    def _with_log_level(self, params: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        if self._log_level is None:
            return params
        meta = (params or {}).get("_meta") or {}
        return {**(params or {}), "_meta": {**meta, LOG_LEVEL_META_KEY: self._log_level}}
