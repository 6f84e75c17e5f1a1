"""Which servers there are, and for whom.

The servers of the configuration are everybody's. One that a client added belongs to the principal of that client; two
principals may use one name, each for a server of its own, and one of their own hides everybody's of the same name. The
local user is the one who runs the hub: what it changes takes the place of what the configuration says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from emceepee.config import ServerConfig
from emceepee.errors import NotAllowed, ServerNotFound
from emceepee.hub.origin import LOCAL

__all__ = ["ServerRegistry", "ServersOf"]


class _Entry(NamedTuple):
    config: ServerConfig
    owner: str | None
    """The principal whose it is; None for everybody's."""


class ServerRegistry:
    def __init__(self, configs: Iterable[ServerConfig] = ()) -> None:
        self._entries: dict[tuple[str, str], _Entry] = {}
        for config in configs:
            self.put(config)

    def __len__(self) -> int:
        return len(self._entries)

    def all(self) -> list[ServerConfig]:
        """The servers of everybody."""
        return [entry.config for entry in self._entries.values()]

    def of(self, principal: str) -> ServersOf:
        return ServersOf(self, principal)

    def visible(self, principal: str) -> dict[str, ServerConfig]:
        """What a principal may use, by name: its own, and of the others those that are everybody's."""
        found: dict[str, _Entry] = {}
        for (_, name), entry in self._entries.items():
            if entry.owner == principal or (entry.owner is None and name not in found):
                found[name] = entry
        return {name: entry.config for name, entry in found.items()}

    def find(self, name: str, principal: str) -> ServerConfig | None:
        entry = self._entries.get(_slot(name, principal)) or self._entries.get(_slot(name, None))
        return entry.config if entry is not None and entry.owner in (None, principal) else None

    def put(self, config: ServerConfig, owner: str | None = None) -> None:
        """Add or replace an entry of `owner`, or of everybody."""
        self._entries[_slot(config.name, owner)] = _Entry(config, owner)

    def remove(self, name: str, principal: str) -> None:
        """Remove what `principal` has under that name; the local user has everybody's as well.

        Raises:
            ServerNotFound: there is none of that name.
            NotAllowed: it belongs to everybody, and not to this principal.
        """
        slot = _slot(name, principal)
        if slot not in self._entries:
            if self.find(name, principal) is None:
                raise ServerNotFound(name, sorted(self.visible(principal)))
            raise NotAllowed(
                f"Server {name!r} is in the configuration of the hub, for everybody.",
                "Only whoever runs the hub can remove it. A server of yours that you add under the same name takes its "
                "place for you.",
            )
        del self._entries[slot]


def _slot(name: str, owner: str | None) -> tuple[str, str]:
    """Where an entry stands: those of the local user stand where everybody's do, and replace them."""
    return ("" if owner is None or owner == LOCAL else owner, name)


class ServersOf:
    """The servers that one principal may use, as they are at each moment."""

    def __init__(self, registry: ServerRegistry, principal: str) -> None:
        self._registry = registry
        self._principal = principal

    def __iter__(self) -> Iterator[ServerConfig]:
        return iter(self._registry.visible(self._principal).values())

    def __contains__(self, name: str) -> bool:
        return self._registry.find(name, self._principal) is not None

    def __len__(self) -> int:
        return len(self._registry.visible(self._principal))

    def find(self, name: str) -> ServerConfig | None:
        return self._registry.find(name, self._principal)

    def get(self, name: str) -> ServerConfig:
        """
        Raises:
            ServerNotFound: there is none of that name.
        """
        if (config := self.find(name)) is None:
            raise ServerNotFound(name, sorted(self._registry.visible(self._principal)))
        return config
