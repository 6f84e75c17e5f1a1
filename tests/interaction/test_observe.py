"""What can be seen of a running hub, and what must not be seen."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from dataclasses import asdict

import pytest
import structlog

from emceepee.config import HubSettings
from emceepee.core import questions, tasks
from emceepee.core.state import SessionLimits
from emceepee.front.client import ClientFacts
from emceepee.front.handshake import HandshakeClient
from emceepee.front.hub_service import HubService
from emceepee.front.jsonrpc import Request
from emceepee.front.served import ServedRequest
from emceepee.front.visit import Visit
from emceepee.observe import Metrics, configure_logging, diagrams, snapshot_of, snapshot_of_session
from emceepee.testing import FakeClock, HubClient, ScriptedServer, running_hub, settle
from emceepee.tools import ToolBox
from tests.interaction.gates import Gate, ask_name, echo

pytestmark = pytest.mark.anyio

MAX_LIST_BYTES = 14_000
"""What the whole list of tools may cost a model."""


@pytest.fixture
def log_lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Everything that is logged, down to debug, as the JSON that operators see."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    configure_logging("debug", "json")
    # Loggers of modules are cached; this lets them see the new configuration.
    structlog.configure(cache_logger_on_first_use=False)
    yield stream
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


async def ask_endpoint(client: HubClient, method: str, **params: object) -> dict[str, object]:
    request = Request(1, method, params)
    service = HubService(client.hub)
    facts = ClientFacts("handshake", "2025-06-18")
    visitor = HandshakeClient(client.hub, client.session, facts, service, may_spawn=False)
    return await visitor.respond(request, ServedRequest(1, params, lambda _message: None))


def test_every_state_of_the_tables_is_in_its_diagram() -> None:
    drawn = {diagram["name"]: diagram["mermaid"] for diagram in diagrams()}
    assert list(drawn) == [
        "proxy_task_states",
        "pending_elicitation_states",
        "pending_sampling_states",
        "tool_call_lifecycle",
        "entity_relationships",
    ]
    for state, targets in tasks.TRANSITIONS.items():
        for target in targets:
            assert f"    {state} --> {target} : " in drawn["proxy_task_states"]
    for kind, endings in questions.TRANSITIONS.items():
        for ending in endings:
            assert f"    pending --> {ending} : " in drawn[f"pending_{kind}_states"]


async def test_the_hubs_own_resources_are_listed_and_read(clock: FakeClock) -> None:
    async with running_hub({"demo": ScriptedServer({"ask": ask_name})}, clock=clock) as running:
        client = await running.client()
        await client.execute("demo", "ask")
        listed = await ask_endpoint(client, "resources/list")
        assert "emceepee://diagrams" in str(listed)
        answer = await ask_endpoint(client, "resources/read", uri="emceepee://status")
        status = json.loads(answer["result"]["contents"][0]["text"])  # type: ignore[index]
        assert status["hub"]["sessions"] == 1
        assert status["session"]["tasks"] == {"working": 1}
        assert status["session"]["questions"] == {"elicitation": 1}
        assert status["session"]["links"][0]["status"] == "connected"
        missing = await ask_endpoint(client, "resources/read", uri="emceepee://nope")
        assert missing["error"]["code"] == -32002  # type: ignore[index]


async def test_the_status_of_one_session_tells_nothing_of_another(clock: FakeClock) -> None:
    async with running_hub({"demo": ScriptedServer({"slow": Gate()})}, clock=clock) as running:
        one, other = await running.client(), await running.client()
        task = (await one.execute("demo", "slow", timeout_ms=0)).task
        answer = str(await ask_endpoint(other, "resources/read", uri="emceepee://status"))
        assert task["task_id"] not in answer
        assert one.session.id not in answer


async def test_metrics_count_what_happened_and_show_what_is_held(clock: FakeClock) -> None:
    metrics = Metrics()
    gate = Gate()
    server = ScriptedServer({"echo": echo, "slow": gate, "ask": ask_name})
    settings = HubSettings(limits=SessionLimits(max_events=20))
    async with running_hub({"demo": server}, clock=clock, settings=settings, telemetry=metrics) as running:
        metrics.watch(running.hub)
        client = await running.client()
        await client.call("list_tools")
        await client.execute("demo", "echo", {"text": "x"})
        await client.execute("demo", "slow", timeout_ms=0)
        asked = await client.execute("demo", "ask", timeout_ms=0)
        await settle()
        for n in range(40):
            await server.notify("notifications/custom", {"n": n})
        await settle()
        await client.call("cancel_task", task_id=asked.task["task_id"])
        await settle()
        text = metrics.exposition().decode()
    for line in (
        'emceepee_calls_total{outcome="completed",server="demo"} 1.0',
        'emceepee_calls_total{outcome="cancelled",server="demo"} 1.0',
        'emceepee_promotions_total{reason="timeout",server="demo"} 2.0',
        'emceepee_tasks_ended_total{status="cancelled"} 1.0',
        'emceepee_questions_settled_total{kind="elicitation",state="withdrawn"} 1.0',
        'emceepee_link_connects_total{server="demo"} 1.0',
        'emceepee_call_duration_seconds_count{server="demo"} 2.0',
        'emceepee_links{status="connected"} 1.0',
        'emceepee_tasks{status="working"} 1.0',
        "emceepee_sessions 1.0",
        "emceepee_calls_live 1.0",
    ):
        assert line in text
    assert 'emceepee_events_evicted_total{delivered="false"}' in text


async def test_planted_secrets_are_in_no_log_event_snapshot_or_list(clock: FakeClock, log_lines: io.StringIO) -> None:
    secret, answer = "pl4nted-secret", "pl4nted-answer"
    servers = {"demo": ScriptedServer({"ask": ask_name})}
    async with running_hub({}, servers=servers, clock=clock) as running:
        client, other = await running.client(), await running.client()
        url = f"http://user:{secret}@demo.invalid/mcp?key={secret}"
        shown = [
            await client.call("add_server", name="demo", url=url, headers={"Authorization": f"Bearer {secret}"}),
            await client.call("add_server", name="dead", url=f"http://127.0.0.1:1/mcp?key={secret}"),
            await client.call("list_servers"),
        ]
        asked = await client.execute("demo", "ask")
        question = asked.pending["elicitations"][0]
        shown.append(
            await client.call(
                "respond_to_elicitation", request_id=question["request_id"], action="accept", content={"name": answer}
            )
        )
        await client.call("get_task_result", task_id=asked.task["task_id"])
        shown.append(await other.call("await_activity"))
        snapshots = str(asdict(snapshot_of_session(client.session))) + str(snapshot_of(running.hub).as_json())
    logged = log_lines.getvalue()
    assert '"event": "elicitation_responded"' in logged
    assert secret not in logged
    assert answer not in logged
    assert secret not in snapshots
    assert not any(secret in text for result in shown for text in result.texts)


async def test_log_lines_are_json_with_the_names_and_durations_of_the_design(
    clock: FakeClock, log_lines: io.StringIO
) -> None:
    server = ScriptedServer({"echo": echo, "ask": ask_name})
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        await client.execute("demo", "echo", {"text": "x"})
        asked = await client.execute("demo", "ask")
        question = asked.pending["elicitations"][0]
        await clock.advance(2)
        await client.call("respond_to_elicitation", request_id=question["request_id"], action="decline")
        await client.call("get_task_result", task_id=asked.task["task_id"])
    entries = [json.loads(line) for line in log_lines.getvalue().splitlines()]
    by_name = {entry["event"]: entry for entry in entries}
    assert {
        "server_connected",
        "server_disconnected",
        "tool_execution_start",
        "tool_execution_complete",
        "tool_execution_promoted",
        "task_completed",
        "elicitation_received",
        "elicitation_responded",
        "registry_shutdown_start",
        "registry_shutdown_complete",
    } <= set(by_name)
    assert by_name["elicitation_responded"]["duration_ms"] == 2000
    assert by_name["tool_execution_complete"]["duration_ms"] == 2000
    assert by_name["task_completed"]["level"] == "info"
    assert all("timestamp" in entry for entry in entries)


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", "2026-07-28"])
async def test_the_whole_list_of_tools_is_small_for_every_client(version: str) -> None:
    async with running_hub({}) as hub:
        client = await hub.client()
        facts = ClientFacts("modern" if version > "2026" else "handshake", version)
        request = Request(1, "tools/list", {})
        served = ServedRequest(1, {}, lambda _message: None)
        listed = await HubService(client.hub).answer(Visit(client.hub, client.session, facts, request, served))
    assert isinstance(listed, dict)
    assert len(json.dumps(listed, separators=(",", ":")).encode()) <= MAX_LIST_BYTES
    takes_workspace = {"workspace" in tool["inputSchema"].get("properties", {}) for tool in listed["tools"]}
    assert takes_workspace == {facts.is_modern}


def test_every_tool_says_what_it_is_for() -> None:
    definitions = ToolBox().definitions
    for tool in definitions:
        assert len(tool["description"]) > 20
        for name, schema in tool["inputSchema"].get("properties", {}).items():
            assert schema.get("description") or "enum" in schema or name == "name", f"{tool['name']}.{name}"


async def test_log_lines_tell_sessions_apart_but_not_their_ids(clock: FakeClock, log_lines: io.StringIO) -> None:
    async with running_hub({"demo": ScriptedServer({"echo": echo})}, clock=clock) as running:
        one, other = await running.client(), await running.client()
        call = {"server": "demo", "tool": "echo", "args": {"text": "x"}}
        for client in (one, other, one):
            await ask_endpoint(client, "tools/call", name="execute_tool", arguments=call)
        ids = [one.session.id, other.session.id]
    entries = [json.loads(line) for line in log_lines.getvalue().splitlines()]
    called = [entry["session"] for entry in entries if entry["event"] == "tool_execution_complete"]
    assert called == [called[0], called[1], called[0]]
    connected = [entry["session"] for entry in entries if entry["event"] == "server_connected"]
    assert sorted(connected) == sorted(set(called))
    assert not any(session_id in log_lines.getvalue() for session_id in ids)
