"""A client library: one connection to one MCP server, in either era of the protocol.

    async with connect("http://127.0.0.1:3001/mcp") as server:
        result = await server.call_tool("add", {"a": 1, "b": 2})

Results are the server's own JSON, untouched; what can go wrong with a request is a `WireError`. The hub's links stand
on this, and so can you.
"""

from emceepee.client.connect import connect
from emceepee.client.connection import ServerConnection
from emceepee.client.events import (
    ConnectionEvent,
    Error,
    EventFeed,
    Progress,
    QuestionArrivedEvent,
    QuestionSettledEvent,
    Result,
    TaskCancelledEvent,
    TaskCompletedEvent,
    TaskCreated,
    TaskFailedEvent,
    TasksListedEvent,
    TaskStatus,
    Update,
)
from emceepee.client.forwarding import OnBehalfOf
from emceepee.client.options import ClientOptions, ClientSink
from emceepee.client.questions import CallRef, Question
from emceepee.client.resumption import Resumption
from emceepee.client.targets import Http, Sse, Stdio, Target
from emceepee.client.tasks import RemoteTask
from emceepee.errors import (
    ConnectFailed,
    ConnectionLost,
    EmceepeeError,
    PeerError,
    QuestionSettled,
    RequestTimedOut,
    TaskRequired,
    WireError,
)
from emceepee.wire.http_client import NotAuthorized
from emceepee.wire.negotiation import EraChoice, ServerSession
from emceepee.wire.oauth import Consent, OAuthOptions, Redirect, ServerAuth
from emceepee.wire.peer import OnProgress
from emceepee.wire.token_file import TokenFile

__all__ = [
    "CallRef",
    "ClientOptions",
    "ClientSink",
    "ConnectFailed",
    "ConnectionEvent",
    "ConnectionLost",
    "Consent",
    "EmceepeeError",
    "EraChoice",
    "Error",
    "EventFeed",
    "Http",
    "NotAuthorized",
    "OAuthOptions",
    "OnBehalfOf",
    "OnProgress",
    "PeerError",
    "Progress",
    "Question",
    "QuestionArrivedEvent",
    "QuestionSettled",
    "QuestionSettledEvent",
    "Redirect",
    "RemoteTask",
    "RequestTimedOut",
    "Result",
    "Resumption",
    "ServerAuth",
    "ServerConnection",
    "ServerSession",
    "Sse",
    "Stdio",
    "Target",
    "TaskCancelledEvent",
    "TaskCompletedEvent",
    "TaskCreated",
    "TaskFailedEvent",
    "TaskRequired",
    "TaskStatus",
    "TasksListedEvent",
    "TokenFile",
    "Update",
    "WireError",
    "connect",
]
