"""What an `input_required` response hands to a client, to be brought back with the answers.

The call itself is held here, so the state only says which one it is. It is sealed, bound to the principal and to a
time, and used once: whoever brings it back goes on with the call, and cannot start a second one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from mcp.server.request_state import AESGCMRequestStateCodec, InvalidRequestState

from emceepee.clock import Clock
from emceepee.errors import EmceepeeError

__all__ = ["Continuation", "NotOurState", "RequestStates"]

PREFIX = "emceepee:"
"""Tells our states from those of servers, which pass through us as they are."""


class NotOurState(EmceepeeError):
    """A `requestState` that cannot be taken, because of `reason`."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"This requestState {reason}")


@dataclass(frozen=True, slots=True)
class Continuation:
    session_id: str
    task_id: str


class RequestStates:
    def __init__(self, key: bytes, clock: Clock, new_id: Callable[[], str], *, lifetime: float) -> None:
        self._codec = AESGCMRequestStateCodec([key])
        self._clock = clock
        self._new_id = new_id
        self._lifetime = lifetime
        self._spent: dict[str, float] = {}

    @staticmethod
    def is_ours(state: object) -> bool:
        return isinstance(state, str) and state.startswith(PREFIX)

    def issue(self, principal: str, continuation: Continuation) -> str:
        claims = {
            "p": principal,
            "s": continuation.session_id,
            "t": continuation.task_id,
            "e": self._clock.now() + self._lifetime,
            "n": self._new_id(),
        }
        return PREFIX + self._codec.seal(json.dumps(claims).encode())

    def redeem(self, principal: str, state: str) -> Continuation:
        """
        Raises:
            NotOurState: it was changed, is somebody else's, too old, or used already.
        """
        try:
            claims = json.loads(self._codec.unseal(state.removeprefix(PREFIX)))
        except InvalidRequestState:
            raise NotOurState("is not one that was issued here") from None
        now = self._clock.now()
        # Whose it is, is nobody's business but theirs.
        if claims["p"] != principal:
            raise NotOurState("is not one that was issued here")
        if claims["e"] < now:
            raise NotOurState("has expired")
        self._spent = {nonce: expiry for nonce, expiry in self._spent.items() if expiry >= now}
        if claims["n"] in self._spent:
            raise NotOurState("was used already")
        self._spent[claims["n"]] = claims["e"]
        return Continuation(claims["s"], claims["t"])
