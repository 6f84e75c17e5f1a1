"""Where scripted tools wait, so that a test proves its interleaving."""

from __future__ import annotations

import anyio

from emceepee.testing import ScriptedCall, form

__all__ = ["Gate", "ask_name", "echo"]


class Gate:
    """A tool that waits until the test lets it go on."""

    def __init__(self) -> None:
        self.reached = anyio.Event()
        self.opened = anyio.Event()

    async def __call__(self, call: ScriptedCall) -> str:
        self.reached.set()
        await self.opened.wait()
        return f"done {call.arguments.get('n', '')}".strip()


async def echo(call: ScriptedCall) -> str:
    return str(call.arguments["text"])


async def ask_name(call: ScriptedCall) -> str:
    answer = await call.elicit(form("Name?", name="string"))
    return f"hello {answer.get('content', {}).get('name', answer['action'])}"
