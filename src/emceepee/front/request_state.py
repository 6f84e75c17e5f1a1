"""What an `input_required` response hands to a client, to be brought back with the answers.

The call itself is held here, so the state only says which one it is. It is sealed, bound to the principal and to a
time, and used once: whoever brings it back goes on with the call, and cannot start a second one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp.server.request_state import AESGCMRequestStateCodec, InvalidRequestState

from emceepee.clock import Clock
from emceepee.errors import EmceepeeError

__all__ = ["Continuation", "NotOurState", "Opened", "RequestStates", "digest_of", "is_of_a_hub"]

PREFIX = "emceepee:"
"""What the states of every hub begin with; which hub's it is follows."""


class NotOurState(EmceepeeError):
    """A `requestState` that cannot be taken, because of `reason`."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"This requestState {reason}")


@dataclass(frozen=True, slots=True)
class Continuation:
    session_id: str
    task_id: str
    request: str = ""
    """A digest of the request that asked: no other one is continued with its state."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A state that may be taken, if it has not been taken yet."""

    continuation: Continuation
    nonce: str
    expires_at: float


class RequestStates:
    def __init__(self, key: bytes, clock: Clock, new_id: Callable[[], str], *, lifetime: float) -> None:
        self._codec = AESGCMRequestStateCodec([key])
        # Servers' states pass through us as they are, and a server may be a hub as well.
        self._prefix = f"{PREFIX}{hashlib.sha256(b'tag' + key).hexdigest()[:16]}:"
        self._clock = clock
        self._new_id = new_id
        self._lifetime = lifetime

    def is_ours(self, state: object) -> bool:
        return isinstance(state, str) and state.startswith(self._prefix)

    def issue(self, principal: str, continuation: Continuation) -> str:
        claims = {
            "p": principal,
            "s": continuation.session_id,
            "t": continuation.task_id,
            "r": continuation.request,
            "e": self._clock.now() + self._lifetime,
            "n": self._new_id(),
        }
        return self._prefix + self._codec.seal(json.dumps(claims).encode())

    def open(self, principal: str, state: str) -> Opened:
        """What a state says; whether it was used already, its session knows.

        Raises:
            NotOurState: it was changed, is somebody else's, or too old.
        """
        try:
            claims = json.loads(self._codec.unseal(state.removeprefix(self._prefix)))
        except InvalidRequestState:
            raise NotOurState("is not one that was issued here") from None
        # Whose it is, is nobody's business but theirs.
        if claims["p"] != principal:
            raise NotOurState("is not one that was issued here")
        if claims["e"] < self._clock.now():
            raise NotOurState("has expired")
        return Opened(Continuation(claims["s"], claims["t"], claims.get("r", "")), claims["n"], claims["e"])


def is_of_a_hub(state: object) -> bool:
    """Whether it was issued by a hub, be it this one or another."""
    return isinstance(state, str) and state.startswith(PREFIX)


def digest_of(endpoint: str, method: str, params: Mapping[str, Any]) -> str:
    """What has to stay the same from a request to its retries: all but what a retry adds, and the envelope."""
    kept = {key: value for key, value in params.items() if key not in ("inputResponses", "requestState", "_meta")}
    text = json.dumps([endpoint, method, kept], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
