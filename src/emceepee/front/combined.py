"""All servers under one URL, with the names of their tools and prompts prefixed: `{server}__{name}`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import anyio
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND
from structlog import get_logger

from emceepee import __version__
from emceepee.client import ServerConnection
from emceepee.errors import EmceepeeError, PeerError, WireError
from emceepee.front.capabilities import capabilities_for
from emceepee.front.client import ClientFacts
from emceepee.front.jsonrpc import Request
from emceepee.front.outcomes import Outcome
from emceepee.front.templates import fits, prefix_of
from emceepee.front.transparent import ServerService
from emceepee.front.visit import Visit
from emceepee.hub import Session
from emceepee.protocol import RESOURCE_NOT_FOUND

__all__ = ["AllService"]

JsonObject: TypeAlias = dict[str, Any]
log = get_logger(__name__)

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
                kind = "tools/list" if visit.method == "tools/call" else "prompts/list"
                server, name = await self._split(visit.session, visit.params.get("name"), kind)
                return await self._delegate(visit, server, {**visit.params, "name": name})
            case "resources/read" | "resources/subscribe" | "resources/unsubscribe":
                uri = visit.params.get("uri")
                subscribed = self._subscribed(visit.session, uri) if visit.method == "resources/unsubscribe" else []
                return await self._delegate_to_first(visit, subscribed or await self._owners_of(visit.session, uri))
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
                owner, *_ = await self._owners_of(session, uri)
                await self._service(owner).listen(session, [uri])
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

    async def _delegate_to_first(self, visit: Visit, servers: Sequence[str]) -> Outcome:
        """To the first of them that knows of such a resource; if none does, the first one says so."""
        try:
            return await self._delegate(visit, servers[0], visit.params)
        except PeerError as error:
            if error.code not in (RESOURCE_NOT_FOUND, INVALID_PARAMS):
                raise
            for server in servers[1:]:
                with suppress(PeerError):
                    return await self._delegate(visit, server, visit.params)
            raise

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
        found = [(name, item) for name in servers for item in gathered.get(name, [])]
        return {key: _prefixed(found) if capability != "resources" else [item for _, item in found]}

    async def _split(self, session: Session, name: object, kind: str) -> tuple[str, str]:
        """The server, and the name that the server knows; a server's own name may hold the separator, too."""
        given = name if isinstance(name, str) else ""
        fitting = [one.name for one in session.registry if given.startswith(one.name + SEPARATOR)]
        if not fitting:
            raise PeerError(INVALID_PARAMS, f"Unknown name: {name}; here they are {{server}}{SEPARATOR}{{name}}")
        fitting.sort(key=len, reverse=True)
        server = await self._one_that_has(session, given, fitting, kind) if len(fitting) > 1 else fitting[0]
        return server, given.removeprefix(server + SEPARATOR)

    async def _one_that_has(self, session: Session, given: str, fitting: Sequence[str], kind: str) -> str:
        """Of several servers that a name may be of, the first that lists the rest of it."""
        capability, _, ask = _LISTS[kind]
        servers = await self._connected(session)
        for name in fitting:
            if (server := servers.get(name)) is not None and capability in server.capabilities:
                items = await _listed(session, partial(ask, server))
                if any(f"{name}{SEPARATOR}{item.get('name')}" == given for item in items):
                    return name
        return fitting[0]

    def _subscribed(self, session: Session, uri: object) -> list[str]:
        services = self._services.items()
        return [name for name, one in services if isinstance(uri, str) and one.is_subscribed(session, uri)]

    async def _owners_of(self, session: Session, uri: object) -> list[str]:
        """Whose resource it can be, the likeliest first: of the one that lists it, or has a template that may fit.

        Raises:
            PeerError: of nobody.
        """
        if not isinstance(uri, str):
            raise PeerError(INVALID_PARAMS, "A uri is needed")
        servers = await self._connected(session)
        able = {name: server for name, server in servers.items() if "resources" in server.capabilities}
        for name, server in able.items():
            if any(resource.get("uri") == uri for resource in await _listed(session, server.list_resources)):
                return [name]
        ranks: dict[str, tuple[bool, bool, int]] = {}
        for name, server in able.items():
            listed = await _listed(session, server.list_resource_templates)
            fitting = [rank for one in listed if (rank := _rank(str(one.get("uriTemplate", "")), uri)) is not None]
            if fitting:
                ranks[name] = max(fitting)
        if not ranks:
            raise PeerError(INVALID_PARAMS, f"Resource not found: {uri}", {"uri": uri})
        return sorted(ranks, key=lambda name: ranks[name], reverse=True)

    async def _complete(self, visit: Visit) -> Outcome:
        ref = visit.params.get("ref")
        if not isinstance(ref, Mapping):
            raise PeerError(INVALID_PARAMS, "completion/complete needs a ref")
        if ref.get("type") == "ref/prompt":
            server, name = await self._split(visit.session, ref.get("name"), "prompts/list")
            return await self._delegate(visit, server, {**visit.params, "ref": {**ref, "name": name}})
        owners = await self._owners_of(visit.session, ref.get("uri"))
        return await self._delegate_to_first(visit, owners)


def _rank(template: str, uri: str) -> tuple[bool, bool, int] | None:
    """How likely it is that a URI is of a template: it is the template itself, fits it, or begins like it."""
    prefix = prefix_of(template)
    return (template == uri, fits(template, uri), len(prefix)) if uri.startswith(prefix) else None


def _prefixed(found: Sequence[tuple[str, JsonObject]]) -> list[JsonObject]:
    """What servers list, under names that say whose it is; of two with the same name, the one that it calls."""
    named: dict[str, tuple[str, JsonObject]] = {}
    for server, item in found:
        name = f"{server}{SEPARATOR}{item.get('name')}"
        other, _ = named.get(name, (server, item))
        if other != server:
            log.warning("names_clash", name=name, servers=sorted((server, other)))
        if len(server) >= len(other):
            named[name] = (server, {**item, "name": name})
    return [item for _, item in named.values()]


async def _listed(session: Session, ask: Callable[[], Awaitable[list[JsonObject]]]) -> list[JsonObject]:
    """What a server lists; one that cannot say must not stand in the way of the others."""
    with suppress(WireError), session.clock.move_on_after(LIST_SECONDS):
        return await ask()
    return []
