"""The shell around the state of every client: sessions, links to servers, calls, answers.

`Hub` holds the registry of servers and the sessions; a `Session` holds the state of one client, a `Link` per server and
the calls in flight. What a client sees of this is shaped in `emceepee.tools`.
"""

from emceepee.hub.attendant import Attendant
from emceepee.hub.authorizations import Authorizations
from emceepee.hub.call import Call
from emceepee.hub.calls import CancelOutcome
from emceepee.hub.hub import Hub
from emceepee.hub.link import Link
from emceepee.hub.origin import LOCAL, Origin
from emceepee.hub.session import Session
from emceepee.hub.telemetry import CallOutcome, Telemetry
from emceepee.hub.work import Forwarded, PromptGet, ResourceRead, ToolCall, Work

__all__ = [
    "LOCAL",
    "Attendant",
    "Authorizations",
    "Call",
    "CallOutcome",
    "CancelOutcome",
    "Forwarded",
    "Hub",
    "Link",
    "Origin",
    "PromptGet",
    "ResourceRead",
    "Session",
    "Telemetry",
    "ToolCall",
    "Work",
]
