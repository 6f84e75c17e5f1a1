"""Lists of a server that its client has looked at: those that it has to hear of if they are other ones after a loss."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeAlias

from emceepee.client import ServerConnection

__all__ = ["ListName", "SeenLists"]

JsonObject: TypeAlias = dict[str, Any]
ListName: TypeAlias = Literal["prompts", "resources", "resource_templates"]

_LISTS: Mapping[ListName, tuple[str, Callable[[ServerConnection], Awaitable[list[JsonObject]]]]] = {
    "prompts": ("prompts", lambda server: server.list_prompts()),
    "resources": ("resources", lambda server: server.list_resources()),
    "resource_templates": ("resources", lambda server: server.list_resource_templates()),
}
"""By name: the capability of servers that have it, and how they are asked."""


class SeenLists:
    """Of one link; the tools are not among them, because a link always knows those."""

    def __init__(self) -> None:
        self._seen: dict[ListName, list[JsonObject]] = {}

    async def ask(self, name: ListName, server: ServerConnection) -> list[JsonObject]:
        """What the server has of it now; nothing, if it does not have the capability.

        Raises:
            WireError: it did not say.
        """
        capability, ask = _LISTS[name]
        found = self._seen[name] = await ask(server) if capability in server.capabilities else []
        return found

    async def compare(self, server: ServerConnection) -> tuple[Mapping[str, object], Mapping[str, object]]:
        """The lists as they were seen, and as they are on a new connection.

        Raises:
            WireError: the server did not say.
        """
        before: dict[str, object] = {name: seen for name, seen in self._seen.items()}  # noqa: C416 (another type)
        return before, {name: await self.ask(name, server) for name in tuple(self._seen)}
