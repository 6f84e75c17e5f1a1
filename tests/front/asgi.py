"""The HTTP front driven as an ASGI application, over connections that a test can cut at any point."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import anyio
import anyio.abc
from starlette.types import ASGIApp, Message

from emceepee.testing import settle

__all__ = ["PATIENCE", "Frame", "HttpExchange", "Web", "frames_in"]

JsonObject: TypeAlias = dict[str, Any]

PATIENCE = 30
"""Seconds of real time after which something hangs, also on a busy machine."""


class Frame:
    """One server-sent event as it was written."""

    def __init__(self, text: str) -> None:
        self.id: str | None = None
        self.event: str | None = None
        self.retry: int | None = None
        self.data: str | None = None
        self.is_comment = text.startswith(":")
        for line in text.splitlines():
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            match field:
                case "id":
                    self.id = value
                case "event":
                    self.event = value
                case "retry":
                    self.retry = int(value)
                case "data":
                    self.data = value

    @property
    def message(self) -> JsonObject | None:
        if not self.data:
            return None
        message: JsonObject = json.loads(self.data)
        return message

    def __repr__(self) -> str:
        return f"Frame(id={self.id}, data={self.data!r})"


def frames_in(body: bytes) -> list[Frame]:
    """The whole frames of a stream; what was cut off in the middle is none."""
    *whole, _rest = body.decode().split("\r\n\r\n")
    return [Frame(text) for text in whole]


class HttpExchange:
    """One request and what came of it; `drop` is the client's end of the connection being cut."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body = b""
        self.is_complete = False
        """The server has said that there is no more."""
        self.done = anyio.Event()
        """The application has returned."""
        self.error: BaseException | None = None
        self._news = anyio.Event()
        self._dropped = anyio.Event()
        self._reading = anyio.Event()
        self._reading.set()
        self._last_words: bytes | None = None

    # The client's side

    def drop(self) -> None:
        self._dropped.set()
        self._reading.set()

    def stop_reading(self) -> None:
        """From now on the client's buffers are full, and whoever writes to it waits."""
        self._reading = anyio.Event()

    def stop_reading_at(self, words: bytes) -> None:
        """As `stop_reading`, once the client has read these."""
        self._last_words = words

    def go_on_reading(self) -> None:
        self._last_words = None
        self._reading.set()

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type") == "text/event-stream"

    @property
    def frames(self) -> list[Frame]:
        return frames_in(self.body) if self.is_stream else []

    @property
    def events(self) -> list[Frame]:
        """The frames that are events, and not comments."""
        return [frame for frame in self.frames if not frame.is_comment]

    @property
    def last_event_id(self) -> str:
        """What a client that lost this connection would come back with."""
        found = [frame.id for frame in self.frames if frame.id is not None]
        return found[-1]

    @property
    def messages(self) -> list[JsonObject]:
        """All JSON-RPC messages that came so far."""
        if not self.is_stream:
            return [json.loads(self.body)] if self.is_complete and self.body else []
        return [message for frame in self.frames if (message := frame.message) is not None]

    async def message(self, index: int = -1) -> JsonObject:
        """The message at `index`, once everything has settled."""
        await settle()
        return self.messages[index]

    async def response(self) -> JsonObject:
        """The response message, when the connection has ended with it."""
        with anyio.fail_after(PATIENCE):
            await self.done.wait()
        if self.error is not None:
            raise self.error
        found = [message for message in self.messages if "method" not in message]
        assert len(found) == 1, f"{self.status} {self.messages}"
        return found[0]

    async def result(self) -> JsonObject:
        response = await self.response()
        assert "result" in response, response
        result: JsonObject = response["result"]
        return result

    async def failure(self) -> tuple[int | None, int]:
        """The HTTP status and the code of the JSON-RPC error."""
        response = await self.response()
        assert "error" in response, response
        return self.status, response["error"]["code"]

    async def started(self) -> None:
        with anyio.fail_after(PATIENCE):
            while self.status is None:
                await self._changed()

    async def _changed(self) -> None:
        self._news = anyio.Event()
        await self._news.wait()

    # The application's side

    async def serve(self, app: ASGIApp, scope: JsonObject, body: bytes) -> None:
        pending = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if pending:
                return pending.pop()
            await self._dropped.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            await self._reading.wait()
            if self._dropped.is_set():
                return
            assert not self.is_complete, f"after the end: {message}"
            if message["type"] == "http.response.start":
                assert self.status is None, "a second response"
                self.status = message["status"]
                self.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
            else:
                self.body += message.get("body", b"")
                self.is_complete = not message.get("more_body", False)
                if self._last_words is not None and self._last_words in self.body:
                    self.stop_reading()
            self._news.set()

        try:
            await app(scope, receive, send)
        except Exception as error:
            self.error = error
        finally:
            self.done.set()
            self._news.set()


class Web:
    """Opens connections to an application, in a task group of the test's."""

    def __init__(self, app: ASGIApp, tasks: anyio.abc.TaskGroup) -> None:
        self._app = app
        self._tasks = tasks
        self.exchanges: list[HttpExchange] = []

    def open(
        self, method: str, url: str, headers: Mapping[str, str] | list[tuple[str, str]], body: bytes = b""
    ) -> HttpExchange:
        path, _, query = url.partition("?")
        lines = headers.items() if isinstance(headers, Mapping) else headers
        scope: JsonObject = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in lines],
        }
        exchange = HttpExchange()
        self.exchanges.append(exchange)
        self._tasks.start_soon(exchange.serve, self._app, scope, body)
        return exchange

    def hang_up(self) -> None:
        for exchange in self.exchanges:
            exchange.drop()

    @property
    def unfinished(self) -> list[HttpExchange]:
        return [exchange for exchange in self.exchanges if not exchange.done.is_set()]

    async def finished(self) -> None:
        with suppress(TimeoutError), anyio.fail_after(PATIENCE):
            for exchange in self.exchanges:
                await exchange.done.wait()
