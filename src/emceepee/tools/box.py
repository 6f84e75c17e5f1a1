"""All the meta-tools, by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from typing import Any, TypeAlias

from structlog import get_logger

from emceepee.errors import EmceepeeError, ToolError, ToolNotFound, as_tool_error
from emceepee.tools import activity, execution, hearsay, prompts, questions, resources, servers, tasks
from emceepee.tools.caller import Caller
from emceepee.tools.reply import Reply, complete, error_reply
from emceepee.tools.tool import Tool

__all__ = ["ToolBox", "replied"]

JsonObject: TypeAlias = dict[str, Any]
log = get_logger(__name__)


class ToolBox:
    def __init__(self) -> None:
        modules = (servers, execution, activity, questions, tasks, resources, prompts, hearsay)
        self._tools: Mapping[str, Tool[Any]] = {tool.name: tool for module in modules for tool in module.TOOLS}
        self.definitions: list[JsonObject] = [tool.definition() for tool in self._tools.values()]

    async def call(self, caller: Caller, name: str, arguments: object) -> JsonObject:
        """Run a tool, and tell what is new besides."""
        return complete(await self.run(caller, name, arguments), caller)

    async def run(self, caller: Caller, name: str, arguments: object) -> Reply:
        """Run a tool; every failure is an error reply."""
        return await replied(caller, lambda: self._run(caller, name, arguments), name)

    async def _run(self, caller: Caller, name: str, arguments: object) -> Reply:
        tool = self._tools.get(name)
        if tool is None:
            raise ToolNotFound(name, None, get_close_matches(name, self._tools))
        return await tool(caller, arguments)


async def replied(caller: Caller, run: Callable[[], Awaitable[Reply]], name: str) -> Reply:
    """What `run` replies, and that is durable; every failure is an error reply, and costs the client no events."""
    try:
        reply = await run()
    except EmceepeeError as error:
        reply = error_reply(as_tool_error(error))
    except Exception:
        log.exception("tool_crashed", tool=name)
        reply = error_reply(ToolError("The hub failed.", "Its log has the details."))
    await caller.session.durable()
    return reply
