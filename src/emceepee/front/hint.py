"""What somebody is told who looks at the hub with a browser."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import Send

from emceepee.front.exchange import send_body

__all__ = ["is_browser", "send_hint"]

HINT = b"""\
This is emceepee, a hub between MCP clients and MCP servers.
There is nothing to see in a browser: give your MCP client one of these, as a Streamable HTTP server.

  /mcp               the hub's own tools
  /mcp/all           all servers in one
  /mcp/server/NAME   the server NAME as it is

/healthz says that the hub is up, and /metrics is for Prometheus.
"""


def is_browser(headers: Headers) -> bool:
    """Whether a person asks, and no client: browsers name HTML and take anything, clients name the type of a stream."""
    accepted = headers.get("accept", "").lower()
    return "text/html" in accepted and "text/event-stream" not in accepted and "mcp-session-id" not in headers


async def send_hint(send: Send, status: int = 200) -> None:
    await send_body(send, HINT, "text/plain; charset=utf-8", status)
