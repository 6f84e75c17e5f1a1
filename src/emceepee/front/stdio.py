"""The stdio front: one client of either era, one message a line.

While we serve, file descriptor 1 points at stderr and 0 at nothing, so that neither a stray `print` nor a program that
we start can get between us and the client.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, BinaryIO, TypeAlias, TypeVar

import anyio
import anyio.abc
import anyio.to_thread
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, PROTOCOL_VERSION_META_KEY

from emceepee.config import HttpSettings, Patience
from emceepee.errors import EmceepeeError, PeerError
from emceepee.front.asking import Asking
from emceepee.front.client import ClientFacts
from emceepee.front.handshake import HandshakeClient, open_client
from emceepee.front.jsonrpc import (
    BATCHING,
    BadMessage,
    Batch,
    Message,
    Notification,
    Request,
    as_peer_error,
    error_message,
    no_batch,
    parse,
    result_message,
)
from emceepee.front.modern import ModernRequests, client_of
from emceepee.front.served import ServedRequest, cancelled
from emceepee.front.service import Service
from emceepee.front.services import Services
from emceepee.hub import LOCAL, Hub
from emceepee.jsontext import dumps
from emceepee.protocol import meta_of

__all__ = ["StdioFront", "claimed_stdio"]

JsonObject: TypeAlias = dict[str, Any]
T = TypeVar("T")

_DEFAULTS = HttpSettings()

MAX_UNSENT = 1000
"""Lines that wait for a slow reader; beyond that the tools wait with them."""


@contextmanager
def claimed_stdio() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """The process's stdin and stdout for us alone."""
    stdin, stdout = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield stdin, stdout
    finally:
        # Not closed: a thread may still be blocked in a read that nothing can interrupt.
        os.dup2(stdout.fileno(), 1)


class StdioFront:
    """Serves the client at the other end of two pipes until it closes its end."""

    def __init__(
        self,
        hub: Hub,
        stdin: BinaryIO,
        stdout: BinaryIO,
        *,
        endpoint: str = "",
        workspace: str | None = None,
        max_line_bytes: int = _DEFAULTS.max_body_bytes,
        patience: Patience = _DEFAULTS.patience,
    ) -> None:
        self._max_line_bytes = max_line_bytes
        self._hub = hub
        self._stdin = stdin
        self._stdout = stdout
        self._endpoint = endpoint
        self._workspace = workspace
        self._patience = patience
        self._services = Services(hub)
        self._served: dict[str | int, ServedRequest] = {}
        self._client: HandshakeClient | None = None
        self._modern = ModernRequests(hub, may_spawn=True)
        self._in_use = ExitStack()
        self._outbox, self._outbox_reader = anyio.create_memory_object_stream[JsonObject](MAX_UNSENT)

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._write)
            async with anyio.create_task_group() as requests:
                while line := await self._read_line():
                    await self._take(line, requests)
                for served in tuple(self._served.values()):
                    served.end("gone")
            if self._client is not None:
                self._client.session.leave()
                await self._client.session.closed.wait()
            self._outbox.close()

    async def _take(self, line: bytes, requests: anyio.abc.TaskGroup) -> None:
        if not line.strip():
            return
        try:
            if len(line) > self._max_line_bytes:
                raise BadMessage(INVALID_REQUEST, f"The message is longer than {self._max_line_bytes} bytes")
            parsed = parse(line)
            if isinstance(parsed, Batch) and (self._client is None or self._client.facts.version != BATCHING):
                raise no_batch()
        except BadMessage as error:
            parsed = Batch((error,))
        # Those of a batch are answered one by one: each as soon as it can be.
        for message in parsed.messages if isinstance(parsed, Batch) else (parsed,):
            await self._take_message(message, requests)

    async def _take_message(self, message: Message | BadMessage, requests: anyio.abc.TaskGroup) -> None:
        if isinstance(message, BadMessage):
            await self._send(error_message(message.request_id, message))
        elif isinstance(message, Request):
            await self._take_request(message, requests)
        elif isinstance(message, Notification) and message.method == "notifications/cancelled":
            cancelled(self._served, message.params)
        elif self._client is not None:
            await self._client.take(message)

    async def _take_request(self, request: Request, requests: anyio.abc.TaskGroup) -> None:
        try:
            if request.id in self._served:
                raise PeerError(INVALID_REQUEST, f"Request id {request.id!r} is in use")
            if _is_modern(request):
                self._serve_modern(request, requests)
            elif request.method == "initialize":
                # Not in the background: whatever follows in the pipe needs the session.
                await self._initialize(request)
            elif self._client is not None:
                client = self._client
                served = self._register(request, client.facts, client.asking)
                requests.start_soon(self._serve, served, partial(client.respond, request, served))
            elif request.method == "ping":
                await self._send(result_message(request.id, {}))
            else:
                raise PeerError(INVALID_REQUEST, "initialize comes first")
        except PeerError as error:
            await self._send(error_message(request.id, error))

    async def _initialize(self, request: Request) -> None:
        if self._client is not None:
            raise PeerError(INVALID_REQUEST, "initialize comes once")
        try:
            # Whoever can talk to us started us, and may start programs anyway.
            self._client, result = await open_client(
                self._hub, self._service(), request.params, principal=LOCAL, may_spawn=True
            )
        except EmceepeeError as error:
            raise as_peer_error(error) from None
        self._client.standalone = self._post
        if not self._endpoint:
            self._hub.inherit(self._client.session)
        # A client at the other end of a pipe is there, however long it says nothing.
        self._in_use.enter_context(self._client.session.in_use())
        await self._send(result_message(request.id, result))

    def _serve_modern(self, request: Request, requests: anyio.abc.TaskGroup) -> None:
        facts = client_of(request)
        service = self._service()
        served = self._register(request, facts)
        respond = partial(
            self._modern.respond, service, facts, request, served, principal=LOCAL, workspace=self._workspace
        )
        requests.start_soon(self._serve, served, respond)

    def _service(self) -> Service:
        service = self._services.find(self._endpoint, LOCAL)
        if service is None:
            raise PeerError(INTERNAL_ERROR, f"There is no {self._endpoint} any more")
        return service

    def _register(self, request: Request, client: ClientFacts, asking: Asking | None = None) -> ServedRequest:
        served = ServedRequest(request.id, request.params, self._post, client=client, asking=asking)
        self._served[request.id] = served
        return served

    async def _serve(self, served: ServedRequest, respond: Callable[[], Any]) -> None:
        message: JsonObject | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._fill_silence, served)
            with served.scope:
                message = await respond()
            tasks.cancel_scope.cancel()
        del self._served[served.request_id]
        # A request that its client cancelled is not answered.
        is_out = message is not None and served.hang_up is None and await self._send(message)
        (served.on_sent if is_out else served.on_unsent)()

    async def _fill_silence(self, served: ServedRequest) -> None:
        while served.wants_progress:
            with self._hub.clock.move_on_after(self._patience.keepalive):
                await anyio.sleep_forever()
            served.heartbeat()

    async def _send(self, message: JsonObject) -> bool:
        """Whether there is anybody to read it."""
        try:
            await self._outbox.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return False
        return True

    def _post(self, message: JsonObject) -> None:
        try:
            self._outbox.send_nowait(message)
        except (anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # For a client that does not read.

    async def _read_line(self) -> bytes:
        """The next line; of one that is too long only the beginning, and nothing at the end."""
        limit = self._max_line_bytes + 1
        line = rest = await _in_thread(partial(self._stdin.readline, limit))
        while len(rest) == limit and not rest.endswith(b"\n"):
            rest = await _in_thread(partial(self._stdin.readline, limit))
        return line

    async def _write(self) -> None:
        with self._outbox_reader:
            async for message in self._outbox_reader:
                line = dumps(message).encode() + b"\n"
                try:
                    await _in_thread(partial(self._write_line, line))
                except OSError:
                    return

    def _write_line(self, line: bytes) -> int:
        written = self._stdout.write(line)
        self._stdout.flush()
        return written


def _is_modern(request: Request) -> bool:
    return PROTOCOL_VERSION_META_KEY in meta_of(request.params) or request.method == "server/discover"


async def _in_thread(call: Callable[[], T]) -> T:
    # A read of a pipe cannot be interrupted, and must not keep us from shutting down.
    return await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
