"""Prompts that servers have ready: `list_prompts`, `get_prompt`."""

from __future__ import annotations

from typing import Any, TypeAlias

from pydantic import Field

from emceepee.client import ServerConnection
from emceepee.hub import Link, PromptGet
from emceepee.tools.caller import Caller
from emceepee.tools.calling import TimeoutMs, respond_with
from emceepee.tools.connecting import DEFAULT_WAIT_MS, ServerPattern, WaitMs, gather, links_matching
from emceepee.tools.reply import Reply, listed
from emceepee.tools.tool import Input, Tool

__all__ = ["TOOLS"]

JsonObject: TypeAlias = dict[str, Any]


class ListPrompts(Input):
    server: ServerPattern = None
    timeout_ms: WaitMs = DEFAULT_WAIT_MS


class GetPrompt(Input):
    server: str = Field(description="The server's name.")
    name: str = Field(description="From list_prompts.")
    arguments: dict[str, str] = Field(default_factory=dict, description="As the prompt's arguments say.")
    timeout_ms: TimeoutMs = None


async def list_prompts(caller: Caller, given: ListPrompts) -> Reply:
    async def ask(link: Link, server: ServerConnection) -> list[JsonObject]:
        return await link.lists.ask("prompts", server)

    links = links_matching(caller.session, given.server)
    return listed("prompts", await gather(caller.session, links, ask, given.timeout_ms))


async def get_prompt(caller: Caller, given: GetPrompt) -> Reply:
    return await respond_with(caller, given.server, PromptGet(given.name, given.arguments), timeout_ms=given.timeout_ms)


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "list_prompts",
        "Prompts that servers have ready, each with its server, name and arguments.",
        ListPrompts,
        list_prompts,
        read_only=True,
        open_world=True,
    ),
    Tool(
        "get_prompt",
        "The messages of a prompt, with its arguments filled in.",
        GetPrompt,
        get_prompt,
        read_only=True,
        open_world=True,
    ),
)
