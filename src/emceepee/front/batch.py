"""Batches of messages over HTTP, which 2025-03-26 has and no other revision.

Each message is served as if it had come alone; what is answered goes out on one stream, as it comes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

import anyio
from starlette.types import Message as AsgiMessage
from starlette.types import Receive, Send

from emceepee.front.exchange import send_json
from emceepee.front.jsonrpc import BadMessage, Batch, Message, Request, error_message
from emceepee.front.refusals import Refused
from emceepee.front.streams import END_OF_BODY, SSE_HEADERS, encoded, watch_for_disconnect

__all__ = ["serve_batch"]

Serve: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]
"""Serves a message that came with a POST of its own."""


async def serve_batch(batch: Batch, serve: Serve, receive: Receive, send: Send) -> None:
    to_be_answered = []
    for message in batch.messages:
        if isinstance(message, Request | BadMessage):
            to_be_answered.append(message)
        else:
            await serve(message, receive, _nowhere)
    if not to_be_answered:
        await send_json(send, None, 202)
        return
    await send({"type": "http.response.start", "status": 200, "headers": list(SSE_HEADERS)})
    async with anyio.create_task_group() as watching:
        gone = anyio.Event()
        watching.start_soon(_tell_when_gone, receive, gone)
        async with anyio.create_task_group() as parts:
            for message in to_be_answered:
                parts.start_soon(_answer, message, serve, gone, send)
        watching.cancel_scope.cancel()
    await send(END_OF_BODY)


async def _answer(message: Request | BadMessage, serve: Serve, gone: anyio.Event, send: Send) -> None:
    part = _Part(send)
    try:
        if isinstance(message, BadMessage):
            raise Refused(400, message, request_id=message.request_id)
        await serve(message, partial(_disconnected, gone), part.send)
    except Refused as refusal:
        await part.write(encoded(error_message(refusal.request_id, refusal.error)))


class _Part:
    """The response to one message, within that to the batch."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_stream = False

    async def send(self, message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            self._is_stream = SSE_HEADERS[0] in message["headers"]
        elif message["body"] and not self._is_stream:
            await self.write(message["body"])
        else:
            await self._send({**message, "more_body": True})

    async def write(self, body: bytes) -> None:
        frame = b"event: message\r\ndata: " + body + b"\r\n\r\n"
        await self._send({"type": "http.response.body", "body": frame, "more_body": True})


async def _nowhere(message: AsgiMessage) -> None:
    """A notification is not answered."""


async def _disconnected(gone: anyio.Event) -> AsgiMessage:
    await gone.wait()
    return {"type": "http.disconnect"}


async def _tell_when_gone(receive: Receive, gone: anyio.Event) -> None:
    await watch_for_disconnect(receive)
    gone.set()
