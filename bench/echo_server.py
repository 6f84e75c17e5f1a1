"""A server that costs as little as a server can: JSON-RPC over Streamable HTTP by hand, with `echo` and `later`.

`python -m bench.echo_server` prints its URL on stderr. Sessions, a GET stream that stays open and DELETE are all there,
so that a hub has to do everything that it does with a real server; only the server's own share of the time is small.
`later` answers after its `ms`, which is how a call outlives its client's patience.
"""

import asyncio
import json
import sys
from itertools import count
from typing import Any

__all__ = ["main"]

JsonObject = dict[str, Any]

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "later")]
INITIALIZED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "echo", "version": "1"},
}

_sessions = count(1)


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            method, length = head.split(b" ", 1)[0], _content_length(head)
            body = await reader.readexactly(length) if length else b""
            if method == b"GET":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
                await reader.read()
                return
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n" if method == b"DELETE" else await posted(body))
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # the client is gone
    finally:
        writer.close()


async def posted(body: bytes) -> bytes:
    message: JsonObject = json.loads(body)
    if "id" not in message or "method" not in message:
        return b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
    answer, extra = await _answered(message["method"], message.get("params") or {}), b""
    if message["method"] == "initialize":
        extra = b"mcp-session-id: %d\r\n" % next(_sessions)
    data = json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n%scontent-length: %d\r\n\r\n%s" % (
        extra,
        len(data),
        data,
    )


async def _answered(method: str, params: JsonObject) -> JsonObject:
    match method:
        case "initialize":
            return {"result": INITIALIZED}
        case "tools/list":
            return {"result": {"tools": TOOLS}}
        case "tools/call":
            arguments = params.get("arguments") or {}
            if params["name"] == "later":
                await asyncio.sleep(arguments["ms"] / 1000)
            return {"result": {"content": [{"type": "text", "text": arguments["text"]}]}}
        case "ping":
            return {"result": {}}
        case _:
            return {"error": {"code": -32601, "message": f"Method not found: {method}"}}


def _content_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    print(f"echo server at http://127.0.0.1:{port}/mcp", file=sys.stderr, flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
