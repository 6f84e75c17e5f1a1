"""Modern clients over HTTP: every request is a POST that says all there is to say."""

from __future__ import annotations

import anyio
from mcp.shared.inbound import (
    decode_header_value,
    find_duplicated_routing_header,
)
from mcp_types import HEADER_MISMATCH
from starlette.datastructures import Headers

from emceepee.config import Patience
from emceepee.errors import PeerError
from emceepee.front.client import ClientFacts
from emceepee.front.exchange import Exchange, Posted, send_json
from emceepee.front.jsonrpc import Request
from emceepee.front.modern import ModernRequests, client_of
from emceepee.front.refusals import Refused
from emceepee.front.served import ServedRequest
from emceepee.front.service import Service
from emceepee.hub import Hub

__all__ = ["ModernHttp"]

NAMED_BY_TASK = ("tasks/get", "tasks/update", "tasks/cancel")
"""Methods whose `Mcp-Name` is the task's id, which the SDK does not look at."""


class ModernHttp:
    def __init__(self, hub: Hub, patience: Patience, *, may_spawn: bool) -> None:
        self._hub = hub
        self._patience = patience
        self._requests = ModernRequests(hub, may_spawn=may_spawn)
        self._served: set[ServedRequest] = set()
        self._stopping = anyio.Event()

    def stop(self) -> None:
        self._stopping.set()
        for served in tuple(self._served):
            served.on_stop()

    async def post(self, service: Service, posted: Posted, *, principal: str, workspace: str | None) -> None:
        message = posted.message
        if not isinstance(message, Request):
            # There is nothing in this era that a client could notify us of: it cancels by closing the stream.
            await send_json(posted.send, None, 202)
            return
        client = _check(message, posted.headers)
        exchange = Exchange(
            message.id,
            message.params,
            client=client,
            receive=posted.receive,
            send=posted.send,
            clock=self._hub.clock,
            patience=self._patience,
            stopping=self._stopping,
        )
        self._served.add(exchange.request)
        try:
            await exchange.run(
                lambda served: self._requests.respond(
                    service,
                    client,
                    message,
                    served,
                    principal=principal,
                    workspace=workspace,
                    headers=posted.headers,
                )
            )
        finally:
            self._served.discard(exchange.request)


def _check(request: Request, headers: Headers) -> ClientFacts:
    if (twice := find_duplicated_routing_header(headers.items())) is not None:
        error = PeerError(HEADER_MISMATCH, f"{twice} header appears more than once")
        raise Refused(400, error, request_id=request.id)
    try:
        client = client_of(request, headers)
    except PeerError as error:
        raise Refused(400, error, request_id=request.id) from None
    name = headers.get("mcp-name")
    if (
        request.method in NAMED_BY_TASK
        and name is not None
        and decode_header_value(name) != request.params.get("taskId")
    ):
        mismatch = PeerError(HEADER_MISMATCH, "mcp-name header does not match the request body's 'taskId' parameter")
        raise Refused(400, mismatch, request_id=request.id)
    return client
