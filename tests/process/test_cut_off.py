"""Clients that others wrote, cut off from a real hub in the middle of a call: they come back for their response."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import anyio
import anyio.abc
import pytest
from anyio.abc import SocketAttribute

from tests.peers.drive import LineClient
from tests.peers.locate import program
from tests.process.hub_process import json_blocks, serving
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

LIMIT_S = 180
"""Node and a second Python have to start; only a hang meets this."""


class Line:
    """A stretch of network between a client and the hub, which can be cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: set[anyio.CancelScope] = set()
        self.resumed = 0
        """How many requests came with a `Last-Event-ID`."""
        self.primed = anyio.Event()
        """The response to the call is a stream, and has told the client what to come back with."""

    def cut(self) -> None:
        for scope in tuple(self._open):
            scope.cancel()

    async def serve(self, client: anyio.abc.SocketStream) -> None:
        called = anyio.Event()
        with anyio.CancelScope() as scope:
            self._open.add(scope)
            try:
                async with (
                    client,
                    await anyio.connect_tcp("127.0.0.1", self._port) as hub,
                    anyio.create_task_group() as tasks,
                ):
                    tasks.start_soon(self._copy, client, hub, tasks.cancel_scope, called)
                    tasks.start_soon(self._copy, hub, client, tasks.cancel_scope, called)
            finally:
                self._open.discard(scope)

    async def _copy(
        self,
        source: anyio.abc.SocketStream,
        sink: anyio.abc.SocketStream,
        scope: anyio.CancelScope,
        called: anyio.Event,
    ) -> None:
        try:
            async for chunk in source:
                self.resumed += chunk.lower().count(b"\r\nlast-event-id:")
                await sink.send(chunk)
                if b'"execute_tool"' in chunk:
                    called.set()
                if called.is_set() and b"retry:" in chunk:
                    self.primed.set()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        scope.cancel()


@asynccontextmanager
async def line_to(url: str) -> AsyncIterator[tuple[str, Line]]:
    parts = urlsplit(url)
    assert parts.port is not None
    line = Line(parts.port)
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, line.serve)
        port = listener.extra_attributes[SocketAttribute.local_port]()
        yield f"http://127.0.0.1:{port}{parts.path}", line
        tasks.cancel_scope.cancel()


@requirement("P000-manual-claude-code", "P001-int-sse-replay")
@pytest.mark.parametrize("client", ["sdk_client.mjs", "story_client.py"])
async def test_an_sdk_that_is_cut_off_in_a_call_gets_its_response_once(client: str) -> None:
    results = []
    with serving("--demo") as (url, _), anyio.fail_after(LIMIT_S):
        async with line_to(url) as (through, line), LineClient(program(client), through) as peer:
            arguments = {"server": "demo", "tool": "slow", "args": {"seconds": 4}}

            async def call() -> None:
                results.append(await peer.call("execute_tool", arguments))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await line.primed.wait()
                line.cut()
            assert line.resumed >= 1
            (result,) = results
            assert result["content"][0]["text"] == "slept 4 s"
            # It is the call's own response: no task was made of it.
            listed = await peer.call("list_tasks", {"include_completed": True})
            assert json_blocks(listed)[0] == {"tasks": []}
