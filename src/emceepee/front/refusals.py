"""Saying no to an HTTP request before it reaches anybody."""

from __future__ import annotations

from emceepee.errors import EmceepeeError, PeerError
from emceepee.front.jsonrpc import RequestId

__all__ = ["Refused"]


class Refused(EmceepeeError):
    """An HTTP status, and the JSON-RPC error that says why."""

    def __init__(
        self,
        status: int,
        error: PeerError,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        *,
        request_id: RequestId | None = None,
    ) -> None:
        self.status = status
        self.error = error
        self.headers = headers
        self.request_id = request_id
        super().__init__(str(error))
