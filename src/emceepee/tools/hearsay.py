"""What servers said without asking: `get_notifications`, `get_logs`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from emceepee.core.buffers import LogLevel, LogSource
from emceepee.tools.caller import Caller
from emceepee.tools.reply import Reply, json_reply
from emceepee.tools.tool import Input, Tool

__all__ = ["TOOLS"]

Server = Annotated[str | None, Field(description="Only of this server.")]
Peek = Annotated[bool, Field(description="Look without taking them out.")]


class GetNotifications(Input):
    server: Server = None
    peek: Peek = False


class GetLogs(Input):
    server: Server = None
    level: LogLevel = Field("debug", description="This level and above.")
    source: LogSource | None = Field(None, description="protocol: MCP log messages; stderr: a program's output.")
    limit: int | None = Field(None, ge=1, description="Only the newest so many.")
    peek: Peek = False


async def get_notifications(caller: Caller, given: GetNotifications) -> Reply:
    _check_server(caller, given.server)
    found = caller.session.state.buffers.notifications(given.server, peek=given.peek)
    return json_reply({"notifications": [notification.as_json() for notification in found]})


async def get_logs(caller: Caller, given: GetLogs) -> Reply:
    _check_server(caller, given.server)
    found = caller.session.state.buffers.logs(
        given.server, level=given.level, source=given.source, limit=given.limit, peek=given.peek
    )
    return json_reply({"logs": [entry.as_json() for entry in found]})


def _check_server(caller: Caller, server: str | None) -> None:
    if server is not None:
        caller.session.registry.get(server)


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "get_notifications",
        "Notifications that servers sent, oldest first; each is given once, and of many only the newest.",
        GetNotifications,
        get_notifications,
    ),
    Tool(
        "get_logs",
        "What servers logged, oldest first; each entry is given once. Look here when a server "
        "misbehaves or does not connect.",
        GetLogs,
        get_logs,
    ),
)
