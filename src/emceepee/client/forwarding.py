"""Sending a request of somebody else's, as it came."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from emceepee.client.events import TaskCreated, TaskStatus
from emceepee.client.inbound import Inbound
from emceepee.client.interactive import InteractiveRequest
from emceepee.client.questions import CallRef
from emceepee.client.resumption import Resumption
from emceepee.client.tasked import TaskRunner
from emceepee.client.terms import Terms
from emceepee.protocol import without_meta
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
    def __init__(self, peer: Peer, inbound: Inbound, runner: TaskRunner, terms: Terms) -> None:
        self._peer = peer
        self._inbound = inbound
        self._runner = runner
        self._terms = terms

    async def forward(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        client: OnBehalfOf | None = None,
        passes_urls: bool = False,
        is_waited_for: Callable[[], bool] = lambda: True,
        task_ttl_ms: int | None = None,
        on_progress: OnProgress | None = None,
        on_task: Callable[[TaskCreated | TaskStatus], None] = lambda _update: None,
        origin: object | None = None,
        resumption: Resumption | None = None,
    ) -> JsonObject:
        """The server's answer; questions in it are for `client` where there is one that waits, and else for us.

        `passes_urls` says that whoever sent it sees to the URLs that have to be opened first: an error that names them
        is the answer, too. `is_waited_for` says whether somebody still waits who can be asked in the answer, and
        `task_ttl_ms` that a task is welcome.
        """
        era = self._era(client)
        origin = origin or CallRef(method, "")
        outgoing = self._without_envelope(self._terms.with_log_level(params))
        is_for_client = client is not None and self._peer.era.name == "modern"

        def passes_questions() -> bool:
            return is_for_client and is_waited_for()

        if method == "tools/call":
            name = str(params.get("name"))
            return await self._runner.call(
                self._with_task(name, outgoing, task_ttl_ms),
                origin,
                on_progress=on_progress,
                on_task=on_task,
                headers=self._terms.headers(name, params.get("arguments") or {}),
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
        return await request.run(on_progress=on_progress)

    def _with_task(self, tool: str, params: JsonObject, ttl_ms: int | None) -> JsonObject:
        """The parameters of a call, as a task of the server's where that is wanted; not of ours, as it came to us."""
        plain = {key: value for key, value in params.items() if key != "task"}
        support = self._terms.task_support(tool)
        if support == "required" or (support == "optional" and ttl_ms is not None):
            return {**plain, "task": {} if ttl_ms is None else {"ttl": ttl_ms}}
        return plain

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
        return without_meta(params, dropped)
