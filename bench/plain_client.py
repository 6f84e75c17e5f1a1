"""A handshake client as light as can be: JSON-RPC in HTTP/1.1 by hand, on one connection that is kept open."""

import asyncio
import json
from itertools import count
from typing import Any
from urllib.parse import urlsplit

__all__ = ["PlainClient"]

JsonObject = dict[str, Any]

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "plain", "version": "1"}}


class PlainClient:
    """One TCP connection, on which one session after the other is opened, used and closed."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._host, self._port = parts.hostname, parts.port
        self._ids = count(1)
        self._session_id: str | None = None
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)

    async def again(self) -> "PlainClient":
        """Another connection in the same session."""
        other = PlainClient(f"http://{self._host}:{self._port}")
        await other.connect()
        other._session_id = self._session_id
        return other

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def open_session(self) -> None:
        self._session_id = None
        _, headers, _ = await self._send("POST", self._message("initialize", HELLO))
        self._session_id = headers["mcp-session-id"]
        await self._send("POST", {"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def close_session(self) -> None:
        await self._send("DELETE", None)
        self._session_id = None

    async def call(self, name: str, /, **arguments: Any) -> JsonObject:
        """The result of one of the hub's own tools."""
        message = self._message("tools/call", {"name": name, "arguments": arguments})
        status, _, body = await self._send("POST", message)
        if status != 200:
            raise RuntimeError(f"HTTP {status}: {body!r}")
        result: JsonObject = json.loads(body)["result"]
        return result

    def _message(self, method: str, params: JsonObject) -> JsonObject:
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}

    async def _send(self, verb: str, message: JsonObject | None) -> tuple[int, dict[str, str], bytes]:
        body = b"" if message is None else json.dumps(message).encode()
        lines = [
            f"{verb} /mcp HTTP/1.1",
            f"host: {self._host}:{self._port}",
            "accept: application/json, text/event-stream",
            "content-type: application/json",
            f"content-length: {len(body)}",
        ]
        if self._session_id is not None:
            lines += [f"mcp-session-id: {self._session_id}", "mcp-protocol-version: 2025-11-25"]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        return await self._receive()

    async def _receive(self) -> tuple[int, dict[str, str], bytes]:
        status_line, *header_lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in header_lines)}
        if "content-length" in headers:
            body = await self._reader.readexactly(int(headers["content-length"]))
        else:
            # An answer that took longer than the hub's silence limit comes at the end of a stream.
            events = (await self._chunks()).decode().splitlines()
            body = [line.removeprefix("data:") for line in events if line.startswith("data:")][-1].encode()
        return int(status_line.split()[1]), headers, body

    async def _chunks(self) -> bytes:
        found = b""
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            found += (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readexactly(2)
        return found
