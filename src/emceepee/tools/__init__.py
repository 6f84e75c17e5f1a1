"""The meta-tools: what a client sees of the hub.

Each module parses its input, asks the session, and shapes the result; `box.py` puts them together. Names, parameters
and keys are wire format.
"""

from emceepee.tools.box import ToolBox
from emceepee.tools.caller import Caller, HangUp

__all__ = ["Caller", "HangUp", "ToolBox"]
