"""A request that may ask back before it is done.

In the handshake era the server's questions come as requests of their own while ours is open, or an error names URLs
that have to be opened first. In the modern era the answer to our request is `input_required`. Either way we send it
again when everything is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import anyio

from emceepee.client.inbound import Inbound
from emceepee.client.questions import KIND_OF_METHOD
from emceepee.client.resumption import Resumption
from emceepee.client.urls import urls_required
from emceepee.core.questions import Belonging
from emceepee.errors import ConnectionLost, PeerError, RequestTimedOut
from emceepee.wire.era import Era
from emceepee.wire.peer import OnProgress, Peer

__all__ = ["InteractiveRequest"]

JsonObject: TypeAlias = dict[str, Any]

MAX_ROUNDS = 100
"""How often a server may ask for the same request, before we take it for broken."""

ROUND_KEYS = ("inputResponses", "requestState")
"""What belongs to one round of a request, and not to the next."""

EMPTY_ROUND_DELAY = 1.0
"""Seconds before a request is sent again for which the server wants no input at all, only to be asked later."""

URL_ROUND_DELAY = 5.0
"""Seconds before a request is sent again whose URLs the user has agreed to open, while the server says nothing."""


class InteractiveRequest:
    def __init__(
        self,
        peer: Peer,
        inbound: Inbound,
        method: str,
        params: Mapping[str, Any],
        origin: object,
        *,
        era: Era | None = None,
        resumption: Resumption | None = None,
        passes_questions: Callable[[], bool] = lambda: False,
        passes_urls: bool = False,
    ) -> None:
        """While `passes_questions`, what the server asks back is the result, for somebody else to answer.

        With `passes_urls`, so is the error that names URLs to be opened first.
        """
        self._passes_questions = passes_questions
        self._passes_urls = passes_urls
        self._agreed: set[str] = set()
        self._peer = peer
        self._inbound = inbound
        self._method = method
        self._params = params
        self._origin = origin
        self._era = era
        self._resumption = resumption or Resumption()
        self.request_id = 0
        """Under which it was sent last; also its progress token."""

    async def run(
        self,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> JsonObject:
        """Send the request, and again for as long as the server asks back; `timeout` is for all of it."""
        if timeout is None:
            return await self._rounds(on_progress, headers)
        with self._peer.clock.move_on_after(timeout):
            return await self._rounds(on_progress, headers)
        raise RequestTimedOut(self._method, timeout)

    async def _rounds(self, on_progress: OnProgress | None, headers: Mapping[str, str] | None) -> JsonObject:
        for _ in range(MAX_ROUNDS):
            # Looked at before anything is sent: until then the answers can still go another way.
            if self._peer.is_over:
                raise ConnectionLost(self._peer.lost_reason)
            params = self._params
            if (retry := self._resumption.retry) is not None:
                params = {**{key: value for key, value in params.items() if key not in ROUND_KEYS}, **retry}
            self._resumption.retry = None
            self.request_id = self._peer.new_request_id()
            try:
                with self._inbound.in_flight(self.request_id, self._origin):
                    result = await self._peer.request(
                        self._method,
                        params,
                        request_id=self.request_id,
                        on_progress=on_progress,
                        headers=headers,
                        era=self._era,
                    )
            except PeerError as error:
                if self._passes_urls or not await self._opened(urls_required(error)):
                    raise
                self._resumption.retry = {}
                continue
            if result.get("resultType") != "input_required" or self._passes_questions():
                return result
            self._resumption.retry = await self._answers(result)
        raise PeerError(-32603, f"the server asked for input {MAX_ROUNDS} times and is still not done")

    async def _answers(self, result: Mapping[str, Any]) -> JsonObject:
        """What the retry carries beside the original parameters."""
        requests = result.get("inputRequests") or {}
        if not isinstance(requests, Mapping):
            raise PeerError(-32603, "the server sent inputRequests that are not an object")
        if not requests:
            with self._peer.clock.move_on_after(EMPTY_ROUND_DELAY):
                await anyio.sleep_forever()
        answers: JsonObject = {}
        async with anyio.create_task_group() as tasks:
            for key, request in requests.items():
                tasks.start_soon(self._answer_into, answers, key, request)
        failed = [answer for answer in answers.values() if isinstance(answer, PeerError)]
        if failed:
            raise failed[0]
        retry: JsonObject = {"inputResponses": answers} if answers else {}
        if "requestState" in result:
            retry["requestState"] = result["requestState"]
        return retry

    async def _answer_into(self, answers: JsonObject, key: str, request: Any) -> None:
        try:
            answers[key] = await self._answer(request)
        except PeerError as error:
            answers[key] = error

    async def _answer(self, request: Any) -> JsonObject:
        method = request.get("method") if isinstance(request, Mapping) else None
        params = (request.get("params") or {}) if isinstance(request, Mapping) else {}
        if method == "roots/list":
            return await self._inbound.list_roots()
        kind = KIND_OF_METHOD.get(str(method))
        if kind is None:
            raise PeerError(-32603, f"the server asked for input with {method!r}, which we do not know")
        question = self._inbound.ask(
            kind, params, arrival="input_required", belongs_to=Belonging(self._origin, "exact")
        )
        return await self._inbound.wait_for_answer(question)

    # URLs to be opened first

    async def _opened(self, urls: Mapping[str, JsonObject]) -> bool:
        """Whether there are URLs, and the user has agreed to open all of them."""
        if not urls or not self._inbound.can_be_elicited:
            return False
        if self._agreed >= urls.keys():
            # The user may still be there. The server says when it is done, if it says anything.
            with self._peer.clock.move_on_after(URL_ROUND_DELAY):
                await self._inbound.completed_urls.wait_for(urls)
            return True
        async with anyio.create_task_group() as tasks:
            for elicitation_id in urls.keys() - self._agreed:
                tasks.start_soon(self._open, elicitation_id, urls[elicitation_id])
        return self._agreed >= urls.keys()

    async def _open(self, elicitation_id: str, params: JsonObject) -> None:
        try:
            question = self._inbound.ask(
                "elicitation", params, arrival="input_required", belongs_to=Belonging(self._origin, "exact")
            )
            answer = await self._inbound.wait_for_answer(question)
        except PeerError:
            answer = {}
        if answer.get("action") == "accept" or elicitation_id in self._inbound.completed_urls:
            self._agreed.add(elicitation_id)
