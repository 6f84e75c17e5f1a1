"""The modern era's way to be told of changes: one `subscriptions/listen` stream.

What is listened for is fixed when the stream is opened, so a change of the subscriptions opens it anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio

from emceepee.clock import Clock
from emceepee.errors import ConnectionLost, PeerError
from emceepee.wire.era import with_tasks
from emceepee.wire.peer import Peer

__all__ = ["Listener"]

ACKNOWLEDGE_SECONDS = 5.0

RETRY_DELAY = 5.0
"""Seconds before a stream that broke is opened again; there is no replay, so nothing is gained by haste."""

_LIST_CHANGES: Mapping[str, str] = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}


class Listener:
    """Keeps the stream open while there is something to listen for; idle in the handshake era."""

    def __init__(self, peer: Peer, clock: Clock) -> None:
        self._peer = peer
        self._clock = clock
        self._lists: dict[str, bool] = {}
        self._resources: dict[str, None] = {}
        self._tasks: dict[str, None] = {}
        self._tells_tasks = True
        self._changed = anyio.Event()
        self._is_running = False
        self._stream = anyio.CancelScope()
        self._is_acknowledged = anyio.Event()

    def start(self, capabilities: Mapping[str, Any]) -> None:
        """Listen for the lists that the server says may change."""
        for capability, key in _LIST_CHANGES.items():
            declared = capabilities.get(capability)
            if isinstance(declared, Mapping) and declared.get("listChanged"):
                self._lists[key] = True
        self._reopen()

    def on_acknowledged(self) -> None:
        """The server has said that it tells from now on."""
        self._is_acknowledged.set()

    async def acknowledged(self) -> None:
        """Wait until the stream is there, if there is to be one; a server that says nothing is not waited for long."""
        if self._wanted():
            with self._clock.move_on_after(ACKNOWLEDGE_SECONDS):
                await self._is_acknowledged.wait()

    def add_resource(self, uri: str) -> None:
        self._resources[uri] = None
        self._reopen()

    def remove_resource(self, uri: str) -> None:
        self._resources.pop(uri, None)
        self._reopen()

    def add_task(self, task_id: str) -> None:
        """Be told of a task's changes; servers that do not tell are polled anyway."""
        if self._is_running and self._tells_tasks:
            self._tasks[task_id] = None
            self._reopen()

    def remove_task(self, task_id: str) -> None:
        # The stream is left as it is: news of a task that nobody follows is dropped.
        self._tasks.pop(task_id, None)

    async def run(self) -> None:
        self._is_running = True
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            if not (wanted := self._wanted()):
                continue
            with anyio.CancelScope() as self._stream:
                if not await self._listen(wanted):
                    continue
                with self._clock.move_on_after(RETRY_DELAY):
                    await self._changed.wait()
                self._changed.set()

    async def _listen(self, wanted: dict[str, Any]) -> bool:
        """Hold the stream open; whether it is worth opening again after it ended."""
        era = with_tasks(self._peer.era) if "taskIds" in wanted else None
        try:
            await self._peer.request("subscriptions/listen", {"notifications": wanted}, era=era)
        except PeerError:
            self._is_acknowledged.set()
            if "taskIds" not in wanted:
                return False
            # Perhaps it is only tasks that it does not tell of.
            self._tells_tasks = False
            self._tasks.clear()
            self._changed.set()
            return False
        except ConnectionLost:
            return not self._peer.is_over
        return True

    def _wanted(self) -> dict[str, Any]:
        wanted: dict[str, Any] = dict(self._lists)
        if self._resources:
            wanted["resourceSubscriptions"] = list(self._resources)
        if self._tasks:
            wanted["taskIds"] = list(self._tasks)
        return wanted

    def _reopen(self) -> None:
        self._is_acknowledged = anyio.Event()
        self._changed.set()
        self._stream.cancel()
