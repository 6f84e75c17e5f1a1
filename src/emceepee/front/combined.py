"""All servers under one URL, with the names of their tools and prompts prefixed: `{server}__{name}`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import anyio
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND

from emceepee import __version__
from emceepee.client import ServerConnection
from emceepee.errors import EmceepeeError, PeerError, WireError
from emceepee.front.capabilities import capabilities_for
from emceepee.front.client import ClientFacts
from emceepee.front.jsonrpc import Request
from emceepee.front.outcomes import Outcome
from emceepee.front.transparent import ServerService
from emceepee.front.visit import Visit
from emceepee.hub import Session

__all__ = ["AllService"]

JsonObject: TypeAlias = dict[str, Any]

SEPARATOR = "__"

CONNECT_SECONDS = 10.0
"""How long a list waits for servers that are just being connected; those that take longer tell when they are there."""

LIST_SECONDS = 10.0
"""How long one server may take to list what it has, before the others are listed without it."""

_LISTS: Mapping[str, tuple[str, str, Callable[[ServerConnection], Awaitable[list[JsonObject]]]]] = {
    "tools/list": ("tools", "tools", lambda server: server.list_tools()),
    "prompts/list": ("prompts", "prompts", lambda server: server.list_prompts()),
    "resources/list": ("resources", "resources", lambda server: server.list_resources()),
    "resources/templates/list": ("resources", "resourceTemplates", lambda server: server.list_resource_templates()),
}
"""Per method: the capability that it needs, the key of its result, and how a server is asked."""


class AllService:
    endpoint = "all"
    streams_at_once = True
    tells_changes = True

    def __init__(self) -> None:
        self._services: dict[str, ServerService] = {}
        self._late: WeakKeyDictionary[Session, set[str]] = WeakKeyDictionary()
        """Servers that a session has waited for in vain: once is enough."""

    async def introduce(self, session: Session, client: ClientFacts) -> JsonObject:
        servers = await self._connected(session)
        declared: JsonObject = {}
        for server in servers.values():
            for key, value in capabilities_for(client, server.capabilities, server.era).items():
                known = declared.get(key)
                is_shared = isinstance(value, Mapping) and isinstance(known, Mapping)
                declared[key] = {**(known or {}), **value} if is_shared else value
        # Servers come and go, and so do their tools.
        declared["tools"] = {**(declared.get("tools") or {}), "listChanged": True}
        introduction: JsonObject = {
            "capabilities": declared,
            "serverInfo": {"name": "emceepee", "title": "emceepee", "version": __version__},
        }
        instructions = [f"{name}: {server.instructions}" for name, server in servers.items() if server.instructions]
        if instructions:
            introduction["instructions"] = "\n\n".join(instructions)
        return introduction

    def workspace_of(self, request: Request) -> str | None:
        return None

    async def answer(self, visit: Visit) -> Outcome:
        if visit.method in _LISTS:
            return await self._list(visit)
        match visit.method:
            case "tools/call" | "prompts/get":
                server, name = self._split(visit.session, visit.params.get("name"))
                return await self._delegate(visit, server, {**visit.params, "name": name})
            case "resources/read" | "resources/subscribe" | "resources/unsubscribe":
                server = await self._owner_of(visit.session, visit.params.get("uri"))
                return await self._delegate(visit, server, visit.params)
            case "completion/complete":
                return await self._complete(visit)
            case "logging/setLevel":
                for name, connection in (await self._connected(visit.session)).items():
                    if "logging" in connection.capabilities:
                        await self._delegate(visit, name, visit.params)
                return {}
            case _:
                raise PeerError(METHOD_NOT_FOUND, f"Method not found: {visit.method}")

    async def may_issue_states(self, visit: Visit) -> bool:
        servers = await self._connected(visit.session)
        return any(server.era == "modern" for server in servers.values())

    async def go_on(self, visit: Visit, task_id: str) -> Outcome:
        task = visit.session.state.tasks.get(task_id)
        return await self._service(task.server).go_on(visit, task_id)

    def on_client_notification(self, session: Session, method: str, params: Mapping[str, Any]) -> None:
        for name in session.links:
            self._service(name).on_client_notification(session, method, params)

    def passed_on(self, server: str, method: str, params: Mapping[str, Any]) -> JsonObject | None:
        return self._service(server).passed_on(server, method, params)

    async def listen(self, session: Session, uris: Sequence[str]) -> None:
        listened: list[str] = []
        try:
            for uri in uris:
                await self._service(await self._owner_of(session, uri)).listen(session, [uri])
                listened.append(uri)
            for server in (await self._connected(session)).values():
                await server.wait_until_listening()
        except BaseException:
            self.stop_listening(session, listened)
            raise

    def stop_listening(self, session: Session, uris: Sequence[str]) -> None:
        for service in self._services.values():
            service.stop_listening(session, [uri for uri in uris if service.is_subscribed(session, uri)])

    # Inside

    def _service(self, name: str) -> ServerService:
        return self._services.setdefault(name, ServerService(name))

    async def _delegate(self, visit: Visit, server: str, params: Mapping[str, Any]) -> Outcome:
        request = Request(visit.request.id, visit.method, params)
        return await self._service(server).answer(replace(visit, request=request))

    async def _connected(self, session: Session) -> dict[str, ServerConnection]:
        """The servers that can be had within a reasonable time, in the order of the registry."""
        session.connect_all()
        found: dict[str, ServerConnection] = {}
        late = self._late.setdefault(session, set())

        async def connect(name: str) -> None:
            try:
                found[name] = await session.link(name).connected()
            except EmceepeeError:
                return

        names = [config.name for config in session.registry]
        waited_for = [name for name in names if name not in late or session.link(name).server is not None]
        with session.clock.move_on_after(CONNECT_SECONDS) as waiting:
            async with anyio.create_task_group() as tasks:
                for name in waited_for:
                    tasks.start_soon(connect, name)
        late.difference_update(found)
        if waiting.cancelled_caught:
            late.update(name for name in waited_for if name not in found)
        return {name: found[name] for name in names if name in found}

    async def _list(self, visit: Visit) -> JsonObject:
        capability, key, ask = _LISTS[visit.method]
        gathered: dict[str, list[JsonObject]] = {}

        async def gather(name: str, server: ServerConnection) -> None:
            try:
                gathered[name] = await ask(server)
            except WireError:
                return

        servers = await self._connected(visit.session)
        with visit.session.clock.move_on_after(LIST_SECONDS):
            async with anyio.create_task_group() as tasks:
                for name, server in servers.items():
                    if capability in server.capabilities:
                        tasks.start_soon(gather, name, server)
        prefixed = capability != "resources"
        return {
            key: [
                {**item, "name": f"{name}{SEPARATOR}{item.get('name')}"} if prefixed else item
                for name in servers
                for item in gathered.get(name, [])
            ]
        }

    def _split(self, session: Session, name: object) -> tuple[str, str]:
        """The server, and the name that the server knows; a server's own name may hold the separator, too."""
        given = name if isinstance(name, str) else ""
        fitting = [one.name for one in session.registry if given.startswith(one.name + SEPARATOR)]
        if not fitting:
            raise PeerError(INVALID_PARAMS, f"Unknown name: {name}; here they are {{server}}{SEPARATOR}{{name}}")
        server = max(fitting, key=len)
        return server, given.removeprefix(server + SEPARATOR)

    async def _owner_of(self, session: Session, uri: object) -> str:
        """Whose resource it is: of the one that lists it, or else of the one that has a template that may fit."""
        if not isinstance(uri, str):
            raise PeerError(INVALID_PARAMS, "A uri is needed")
        servers = await self._connected(session)
        able = {name: server for name, server in servers.items() if "resources" in server.capabilities}
        for name, server in able.items():
            if any(resource.get("uri") == uri for resource in await _listed(session, server.list_resources)):
                return name
        for name, server in able.items():
            for template in await _listed(session, server.list_resource_templates):
                if uri.startswith(str(template.get("uriTemplate", "")).split("{")[0] or uri):
                    return name
        raise PeerError(INVALID_PARAMS, f"Resource not found: {uri}", {"uri": uri})

    async def _complete(self, visit: Visit) -> Outcome:
        ref = visit.params.get("ref")
        if not isinstance(ref, Mapping):
            raise PeerError(INVALID_PARAMS, "completion/complete needs a ref")
        if ref.get("type") == "ref/prompt":
            server, name = self._split(visit.session, ref.get("name"))
            return await self._delegate(visit, server, {**visit.params, "ref": {**ref, "name": name}})
        server = await self._owner_of(visit.session, ref.get("uri"))
        return await self._delegate(visit, server, visit.params)


async def _listed(session: Session, ask: Callable[[], Awaitable[list[JsonObject]]]) -> list[JsonObject]:
    """What a server lists; one that cannot say must not stand in the way of the others."""
    with suppress(WireError), session.clock.move_on_after(LIST_SECONDS):
        return await ask()
    return []
