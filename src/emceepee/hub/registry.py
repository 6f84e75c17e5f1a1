"""Which servers there are, for all sessions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from emceepee.config import ServerConfig
from emceepee.errors import ServerNotFound

__all__ = ["ServerRegistry"]


class ServerRegistry:
    def __init__(self, configs: Iterable[ServerConfig] = ()) -> None:
        self._configs: dict[str, ServerConfig] = {config.name: config for config in configs}

    def __iter__(self) -> Iterator[ServerConfig]:
        return iter(tuple(self._configs.values()))

    def __contains__(self, name: str) -> bool:
        return name in self._configs

    def __len__(self) -> int:
        return len(self._configs)

    def get(self, name: str) -> ServerConfig:
        """
        Raises:
            ServerNotFound: there is none of that name.
        """
        try:
            return self._configs[name]
        except KeyError:
            raise ServerNotFound(name, sorted(self._configs)) from None

    def put(self, config: ServerConfig) -> ServerConfig | None:
        """Add or replace an entry; returns what stood there before."""
        before = self._configs.get(config.name)
        self._configs[config.name] = config
        return before

    def remove(self, name: str) -> ServerConfig:
        """
        Raises:
            ServerNotFound: there is none of that name.
        """
        config = self.get(name)
        del self._configs[name]
        return config
