"""A hub with servers in memory, and a client of it that speaks in tool calls."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from emceepee.client import Target
from emceepee.clock import Clock
from emceepee.concurrency import task_group
from emceepee.config import HubSettings, ServerConfig
from emceepee.hub import LOCAL, Attendant, Hub, Origin, Session, Telemetry
from emceepee.hub.targets import target_of
from emceepee.store import Store
from emceepee.testing.clock import FakeClock
from emceepee.testing.server import ScriptedServer
from emceepee.tools import Caller, HangUp, ToolBox

__all__ = ["Answer", "HubClient", "RunningHub", "running_hub"]

JsonObject: TypeAlias = dict[str, Any]

_TOOLS = ToolBox()


@dataclass(frozen=True, slots=True)
class Answer:
    """A tool's result, taken apart as section by section a client would."""

    raw: JsonObject

    @property
    def is_error(self) -> bool:
        return bool(self.raw.get("isError"))

    @property
    def texts(self) -> list[str]:
        return [block["text"] for block in self.raw["content"] if block["type"] == "text"]

    @property
    def json(self) -> JsonObject:
        """The first block, which most tools write in JSON."""
        value: JsonObject = json.loads(self.texts[0])
        return value

    @property
    def error_code(self) -> str | None:
        return str(self.json["error"]["code"]) if self.is_error else None

    @property
    def task(self) -> JsonObject:
        """The task that a call became."""
        task: JsonObject = self.part("proxy_task")
        return task

    @property
    def events(self) -> list[JsonObject]:
        found: list[JsonObject] = self.part("events_since_last_response", [])
        return found

    @property
    def event_types(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def pending(self) -> JsonObject:
        found: JsonObject = self.part("pending_client_action", {"elicitations": [], "sampling_requests": []})
        return found

    def part(self, key: str, default: Any = None) -> Any:
        """What stands under `key` in any of the blocks of JSON."""
        for text in self.texts:
            if text.startswith("{") and key in (value := json.loads(text)):
                return value[key]
        return default


class _ProgressCollector(Attendant):
    def __init__(self, collected: list[tuple[float, float | None, str | None]]) -> None:
        self._collected = collected

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self._collected.append((progress, total, message))


class HubClient:
    """A client with a session of its own."""

    def __init__(self, hub: Hub, session: Session) -> None:
        self.hub = hub
        self.session = session
        self.progress: list[tuple[float, float | None, str | None]] = []
        self.hang_up: HangUp | None = None
        self.may_spawn = False

    async def call(self, tool: str, /, **arguments: Any) -> Answer:
        caller = Caller(
            self.hub,
            self.session,
            may_spawn=self.may_spawn,
            attendant=_ProgressCollector(self.progress),
            hung_up=lambda: self.hang_up,
        )
        answer = Answer(await _TOOLS.call(caller, tool, arguments))
        caller.sent()
        return answer

    async def execute(self, server: str, tool: str, args: JsonObject | None = None, **options: Any) -> Answer:
        return await self.call("execute_tool", server=server, tool=tool, args=args or {}, **options)


class RunningHub:
    """A hub, the servers behind it, and as many clients as you like."""

    def __init__(self, hub: Hub, clock: Clock) -> None:
        self.hub = hub
        self.clock = clock

    async def client(self, principal: str = LOCAL) -> HubClient:
        return HubClient(self.hub, await self.hub.open_session(Origin(principal)))


@asynccontextmanager
async def running_hub(
    configured: Mapping[str, ScriptedServer],
    *,
    servers: Mapping[str, ScriptedServer] | None = None,
    clock: Clock | None = None,
    settings: HubSettings | None = None,
    telemetry: Telemetry | None = None,
    store: Store | None = None,
) -> AsyncIterator[RunningHub]:
    """A hub for the body, with servers in memory behind it: those `configured`, and others to be added by name."""
    clock = clock or FakeClock()
    reachable = {**(servers or {}), **configured}
    configs = [ServerConfig(name=name, url=f"http://{name}.invalid/mcp") for name in configured]

    def find_target(config: ServerConfig) -> Target:
        server = reachable.get(config.name)
        return target_of(config) if server is None else server.transport()

    hub = Hub(configs, settings=settings, clock=clock, find_target=find_target, telemetry=telemetry, store=store)
    async with task_group() as tasks:
        await tasks.start(hub.run)
        try:
            yield RunningHub(hub, clock)
        finally:
            hub.close()
