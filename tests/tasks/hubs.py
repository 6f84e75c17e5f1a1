"""A hub in this process with real servers behind it, and a client of it that has nothing but tools.

The client keeps everything that it was ever told, so that a test can look for what must not be in there.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from emceepee.concurrency import task_group
from emceepee.config import HubSettings, ServerConfig
from emceepee.core.questions import QuestionKind
from emceepee.hub import Hub, Session
from emceepee.testing import Answer, HubClient
from tests.tasks.cases import answer_to
from tests.tasks.peers import PeerName, Servers, Transport

__all__ = ["GLANCE_MS", "PATIENCE_MS", "HubOfPeers", "ToolsOnlyClient", "hub_of", "hub_of_peers"]

PATIENCE_MS = 600_000
"""A timeout that no test lives to see: what comes back earlier was promoted by its question."""

GLANCE_MS = 50
"""How long to wait for news before looking again at what makes no event."""

JsonObject = dict[str, Any]


class ToolsOnlyClient(HubClient):
    """Knows the hub through its tools alone; `told` is the text of every answer."""

    def __init__(self, hub: Hub, session: Session) -> None:
        super().__init__(hub, session)
        self.told: list[str] = []

    async def call(self, tool: str, /, **arguments: Any) -> Answer:
        answer = await super().call(tool, **arguments)
        self.told.append(json.dumps(answer.raw))
        return answer

    async def task(self, task_id: str) -> JsonObject:
        task: JsonObject = (await self.call("get_task", task_id=task_id)).json["task"]
        return task

    async def task_with_status(self, task_id: str, status: str) -> JsonObject:
        """The task as `get_task` shows it once it has that status."""
        while (task := await self.task(task_id))["status"] != status:
            await self.call("await_activity", timeout_ms=GLANCE_MS)
        return task

    async def open_questions(self, task_id: str | None = None) -> list[JsonObject]:
        elicitations = (await self.call("get_elicitations")).json["elicitations"]
        sampling = (await self.call("get_sampling_requests")).json["sampling_requests"]
        return [found for found in [*elicitations, *sampling] if task_id in (None, found["task_id"])]

    async def next_question(self, task_id: str | None = None) -> JsonObject:
        """The oldest open question, waited for."""
        while not (found := await self.open_questions(task_id)):
            await self.call("await_activity", timeout_ms=GLANCE_MS)
        return found[0]

    async def answer(self, question: JsonObject) -> None:
        """Answer as `answer_to` says."""
        kind: QuestionKind = question["kind"]
        result = answer_to(kind, question["params"])
        if kind == "elicitation":
            answered = await self.call("respond_to_elicitation", request_id=question["request_id"], **result)
        else:
            facts = {"content": result["content"], "model": result["model"], "stop_reason": result["stopReason"]}
            answered = await self.call("respond_to_sampling", request_id=question["request_id"], **facts)
        assert answered.json["success"] is True

    async def result(self, task_id: str) -> Answer:
        """The result, however often it comes back early because a question is open."""
        while True:
            answer = await self.call("get_task_result", task_id=task_id)
            if "waits for an answer" not in answer.texts[0]:
                return answer
            await self.call("await_activity", timeout_ms=GLANCE_MS)

    def servers_own_id(self, task_id: str) -> str:
        """What the server calls a task: nothing that a client could know."""
        found = self.session.state.tasks.get(task_id).server_task_id
        assert found is not None
        return found

    def assert_idle(self) -> None:
        """Nothing is left of calls and questions that have ended."""
        assert len(self.session.calls) == 0
        assert len(self.session.questions) == 0
        assert len(self.session.state.questions) == 0
        assert self.session.state.tasks.live_count == 0


class HubOfPeers:
    """A hub that is told of a peer when it is first asked for; all tests of a module share one session."""

    def __init__(self, hub: Hub, servers: Servers, client: ToolsOnlyClient) -> None:
        self.client = client
        self._hub = hub
        self._servers = servers
        self._known: set[str] = set()

    async def server(self, peer: PeerName, transport: Transport) -> str:
        """The name by which the hub knows a peer."""
        name = f"{peer}-{transport}"
        if name not in self._known:
            self._known.add(name)
            await self._hub.put_server(self._servers.config(peer, transport, name))
        return name


@asynccontextmanager
async def hub_of(configs: Iterable[ServerConfig], settings: HubSettings | None = None) -> AsyncIterator[Hub]:
    hub = Hub(configs, settings=settings)
    async with task_group() as tasks:
        await tasks.start(hub.run)
        try:
            yield hub
        finally:
            hub.close()


@asynccontextmanager
async def hub_of_peers(servers: Servers) -> AsyncIterator[HubOfPeers]:
    async with hub_of([]) as hub:
        yield HubOfPeers(hub, servers, ToolsOnlyClient(hub, await hub.open_session()))
