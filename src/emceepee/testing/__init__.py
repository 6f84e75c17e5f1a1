"""For tests, ours and yours: a clock that moves when you say so, and servers that do what you script.

clock = FakeClock()
async with running_hub(ScriptedServer(tools={"echo": lambda call: call.arguments["text"]}), clock=clock) as hub: ...
"""

from emceepee.testing.clock import FakeClock

__all__ = ["FakeClock"]
