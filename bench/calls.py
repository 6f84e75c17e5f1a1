"""The two ways to one `echo`: straight to the demo server, and through the hub's `execute_tool`."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal

from mcp.client import Client
from mcp.types import CallToolResult, TextContent

__all__ = ["Echo", "Mode", "Way", "echo_through"]

Way = Literal["direct", "hub"]
Mode = Literal["legacy", "auto"]
Echo = Callable[[str], Awaitable[None]]
"""One call, whose answer is checked: a benchmark of errors would be fast and worthless."""


@asynccontextmanager
async def echo_through(way: Way, url: str, mode: Mode) -> AsyncIterator[Echo]:
    """A connected client of the official SDK, as the one call that is measured."""
    async with Client(url, mode=mode) as client:

        async def direct(text: str) -> None:
            _check(await client.call_tool("echo", {"text": text}), text)

        async def through_hub(text: str) -> None:
            arguments = {"server": "demo", "tool": "echo", "args": {"text": text}}
            _check(await client.call_tool("execute_tool", arguments), text)

        yield direct if way == "direct" else through_hub


def _check(result: CallToolResult, text: str) -> None:
    first = result.content[0]
    if result.is_error or not isinstance(first, TextContent) or first.text != text:
        raise RuntimeError(f"a wrong answer: {result}")
