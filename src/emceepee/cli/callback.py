"""Where the user's browser comes back to after the issuer has asked: a page on a loopback port, for a moment."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.to_thread
from anyio.abc import SocketAttribute, SocketStream

from emceepee.client import NotAuthorized, Redirect
from emceepee.concurrency import companions
from emceepee.errors import SettingsError

__all__ = ["BrowserConsent", "browser_consent"]

PATH = "/callback"

LONGEST_REQUEST = 32 * 1024
"""Bytes of a request that are looked at; a redirect is far smaller."""

DONE = "You can close this page and go back to the terminal."


class BrowserConsent:
    """Asks on a page of the issuer's, and waits for what comes back; implements `Consent`."""

    def __init__(self, name: str, port: int, *, opens_browser: bool) -> None:
        self.redirect_uri = f"http://127.0.0.1:{port}{PATH}"
        self._name = name
        self._opens_browser = opens_browser
        self._state: str | None = None
        self._came = anyio.Event()
        self._found: dict[str, str] = {}

    async def ask(self, url: str) -> None:
        self._state = _query(url).get("state")
        print(f"To let emceepee use {self._name}, open this page:\n\n  {url}\n", file=sys.stderr, flush=True)
        if self._opens_browser:
            await anyio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)

    async def answer(self) -> Redirect:
        await self._came.wait()
        if "code" not in self._found:
            reason = self._found.get("error_description") or self._found.get("error", "")
            raise NotAuthorized(f"the issuer did not agree: {reason}")
        return Redirect(self._found["code"], self._found.get("state"), self._found.get("iss"))

    async def serve(self, connection: SocketStream) -> None:
        async with connection:
            with anyio.move_on_after(10):
                try:
                    request = await _head(connection)
                    status, text = self._take(request)
                    body = f"<!doctype html><title>emceepee</title><p>{text}".encode()
                    head = (
                        f"HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\n"
                        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
                    )
                    await connection.send(head.encode() + body)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
                    return

    def _take(self, request: str) -> tuple[str, str]:
        method, _, rest = request.partition(" ")
        target = rest.partition(" ")[0]
        found = _query(target)
        # Any page can send a browser here: only the state shows that it comes from where we sent it.
        if method != "GET" or urlsplit(target).path != PATH or self._state is None:
            return "404 Not Found", "There is nothing here."
        if found.get("state") != self._state or self._came.is_set():
            return "400 Bad Request", "This is not what was waited for."
        self._found = found
        self._came.set()
        return "200 OK", DONE if "code" in found else "It was not agreed. " + DONE


@asynccontextmanager
async def browser_consent(name: str, port: int, *, opens_browser: bool) -> AsyncIterator[BrowserConsent]:
    """
    Raises:
        SettingsError: the port is taken.
    """
    try:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    except OSError as error:
        raise SettingsError("--port", f"cannot listen on 127.0.0.1:{port} ({error.strerror})") from None
    async with listener, companions() as tasks:
        consent = BrowserConsent(name, listener.extra(SocketAttribute.local_port), opens_browser=opens_browser)  # noqa: S610
        tasks.start_soon(listener.serve, consent.serve)
        yield consent


async def _head(connection: SocketStream) -> str:
    received = b""
    while b"\r\n\r\n" not in received and len(received) < LONGEST_REQUEST:
        received += await connection.receive()
    return received.decode("latin-1")


def _query(url: str) -> dict[str, str]:
    return {key: values[-1] for key, values in parse_qs(urlsplit(url).query).items()}
