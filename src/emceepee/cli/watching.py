"""Follows the settings file while the hub runs: its servers come, change and go with it.

The rest of the settings is what a run was started with; that they changed is only said. Servers that clients added, or
took over by adding one of the same name, are theirs and not the file's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
from structlog import get_logger

from emceepee.concurrency import companions
from emceepee.config import (
    Changes,
    Configuration,
    ServerConfig,
    Settings,
    Stillness,
    WrongSettings,
    changes,
    fingerprint,
)
from emceepee.config.settings import SETTING_NAMES
from emceepee.hub import LOCAL, Hub

__all__ = ["LOOK_SECONDS", "warn_of_oddities", "watching"]

log = get_logger(__name__)

LOOK_SECONDS = 0.5
"""A change is taken up after two looks: within a second, which is soon for whoever has just saved a file."""


@asynccontextmanager
async def watching(hub: Hub, read: Callable[[], Configuration], current: Configuration) -> AsyncIterator[None]:
    """Follow the file that `current` came from while the body runs; a pipe, which can be read once, is not followed."""
    async with companions() as tasks:
        if current.path is not None and current.path.is_file():
            tasks.start_soon(_SettingsWatcher(hub, read, current).run)
        yield


class _SettingsWatcher:
    """Applies to `hub` what changes between `current` and each later `read`."""

    def __init__(self, hub: Hub, read: Callable[[], Configuration], current: Configuration) -> None:
        self._hub = hub
        self._registered = hub.registry.of(LOCAL)
        self._read = read
        self._current = current
        self._stillness = Stillness(current.fingerprint)

    async def run(self) -> None:
        while True:
            with self._hub.clock.move_on_after(LOOK_SECONDS):
                await anyio.sleep_forever()
            try:
                await self._look()
            except Exception:
                log.exception("settings_watch_failed", file=str(self._current.path))

    async def _look(self) -> None:
        path = self._current.path
        # Not in a thread: a look takes microseconds, and reading a file of this size little more.
        if path is None or not self._stillness.is_worth_reading(fingerprint(path)):
            return
        try:
            after = self._read()
        except WrongSettings as error:
            log.warning("settings_rejected", file=str(path), problems=[str(problem) for problem in error.problems])
            return
        warn_of_oddities(after)
        before, self._current = self._current, after
        await self._apply(changes(before.servers, after.servers))
        if differing := _differing(before.settings, after.settings):
            log.warning("settings_need_restart", file=str(path), keys=differing)

    async def _apply(self, news: Changes) -> None:
        removed = [server.name for server in news.removed if await self._remove(server)]
        updated = [after.name for before, after in news.updated if await self._put(after, before)]
        added = [server.name for server in news.added if await self._put(server)]
        log.info("settings_reloaded", file=str(self._current.path), added=added, updated=updated, removed=removed)

    async def _remove(self, server: ServerConfig) -> bool:
        if server.name not in self._registered or not self._is_ours(server):
            return False
        await self._hub.remove_server(server.name)
        return True

    async def _put(self, server: ServerConfig, before: ServerConfig | None = None) -> bool:
        if server.name in self._registered and not self._is_ours(before):
            log.warning("settings_server_kept", server=server.name, reason="one of this name was added while running")
            return False
        await self._hub.put_server(server)
        return True

    def _is_ours(self, server: ServerConfig | None) -> bool:
        """Whether what is registered is still what the file said."""
        return server is not None and self._registered.find(server.name) == server


def warn_of_oddities(configuration: Configuration) -> None:
    """Say which keys of the file look like a slip, which names do not fit, and which programs are not there.

    They are not refused, for the file may be another client's, and a program may be installed later.
    """
    for key, meant in configuration.ignored.items():
        log.warning("settings_key_ignored", file=str(configuration.path), key=key, did_you_mean=meant)
    for name, known_as in configuration.renamed.items():
        log.warning("settings_server_renamed", file=str(configuration.path), server=name, known_as=known_as)
    for server in configuration.servers:
        if (program := server.missing_program) is not None:
            log.warning("server_program_missing", server=server.name, program=program)


def _differing(before: Settings, after: Settings) -> list[str]:
    return [name for name in SETTING_NAMES if getattr(before, name) != getattr(after, name)]
