"""The meta-tools: what a client sees of the hub.

Each module parses its input, asks the session, and shapes the result; `box.py` puts them together. Names, parameters
and keys are wire format.
"""

from emceepee.tools.box import ToolBox, replied
from emceepee.tools.caller import Caller, HangUp
from emceepee.tools.calling import turned_call
from emceepee.tools.reply import Reply, complete, for_clients
from emceepee.tools.tasks import result_of_task

__all__ = [
    "Caller",
    "HangUp",
    "Reply",
    "ToolBox",
    "complete",
    "for_clients",
    "replied",
    "result_of_task",
    "turned_call",
]
