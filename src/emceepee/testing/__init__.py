"""For tests, ours and yours: a clock that moves when you say so, and servers that do what you script.

async def echo(call: ScriptedCall) -> str:
    return call.arguments["text"]

async with running_hub({"demo": ScriptedServer({"echo": echo})}) as running:
    client = await running.client()
    answer = await client.execute("demo", "echo", {"text": "hi"})
"""

from emceepee.testing.clock import FakeClock, settle
from emceepee.testing.hub import Answer, HubClient, RunningHub, running_hub
from emceepee.testing.server import ScriptedCall, ScriptedServer, form, text_result

__all__ = [
    "Answer",
    "FakeClock",
    "HubClient",
    "RunningHub",
    "ScriptedCall",
    "ScriptedServer",
    "form",
    "running_hub",
    "settle",
    "text_result",
]
