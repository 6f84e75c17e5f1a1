"""Which servers there are, and what they offer: adding, removing, reconnecting and listing them, and `list_tools`."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from pydantic import Field, ValidationError

from emceepee.client import ServerConnection
from emceepee.clock import isoformat
from emceepee.config import ServerConfig, problems_of
from emceepee.errors import InvalidArguments, NotAllowed
from emceepee.hub import LOCAL, Link, Session
from emceepee.tools.caller import Caller
from emceepee.tools.connecting import DEFAULT_WAIT_MS, ServerPattern, WaitMs, gather, links_matching
from emceepee.tools.patterns import matching
from emceepee.tools.reply import Reply, error_reply, json_reply
from emceepee.tools.tool import Input, NoInput, Tool

__all__ = ["TOOLS"]

JsonObject: TypeAlias = dict[str, Any]


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
    timeout_ms: WaitMs = DEFAULT_WAIT_MS


class RemoveServer(Input):
    name: str


class ReconnectServer(Input):
    name: str
    timeout_ms: WaitMs = DEFAULT_WAIT_MS


class ListTools(Input):
    server: ServerPattern = None
    tool: str | None = Field(None, description="Only tools of this name; a glob or a /regex/.")
    include_schemas: bool = Field(False, description="Also give the full definitions with inputSchema.")
    timeout_ms: WaitMs = DEFAULT_WAIT_MS


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
    if caller.session.origin.principal != LOCAL:
        # Tokens of `emceepee login` are those of the user who runs the hub.
        config = config.model_copy(update={"auth": "none"})
    await caller.hub.put_server(config, caller.session)
    return await _introduce(caller.session, config.name, given.timeout_ms)


async def reconnect_server(caller: Caller, given: ReconnectServer) -> Reply:
    caller.session.link(given.name).reconnect()
    return await _introduce(caller.session, given.name, given.timeout_ms)


async def _introduce(session: Session, name: str, timeout_ms: int) -> Reply:
    """Connect to a server and say what it offers."""
    link = session.link(name)
    _, failures = await gather(session, [link], _nothing, timeout_ms)
    if name in failures:
        reason = f"{link.life.last_error or failures[name]}. It stays registered, and is tried again when it is used."
        return error_reply(link.unavailable(reason))
    return json_reply({"server": _server_entry(session, link), **_offer(link)})


async def remove_server(caller: Caller, given: RemoveServer) -> Reply:
    await caller.hub.remove_server(given.name, caller.session)
    return json_reply({"success": True, "message": f"Server {given.name!r} was removed."})


async def list_servers(caller: Caller, _given: NoInput) -> Reply:
    session = caller.session
    return json_reply({"servers": [_server_entry(session, session.link(config.name)) for config in session.registry]})


async def list_tools(caller: Caller, given: ListTools) -> Reply:
    links = links_matching(caller.session, given.server)
    _, failures = await gather(caller.session, links, _nothing, given.timeout_ms)
    return json_reply({"servers": [_tools_entry(link, given, failures.get(link.name)) for link in links]})


async def _nothing(_link: Link, _server: ServerConnection) -> list[JsonObject]:
    """All that is wanted of the server is that it is connected: the link knows its tools then."""
    return []


def _server_entry(session: Session, link: Link) -> JsonObject:
    server = link.server
    return {
        **link.config.public(),
        "transport": link.config.transport if server is None else server.transport,
        "era": link.config.era if server is None else server.era,
        "connected": server is not None,
        "status": link.status,
        "connected_at": None if link.life.connected_at is None else isoformat(link.life.connected_at),
        "last_error": link.life.last_error,
        "tools": len(link.tools),
        "working_tasks": len(session.state.tasks.live(link.name)),
        "pending_questions": len(session.open_questions(server=link.name)),
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
            _tool_entry(link.tools[name], given.include_schemas) for name in matching(link.tools, given.tool, "tool")
        ],
    }
    return entry if failure is None else {**entry, "error": failure}


def _tool_entry(tool: JsonObject, include_schemas: bool) -> JsonObject:
    execution = tool.get("execution")
    task_support = execution.get("taskSupport", "forbidden") if isinstance(execution, dict) else "forbidden"
    brief = ("name", "title", "description")
    shown: JsonObject = {key: value for key, value in tool.items() if include_schemas or key in brief}
    return {**shown, "task_support": task_support}


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "add_server",
        "Connect an MCP server, for all your sessions: by url, or by command and args where programs are allowed. "
        "Returns its tools. A name used again replaces that server; one that fails stays until remove_server.",
        AddServer,
        add_server,
        idempotent=True,
        open_world=True,
    ),
    Tool(
        "remove_server",
        "Disconnect a server for all your sessions; its running tasks fail.",
        RemoveServer,
        remove_server,
        destructive=True,
    ),
    Tool(
        "reconnect_server",
        "Force a new connection to a server, after list_servers shows an error or it misbehaves.",
        ReconnectServer,
        reconnect_server,
        destructive=True,
        open_world=True,
    ),
    Tool(
        "list_servers",
        "All MCP servers, their state and last error. Start here, then use list_tools.",
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
