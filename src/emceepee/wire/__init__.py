"""JSON-RPC peers over HTTP, SSE, stdio and memory, and one adapter per protocol era.

This package, `front` and `demo` are the only ones that import `mcp`. A `Transport` knows how to open a `Channel`; a
`Peer` (`peer.py`) owns one open channel, negotiates the era and carries raw requests and notifications over it.
"""
