"""Whatever happens to a client's connections, and in whatever order: it is told everything, and nothing twice."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from emceepee.testing import FakeClock, ScriptedServer, settle
from tests.front.asgi import HttpExchange
from tests.front.clients import Handshake, front
from tests.interaction.gates import Gate

pytestmark = pytest.mark.anyio

STEPS = 12


class Traveller:
    """A client with a bad network, which comes back for its response for as long as it has not got it."""

    def __init__(self, client: Handshake, random: Random) -> None:
        self.client = client
        self.random = random
        self.call = client.execute("demo", "slow")
        self.current: HttpExchange | None = self.call
        self.seen: list[HttpExchange] = [self.call]
        self.last_event_id: str | None = None

    @property
    def responses(self) -> list[dict[str, Any]]:
        return [message for one in self.seen for message in one.messages if "method" not in message]

    def remember(self) -> None:
        ids = [frame.id for frame in self.seen[-1].frames if frame.id is not None]
        self.last_event_id = ids[-1] if ids else self.last_event_id

    def drop(self) -> None:
        if self.current is not None:
            self.current.drop()
            self.remember()
            self.current = None

    def resume(self) -> None:
        """Come back, whether or not the old connection is known to be gone."""
        self.remember()
        if self.last_event_id is not None and not self.responses:
            self.current = self.client.get(self.last_event_id)
            self.seen.append(self.current)

    def stall(self) -> None:
        if self.current is not None:
            self.current.stop_reading()

    def go_on(self) -> None:
        if self.current is not None:
            self.current.go_on_reading()


@pytest.mark.parametrize("seed", range(60))
async def test_a_response_is_read_once_or_its_call_is_a_task(clock: FakeClock, seed: int) -> None:
    random = Random(seed)  # noqa: S311  # a schedule, not a secret
    gate = Gate()
    demo = ScriptedServer({"slow": gate})
    async with front({"demo": demo}, clock=clock) as world:
        client = await world.handshake()
        await client.call("list_tools")
        await demo.notify("notifications/x")
        await settle()
        traveller = Traveller(client, random)
        await gate.reached.wait()
        answers_at = random.randrange(STEPS)
        for step in range(STEPS):
            if step == answers_at:
                gate.opened.set()
            random.choice([traveller.drop, traveller.resume, traveller.resume, traveller.stall, traveller.go_on])()
            if random.random() < 0.7:
                await clock.advance(random.choice([0.0, 0.5, 1.5, 4.0, 9.0, 11.0]))
        traveller.go_on()
        await settle()
        traveller.drop()
        await clock.advance(30)
        assert traveller.call.done.is_set()
        listed = await client.call("list_tasks", include_completed=True)
        tasks = listed.json["tasks"]
        found = traveller.responses
        assert len(found) <= 1, found
        assert len(tasks) <= 1, tasks
        assert found or tasks
        told = json.dumps(found) + json.dumps(listed.raw)
        if tasks:
            result = await client.call("get_task_result", task_id=tasks[0]["task_id"])
            assert result.texts[0] == "done"
            told += json.dumps(result.raw)
        if found:
            assert found[0]["result"]["content"][0]["text"] == "done"
        assert told.count("notifications/x") == 1
        ids = [frame.id for one in traveller.seen for frame in one.events if frame.message is not None]
        assert len(set(ids)) == len(ids)
