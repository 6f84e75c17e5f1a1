"""`@modelcontextprotocol/server-everything` as a process."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.peers.locate import node_script
from tests.process.hub_process import free_port, started

__all__ = ["everything_over_http"]


@contextmanager
def everything_over_http() -> Iterator[str]:
    """It takes no port 0, so a free one is looked for; it says on stderr when it listens."""
    port = free_port()
    command = [*node_script("mcp-server-everything"), "streamableHttp"]
    with started(command, {"PORT": str(port)}) as server:
        server.wait_for_line("listening on port")
        yield f"http://127.0.0.1:{port}/mcp"
