"""The hub's own resources: its diagrams, and its status as the asking session may see it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from mcp_types import INVALID_PARAMS

from emceepee.errors import PeerError
from emceepee.hub import Hub, Session
from emceepee.observe import diagrams, snapshot_of, snapshot_of_session
from emceepee.protocol import RESOURCE_NOT_FOUND

__all__ = ["OwnResources"]

JsonObject: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Resource:
    uri: str
    name: str
    description: str
    read: Callable[[Hub, Session], JsonObject]

    def definition(self) -> JsonObject:
        return {
            "uri": self.uri,
            "name": self.name,
            "description": self.description,
            "mimeType": "application/json",
        }


def _status(hub: Hub, session: Session) -> JsonObject:
    return {"hub": snapshot_of(hub).as_json(), "session": asdict(snapshot_of_session(session))}


_RESOURCES = (
    _Resource(
        "emceepee://diagrams",
        "diagrams",
        "Mermaid diagrams of how calls become tasks, and of the states of tasks and questions.",
        lambda _hub, _session: {"diagrams": diagrams()},
    ),
    _Resource(
        "emceepee://status",
        "status",
        "This session's links, tasks, questions and counters, and the hub's totals.",
        _status,
    ),
)


class OwnResources:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._by_uri = {resource.uri: resource for resource in _RESOURCES}
        self.definitions = [resource.definition() for resource in _RESOURCES]

    def read(self, session: Session, uri: object) -> JsonObject:
        """
        Raises:
            PeerError: there is no such resource.
        """
        if not isinstance(uri, str):
            raise PeerError(INVALID_PARAMS, "resources/read needs a uri")
        resource = self._by_uri.get(uri)
        if resource is None:
            known = ", ".join(self._by_uri)
            text = f"Resource not found: {uri}. Here are {known}; those of servers are read with read_resource"
            raise PeerError(RESOURCE_NOT_FOUND, text, {"uri": uri})
        text = json.dumps(resource.read(self._hub, session), ensure_ascii=False)
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": text}]}
