"""Asking several servers at once, none of which may hold up the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, TypeAlias

import anyio
from pydantic import Field

from emceepee.client import ServerConnection
from emceepee.errors import EmceepeeError, ServerNotFound, as_tool_error
from emceepee.hub import Link, Session
from emceepee.tools.patterns import matching

__all__ = ["DEFAULT_WAIT_MS", "Gathered", "ServerPattern", "WaitMs", "gather", "links_matching"]

JsonObject: TypeAlias = dict[str, Any]
Gathered: TypeAlias = tuple[dict[str, list[JsonObject]], dict[str, str]]
"""What the servers answered, and why others did not, each by server."""

DEFAULT_WAIT_MS = 30_000
"""How long a tool waits for servers that are slow, or just connecting."""

WaitMs = Annotated[int, Field(ge=0, le=600_000, description="Longest wait for servers, in ms.")]
ServerPattern = Annotated[str | None, Field(description="Only this server; a glob like git*, or a /regex/.")]


def links_matching(session: Session, pattern: str | None) -> list[Link]:
    """
    Raises:
        ServerNotFound: a pattern is given and no server fits it.
    """
    names = [config.name for config in session.registry]
    wanted = matching(names, pattern, "server")
    if pattern is not None and not wanted:
        raise ServerNotFound(pattern, names)
    return [session.link(name) for name in wanted]


async def gather(
    session: Session,
    links: Sequence[Link],
    ask: Callable[[Link, ServerConnection], Awaitable[list[JsonObject]]],
    wait_ms: int,
) -> Gathered:
    """Connect to all servers and ask each; one that fails, or takes too long, only misses in the answer."""
    found: dict[str, list[JsonObject]] = {}
    failures = {link.name: "It did not answer in time; it may still be connecting." for link in links}

    async def ask_one(link: Link) -> None:
        try:
            found[link.name] = await ask(link, await link.connected())
            del failures[link.name]
        except EmceepeeError as error:
            failures[link.name] = as_tool_error(error, link.name).message

    with session.clock.move_on_after(wait_ms / 1000):
        async with anyio.create_task_group() as tasks:
            for link in links:
                tasks.start_soon(ask_one, link)
    return found, failures
