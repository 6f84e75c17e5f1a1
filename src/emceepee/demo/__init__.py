"""The demo server: a small restaurant whose tools show every way a call can go.

It is an ordinary MCP server written with the official SDK's high-level API. Nothing in it knows the hub; see
`emceepee.demo.server` for the tools.
"""

from emceepee.demo.server import build, run_http, run_stdio

__all__ = ["build", "run_http", "run_stdio"]
