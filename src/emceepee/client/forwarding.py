"""Sending a request of somebody else's, as it came."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from emceepee.client.events import TaskCreated, TaskStatus
from emceepee.client.inbound import Inbound
from emceepee.client.interactive import InteractiveRequest
from emceepee.client.resumption import Resumption
from emceepee.client.tasked import TaskRunner
from emceepee.wire.era import ENVELOPE_KEYS, LOG_LEVEL_META_KEY, Era, Identity, ModernEra
from emceepee.wire.peer import OnProgress, Peer

__all__ = ["Forwarder", "OnBehalfOf"]

JsonObject: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class OnBehalfOf:
    """The modern client whose request it is: a modern server is told of it, and not of us."""

    capabilities: Mapping[str, Any]
    info: Mapping[str, Any] | None = None


class Forwarder:
    def __init__(self, peer: Peer, inbound: Inbound, runner: TaskRunner) -> None:
        self._peer = peer
        self._inbound = inbound
        self._runner = runner

    async def forward(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        client: OnBehalfOf | None,
        passes_urls: bool,
        is_waited_for: Callable[[], bool],
        origin: object,
        headers: Mapping[str, str],
        on_progress: OnProgress | None = None,
        on_task: Callable[[TaskCreated | TaskStatus], None] = lambda _update: None,
        resumption: Resumption | None = None,
    ) -> JsonObject:
        """The server's answer; questions in it are for `client` where there is one that waits, and else for us.

        With `passes_urls`, an error that names URLs to be opened first is the answer, too.
        """
        era = self._era(client)
        outgoing = self._without_envelope(params)
        is_for_client = client is not None and self._peer.era.name == "modern"

        def passes_questions() -> bool:
            return is_for_client and is_waited_for()

        if method == "tools/call":
            return await self._runner.call(
                outgoing,
                origin,
                on_progress=on_progress,
                on_task=on_task,
                headers=headers,
                resumption=resumption,
                era=era,
                passes_questions=passes_questions,
                passes_urls=passes_urls,
            )
        request = InteractiveRequest(
            self._peer,
            self._inbound,
            method,
            outgoing,
            origin,
            era=era,
            resumption=resumption,
            passes_questions=passes_questions,
            passes_urls=passes_urls,
        )
        return await request.run(on_progress=on_progress, headers=headers)

    def _era(self, client: OnBehalfOf | None) -> Era | None:
        own = self._peer.era
        if client is None or not isinstance(own, ModernEra):
            return None
        info = dict(client.info) if client.info is not None else own.identity.info
        return ModernEra(Identity(info, dict(client.capabilities)), own.version)

    def _without_envelope(self, params: Mapping[str, Any]) -> JsonObject:
        """The parameters without what belongs to the connection that they came over."""
        dropped = {"progressToken", *ENVELOPE_KEYS}
        if self._peer.era.name == "handshake":
            dropped.add(LOG_LEVEL_META_KEY)
        given = params.get("_meta")
        meta = {key: value for key, value in (given or {}).items() if key not in dropped}
        rest = {key: value for key, value in params.items() if key != "_meta"}
        return {**rest, "_meta": meta} if meta else rest
