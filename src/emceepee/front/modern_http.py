"""Modern clients over HTTP: every request is a POST that says all there is to say."""

from __future__ import annotations

from mcp.shared.inbound import (
    InboundLadderRejection,
    classify_inbound_request,
    decode_header_value,
    find_duplicated_routing_header,
)
from mcp_types import HEADER_MISMATCH
from mcp_types.version import SUPPORTED_PROTOCOL_VERSIONS
from starlette.datastructures import Headers

from emceepee.errors import PeerError
from emceepee.front.client import ClientFacts
from emceepee.front.exchange import Exchange, Patience, send_json
from emceepee.front.handshake_http import Posted
from emceepee.front.jsonrpc import Request
from emceepee.front.modern import ModernRequests
from emceepee.front.refusals import Refused
from emceepee.front.request_state import RequestStates
from emceepee.front.served import ServedRequest
from emceepee.front.visit import Service
from emceepee.hub import Hub
from emceepee.ids import secure_ids

__all__ = ["ModernHttp", "client_of", "request_states"]

NAMED_BY_TASK = ("tasks/get", "tasks/update", "tasks/cancel")
"""Methods whose `Mcp-Name` is the task's id, which the SDK does not look at."""


class ModernHttp:
    def __init__(self, hub: Hub, patience: Patience, *, may_spawn: bool) -> None:
        self._hub = hub
        self._patience = patience
        self._may_spawn = may_spawn
        self._requests: ModernRequests | None = None
        self._served: set[ServedRequest] = set()

    def stop(self) -> None:
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
        )
        self._served.add(exchange.request)
        try:
            await exchange.run(
                lambda served: self._modern().respond(
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

    def _modern(self) -> ModernRequests:
        # Not before the first request: until the store is open, nobody knows the key.
        if self._requests is None:
            self._requests = ModernRequests(self._hub, request_states(self._hub), may_spawn=self._may_spawn)
        return self._requests


def request_states(hub: Hub) -> RequestStates:
    limits = hub.settings.limits
    lifetime = (limits.question_timeout_ms + limits.tasks.retention_ms) / 1000
    return RequestStates(hub.secret("request_state"), hub.clock, secure_ids(hub.clock), lifetime=lifetime)


def client_of(request: Request, headers: Headers | None = None) -> ClientFacts:
    """What a request says of its client.

    Raises:
        PeerError: it does not say all that it has to, or its headers say something else.
    """
    body = {"method": request.method, "params": dict(request.params)}
    # White space around a header's value is none of it (RFC 9110), and not every HTTP parser takes it away.
    stripped = None if headers is None else {name: value.strip() for name, value in headers.items()}
    verdict = classify_inbound_request(body, headers=stripped)
    if isinstance(verdict, InboundLadderRejection):
        data = verdict.data
        if isinstance(data, dict) and "supported" in data:
            data = {**data, "supported": list(SUPPORTED_PROTOCOL_VERSIONS)}
        raise PeerError(verdict.code, verdict.message, data)
    return ClientFacts.of_request(
        verdict.protocol_version, verdict.client_capabilities, verdict.client_info, request.params
    )


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
