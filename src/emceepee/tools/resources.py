"""What servers have to read: resources and their templates."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import Field

from emceepee.client import ServerConnection
from emceepee.errors import EmceepeeError, as_tool_error
from emceepee.hub import Link, ResourceRead
from emceepee.tools.caller import Caller
from emceepee.tools.calling import TimeoutMs, respond_with
from emceepee.tools.connecting import DEFAULT_WAIT_MS, ServerPattern, WaitMs, gather, links_matching
from emceepee.tools.reply import Reply, json_reply, listed
from emceepee.tools.tool import Input, Tool

__all__ = ["TOOLS"]

JsonObject: TypeAlias = dict[str, Any]
Server = Annotated[str, Field(description="The server's name.")]
Uri = Annotated[str, Field(description="From list_resources, or made from a template.")]


class ListOf(Input):
    server: ServerPattern = None
    timeout_ms: WaitMs = DEFAULT_WAIT_MS


class ReadResource(Input):
    server: Server
    uri: Uri
    timeout_ms: TimeoutMs = None


class Subscription(Input):
    server: Server
    uri: Uri


async def list_resources(caller: Caller, given: ListOf) -> Reply:
    async def ask(link: Link, server: ServerConnection) -> list[JsonObject]:
        return await link.lists.ask("resources", server)

    links = links_matching(caller.session, given.server)
    return listed("resources", await gather(caller.session, links, ask, given.timeout_ms))


async def list_resource_templates(caller: Caller, given: ListOf) -> Reply:
    async def ask(link: Link, server: ServerConnection) -> list[JsonObject]:
        return await link.lists.ask("resource_templates", server)

    links = links_matching(caller.session, given.server)
    return listed("resource_templates", await gather(caller.session, links, ask, given.timeout_ms))


async def read_resource(caller: Caller, given: ReadResource) -> Reply:
    return await respond_with(caller, given.server, ResourceRead(given.uri), timeout_ms=given.timeout_ms)


async def subscribe_resource(caller: Caller, given: Subscription) -> Reply:
    link = caller.session.link(given.server)
    try:
        await (await link.connected()).subscribe(given.uri)
    except EmceepeeError as error:
        raise as_tool_error(error, given.server) from None
    link.wishes.subscribe(given.uri)
    return json_reply({"success": True, "message": f"Updates of {given.uri} come as events: use await_activity."})


async def unsubscribe_resource(caller: Caller, given: Subscription) -> Reply:
    link = caller.session.link(given.server)
    if not link.wishes.unsubscribe(given.uri):
        return json_reply({"success": False, "message": f"There was no subscription to {given.uri}."})
    try:
        await (await link.connected()).unsubscribe(given.uri)
    except EmceepeeError as error:
        raise as_tool_error(error, given.server) from None
    return json_reply({"success": True, "message": f"No more updates of {given.uri}."})


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "list_resources",
        "Data that servers offer to read, each with its server and uri. Read one with read_resource.",
        ListOf,
        list_resources,
        read_only=True,
        open_world=True,
    ),
    Tool(
        "list_resource_templates",
        "URI templates of servers: fill in a template's {…} and read the result with read_resource.",
        ListOf,
        list_resource_templates,
        read_only=True,
        open_world=True,
    ),
    Tool(
        "read_resource",
        "The contents of a resource; a slow one becomes a task, as with execute_tool.",
        ReadResource,
        read_resource,
        read_only=True,
        open_world=True,
    ),
    Tool(
        "subscribe_resource",
        "Be told, by an event, whenever a resource changes.",
        Subscription,
        subscribe_resource,
        idempotent=True,
        open_world=True,
    ),
    Tool(
        "unsubscribe_resource",
        "Be told no more of a resource's changes.",
        Subscription,
        unsubscribe_resource,
        idempotent=True,
        open_world=True,
    ),
)
