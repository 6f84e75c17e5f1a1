"""Which servers there are, and what they offer: `add_server`, `remove_server`, `list_servers`, `list_tools`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from typing import Annotated, Any, Literal, TypeAlias

import anyio
from pydantic import Field, ValidationError

from emceepee.clock import isoformat
from emceepee.config import ServerConfig, problems_of
from emceepee.errors import InvalidArguments, NotAllowed, ServerDisconnected, ServerNotFound, WireError
from emceepee.hub import Link, Session
from emceepee.tools.caller import Caller
from emceepee.tools.reply import Reply, error_reply, json_reply
from emceepee.tools.tool import Input, NoInput, Tool

__all__ = ["TOOLS"]

JsonObject: TypeAlias = dict[str, Any]

CONNECT_TIMEOUT_MS = 30_000
"""How long a tool waits for servers that are just connecting."""

ConnectTimeout = Annotated[int, Field(ge=0, le=600_000, description="Longest wait for connecting, in ms.")]


class AddServer(Input):
    name: str = Field(description="How you will call it.")
    url: str | None = Field(None, description="For a remote server: its http(s) URL.")
    command: str | None = Field(None, description="For a local server: the program to start.")
    args: list[str] = Field(default_factory=list, description="The program's arguments.")
    env: dict[str, str] = Field(default_factory=dict, description="Extra environment of the program.")
    cwd: str | None = Field(None, description="The program's working directory.")
    headers: dict[str, str] = Field(default_factory=dict, description="HTTP headers, such as Authorization.")
    transport: Literal["auto", "http", "sse", "stdio"] = "auto"
    era: Literal["auto", "handshake", "modern"] = Field("auto", description="Leave it at auto.")
    timeout_ms: ConnectTimeout = CONNECT_TIMEOUT_MS


class RemoveServer(Input):
    name: str


class ListTools(Input):
    server: str | None = Field(None, description="Only this server; a glob like git*, or a /regex/.")
    tool: str | None = Field(None, description="Only tools of this name; a glob or a /regex/.")
    include_schemas: bool = Field(False, description="Also give the full definitions with inputSchema.")
    timeout_ms: ConnectTimeout = CONNECT_TIMEOUT_MS


async def add_server(caller: Caller, given: AddServer) -> Reply:
    try:
        config = ServerConfig.model_validate(given.model_dump(exclude={"timeout_ms"}))
    except ValidationError as error:
        raise InvalidArguments(problems_of(error), "Give either url, or command and args.") from None
    if config.is_program and not caller.may_spawn:
        raise NotAllowed(
            "Starting programs is not allowed here.",
            "Give a url; or have the hub started with --allow-spawn, or the server put into its --config file.",
        )
    await caller.hub.put_server(config, caller.session)
    link = caller.session.link(config.name)
    failure = await _connect(caller.session, [link], given.timeout_ms)
    if config.name in failure:
        reason = f"{failure[config.name]} It stays registered, and is tried again when it is used."
        return error_reply(ServerDisconnected(config.name, reason))
    return json_reply({"server": _server_entry(caller.session, link), **_offer(link)})


async def remove_server(caller: Caller, given: RemoveServer) -> Reply:
    await caller.hub.remove_server(given.name)
    return json_reply({"success": True, "message": f"Server {given.name!r} was removed for every session."})


async def list_servers(caller: Caller, _given: NoInput) -> Reply:
    session = caller.session
    return json_reply({"servers": [_server_entry(session, session.link(config.name)) for config in session.registry]})


async def list_tools(caller: Caller, given: ListTools) -> Reply:
    session = caller.session
    names = [config.name for config in session.registry]
    wanted = _matching(names, given.server, "server")
    if given.server is not None and not wanted:
        raise ServerNotFound(given.server, names)
    links = [session.link(name) for name in wanted]
    failures = await _connect(session, links, given.timeout_ms)
    return json_reply({"servers": [_tools_entry(link, given, failures.get(link.name)) for link in links]})


async def _connect(session: Session, links: Sequence[Link], timeout_ms: int) -> dict[str, str]:
    """Connect to all at once; returns why it did not work, by server."""
    failures: dict[str, str] = {link.name: "It is still connecting." for link in links if link.status != "connected"}

    async def wait_for(link: Link) -> None:
        try:
            await link.connected()
            failures.pop(link.name, None)
        except (ServerDisconnected, WireError) as error:
            failures[link.name] = getattr(error, "reason", str(error))

    if failures:
        with session.clock.move_on_after(timeout_ms / 1000):
            async with anyio.create_task_group() as tasks:
                for link in links:
                    tasks.start_soon(wait_for, link)
    return failures


def _server_entry(session: Session, link: Link) -> JsonObject:
    server = link.server
    return {
        **link.config.public(),
        "transport": link.config.transport if server is None else server.transport,
        "era": link.config.era if server is None else server.era,
        "connected": server is not None,
        "status": link.status,
        "connected_at": None if link.connected_at is None else isoformat(link.connected_at),
        "last_error": link.last_error,
        "tools": len(link.tools),
        "working_tasks": len(session.state.tasks.live(link.name)),
        "pending_questions": len(session.state.questions.pending(server=link.name)),
    }


def _offer(link: Link) -> JsonObject:
    server = link.server
    offer: JsonObject = {
        "capabilities": {} if server is None else server.capabilities,
        "tools": [_tool_entry(tool, include_schemas=False) for tool in link.tools.values()],
    }
    if server is not None and server.instructions:
        offer["instructions"] = server.instructions
    return offer


def _tools_entry(link: Link, given: ListTools, failure: str | None) -> JsonObject:
    entry: JsonObject = {
        "server": link.name,
        "status": link.status,
        "tools": [
            _tool_entry(link.tools[name], given.include_schemas) for name in _matching(link.tools, given.tool, "tool")
        ],
    }
    return entry if failure is None else {**entry, "error": failure}


def _tool_entry(tool: JsonObject, include_schemas: bool) -> JsonObject:
    execution = tool.get("execution")
    task_support = execution.get("taskSupport", "forbidden") if isinstance(execution, dict) else "forbidden"
    brief = ("name", "title", "description")
    shown: JsonObject = {key: value for key, value in tool.items() if include_schemas or key in brief}
    return {**shown, "task_support": task_support}


def _matching(names: Sequence[str] | dict[str, Any], pattern: str | None, key: str) -> list[str]:
    if pattern is None:
        return list(names)
    is_regex = len(pattern) > 1 and pattern.startswith("/") and pattern.endswith("/")
    try:
        expression = re.compile(pattern[1:-1] if is_regex else translate(pattern))
    except re.error as error:
        raise InvalidArguments([f"{key}: {pattern!r} is not a regular expression: {error}"]) from None
    return [name for name in names if (expression.search if is_regex else expression.match)(name)]


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "add_server",
        "Connect an MCP server: a remote one by url, a local one by command and args. Returns its tools. "
        "Using a name again replaces that server.",
        AddServer,
        add_server,
        idempotent=True,
        open_world=True,
    ),
    Tool(
        "remove_server",
        "Disconnect a server for everyone; its running tasks fail.",
        RemoveServer,
        remove_server,
        destructive=True,
    ),
    Tool(
        "list_servers",
        "The connected MCP servers and their state. Start here, then use list_tools.",
        NoInput,
        list_servers,
        read_only=True,
    ),
    Tool(
        "list_tools",
        "The tools of the servers. Ask with include_schemas before you call a tool with execute_tool.",
        ListTools,
        list_tools,
        read_only=True,
        open_world=True,
    ),
)
