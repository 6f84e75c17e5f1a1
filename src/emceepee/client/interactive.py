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
from emceepee.client.inputs import answer_to
from emceepee.client.resumption import InputRound, OpenInput, Resumption
from emceepee.client.urls import urls_required
from emceepee.clock import sleep
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
            params = await self._params_to_send()
            self.request_id = self._peer.new_request_id()
            try:
                with self._inbound.origins.in_flight(self.request_id, self._origin):
                    result = await self._peer.request(
                        self._method,
                        params,
                        request_id=self.request_id,
                        on_progress=on_progress,
                        headers=headers,
                        era=self._era,
                    )
            except PeerError as error:
                if self._passes_urls or not (urls := urls_required(error)) or not self._inbound.can_be_elicited:
                    raise
                unasked = {key: params for key, params in urls.items() if key not in self._agreed}
                if not unasked:
                    await self._wait_at(urls)
                self._resumption.round = InputRound.of_urls(error, unasked)
                continue
            if result.get("resultType") != "input_required" or self._passes_questions():
                return result
            self._resumption.round = InputRound.of(result)
        raise PeerError(-32603, f"the server asked for input {MAX_ROUNDS} times and is still not done")

    async def _params_to_send(self) -> Mapping[str, Any]:
        """The original parameters, and the answers to what the server asked last, if it asked.

        Raises:
            ConnectionLost: nothing can be sent any more; the answers are still there, and can go another way.
        """
        if (asked := self._resumption.round) is None:
            self._require_open()
            return self._params
        answers = await self._answers(asked)
        if asked.refusal is not None:
            self._agree_to(asked.refusal, answers)
            answers = {}
        self._require_open()
        await self._resumption.before_retry()
        try:
            self._require_open()
        except ConnectionLost:
            self._resumption.changed()
            raise
        self._resumption.round = None
        first = {key: value for key, value in self._params.items() if key not in ROUND_KEYS}
        return {**first, **({"inputResponses": answers} if answers else {}), **asked.state}

    def _require_open(self) -> None:
        if self._peer.is_over:
            raise ConnectionLost(self._peer.lost_reason)

    async def _answers(self, asked: InputRound) -> JsonObject:
        if not asked.inputs and asked.refusal is None:
            await sleep(self._peer.clock, EMPTY_ROUND_DELAY)
        answers: JsonObject = {}
        async with anyio.create_task_group() as tasks:
            for key, entry in asked.inputs.items():
                tasks.start_soon(self._answer_into, answers, key, entry)
        failed = [answer for answer in answers.values() if isinstance(answer, PeerError)]
        if failed and asked.refusal is None:
            raise failed[0]
        return answers

    async def _answer_into(self, answers: JsonObject, key: str, entry: OpenInput) -> None:
        inbound = self._inbound
        try:
            answers[key] = await answer_to(
                entry, key, inbound, arrival="input_required", origin=self._origin, wait=inbound.wait_for_answer
            )
        except PeerError as error:
            answers[key] = error

    # URLs to be opened first

    def _agree_to(self, refusal: JsonObject, answers: Mapping[str, Any]) -> None:
        """
        Raises:
            PeerError: the server's own, if the user does not want to open all of them.
        """
        for key, answer in answers.items():
            is_agreed = isinstance(answer, Mapping) and answer.get("action") == "accept"
            if not is_agreed and key not in self._inbound.completed_urls:
                raise PeerError(**refusal)
            self._agreed.add(key)

    async def _wait_at(self, urls: Mapping[str, JsonObject]) -> None:
        """The user may still be there. The server says when it is done, if it says anything."""
        with self._peer.clock.move_on_after(URL_ROUND_DELAY):
            await self._inbound.completed_urls.wait_for(urls)
