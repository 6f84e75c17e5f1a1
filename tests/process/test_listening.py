"""The sockets that we listen on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import anyio
import pytest

from emceepee.config import HttpSettings
from emceepee.demo.server import _listen
from emceepee.front.serving import bind

pytestmark = pytest.mark.anyio

LIMIT_S = 60


@pytest.mark.parametrize(
    "listen", [lambda: bind(HttpSettings(port=0)), lambda: _listen("127.0.0.1", 0)], ids=["hub", "demo"]
)
async def test_an_accepted_connection_sends_small_messages_at_once_without_uvloop_as_well(
    listen: Callable[[], socket.socket],
) -> None:
    options: list[int] = []
    accepted = anyio.Event()

    async def look(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        options.append(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()
        accepted.set()

    listener = listen()
    async with await asyncio.start_server(look, sock=listener):
        with anyio.fail_after(LIMIT_S):
            async with await anyio.connect_tcp(*listener.getsockname()):
                await accepted.wait()
    assert options[0] != 0
