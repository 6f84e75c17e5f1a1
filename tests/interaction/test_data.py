"""Resources, prompts, notifications and logs through the hub."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from emceepee.errors import PeerError
from emceepee.store import MemoryStore
from emceepee.testing import Answer, FakeClock, HubClient, ScriptedServer, running_hub, settle
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

CAPABILITIES = {"tools": {}, "resources": {"subscribe": True}, "prompts": {}, "logging": {}}


class Library(ScriptedServer):
    """A server with something to read; a read waits where `gate` says."""

    def __init__(self, gate: anyio.Event | None = None, *, modern: bool = False) -> None:
        self.gate = gate

        async def resources(_params: Mapping[str, Any]) -> dict[str, Any]:
            return {"resources": [{"uri": "a:1", "name": "one", "x": 1}]}

        async def templates(_params: Mapping[str, Any]) -> dict[str, Any]:
            return {"resourceTemplates": [{"uriTemplate": "a:{n}", "name": "any"}]}

        async def read(params: Mapping[str, Any]) -> dict[str, Any]:
            if self.gate is not None:
                await self.gate.wait()
            return {"contents": [{"uri": params["uri"], "text": "hello", "x": None}]}

        async def prompts(_params: Mapping[str, Any]) -> dict[str, Any]:
            return {"prompts": [{"name": "plan", "arguments": [{"name": "day"}]}]}

        async def prompt(params: Mapping[str, Any]) -> dict[str, Any]:
            if modern and "inputResponses" not in params:
                asked = {"method": "elicitation/create", "params": {"message": "Sure?", "requestedSchema": {}}}
                return {"resultType": "input_required", "inputRequests": {"q": asked}}
            return {"messages": [{"role": "user", "content": {"type": "text", "text": str(params["arguments"])}}]}

        async def nothing(_params: Mapping[str, Any]) -> dict[str, Any]:
            return {}

        super().__init__(
            modern=modern,
            capabilities=CAPABILITIES,
            methods={
                "resources/list": resources,
                "resources/templates/list": templates,
                "resources/read": read,
                "resources/subscribe": nothing,
                "resources/unsubscribe": nothing,
                "prompts/list": prompts,
                "prompts/get": prompt,
            },
        )


@requirement("T001-resources", "T001-prompts", "P001-int-multi-server")
async def test_lists_carry_the_server_of_each_entry(clock: FakeClock) -> None:
    async with running_hub({"lib": Library(), "other": ScriptedServer()}, clock=clock) as running:
        client = await running.client()
        resource = {"server": "lib", "uri": "a:1", "name": "one", "x": 1}
        assert (await client.call("list_resources")).json == {"resources": [resource]}
        template = {"server": "lib", "uriTemplate": "a:{n}", "name": "any"}
        assert (await client.call("list_resource_templates")).json == {"resource_templates": [template]}
        prompt = {"server": "lib", "name": "plan", "arguments": [{"name": "day"}]}
        assert (await client.call("list_prompts", server="lib")).json == {"prompts": [prompt]}
        assert (await client.call("list_prompts", server="other")).json == {"prompts": []}


async def test_a_server_that_fails_is_missing_in_a_list_with_its_reason(clock: FakeClock) -> None:
    async with running_hub({"lib": Library()}, clock=clock) as running:
        client = await running.client()
        await client.call("add_server", name="dead", url="http://127.0.0.1:1/mcp")
        listed = (await client.call("list_resources")).json
        assert [entry["server"] for entry in listed["resources"]] == ["lib"]
        assert [entry["server"] for entry in listed["errors"]] == ["dead"]


@requirement("T001-resources", "T001-prompts")
async def test_a_resource_is_read_and_a_prompt_is_filled_in(clock: FakeClock) -> None:
    async with running_hub({"lib": Library()}, clock=clock) as running:
        client = await running.client()
        read = await client.call("read_resource", server="lib", uri="a:7")
        assert read.json == {"contents": [{"uri": "a:7", "text": "hello", "x": None}]}
        prompt = await client.call("get_prompt", server="lib", name="plan", arguments={"day": "Friday"})
        assert prompt.json["messages"][0]["content"]["text"] == "{'day': 'Friday'}"


@requirement("T001-resources")
async def test_a_slow_read_becomes_a_task_like_a_call(clock: FakeClock) -> None:
    gate = anyio.Event()
    async with running_hub({"lib": Library(gate)}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        answers: list[Answer] = []

        async def read() -> None:
            answers.append(await client.call("read_resource", server="lib", uri="a:1", timeout_ms=1000))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await settle()
            await clock.advance(1)
        task = answers[0].task
        assert (task["tool"], task["status"]) == ("read_resource", "working")
        gate.set()
        result = await client.call("get_task_result", task_id=task["task_id"])
        assert result.json["contents"][0]["text"] == "hello"


@requirement("T001-prompts")
async def test_a_prompt_that_asks_back_becomes_a_task_with_a_question(clock: FakeClock) -> None:
    async with running_hub({"lib": Library(modern=True)}, clock=clock) as running:
        client = await running.client()
        answer = await client.call("get_prompt", server="lib", name="plan", arguments={"day": "x"})
        question = answer.pending["elicitations"][0]
        assert question["task_id"] == answer.task["task_id"]
        await client.call("respond_to_elicitation", request_id=question["request_id"], action="accept", content={})
        result = await client.call("get_task_result", task_id=answer.task["task_id"])
        assert result.json["messages"][0]["role"] == "user"


@requirement("T001-subscriptions", "T001-event-notification")
async def test_a_subscription_brings_events_until_it_is_taken_back_and_outlives_a_reconnect(clock: FakeClock) -> None:
    library = Library()
    async with running_hub({"lib": library}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        await client.call("subscribe_resource", server="lib", uri="a:1")
        await library.notify("notifications/resources/updated", {"uri": "a:1"})
        await settle()
        event = (await client.call("await_activity")).json["events"][0]["events"][0]
        expected = {"method": "notifications/resources/updated", "params": {"uri": "a:1"}}
        assert (event["type"], event["data"]) == ("notification", expected)
        await library.die()
        await settle()
        await client.call("list_tools")
        assert library.received_methods().count("resources/subscribe") == 2
        assert (await client.call("unsubscribe_resource", server="lib", uri="a:1")).json["success"] is True
        assert (await client.call("unsubscribe_resource", server="lib", uri="a:1")).json["success"] is False


@requirement("T001-buffer-notifications", "T001-buffer-read", "T001-buffer-disconnect")
async def test_notifications_are_given_once_unless_one_only_looks(clock: FakeClock) -> None:
    library = Library()
    async with running_hub({"lib": library}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        for n in range(102):
            await library.notify("notifications/custom", {"n": n})
        await settle()
        peeked = (await client.call("get_notifications", peek=True)).json["notifications"]
        assert [entry["params"]["n"] for entry in peeked] == list(range(2, 102))
        await library.die()
        assert (await client.call("get_notifications", server="lib")).json["notifications"] == peeked
        assert (await client.call("get_notifications")).json == {"notifications": []}
        assert (await client.call("get_notifications", server="nope")).error_code == "SERVER_NOT_FOUND"


@requirement("T001-buffer-filters", "T001-event-no-logs")
async def test_logs_are_filtered_by_level_source_and_number_and_make_no_events(clock: FakeClock) -> None:
    library = Library()
    async with running_hub({"lib": library}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        for level in ("debug", "info", "warning", "error"):
            await library.notify("notifications/message", {"level": level, "logger": "x", "data": {"text": level}})
        await settle()
        assert not client.session.state.events.has_news
        loud = (await client.call("get_logs", level="warning", peek=True)).json["logs"]
        assert [entry["level"] for entry in loud] == ["warning", "error"]
        assert loud[0] == {
            "server": "lib",
            "received_at": loud[0]["received_at"],
            "source": "protocol",
            "level": "warning",
            "logger": "x",
            "data": {"text": "warning"},
        }
        newest = (await client.call("get_logs", limit=1)).json["logs"]
        assert [entry["level"] for entry in newest] == ["error"]
        rest = (await client.call("get_logs")).json["logs"]
        assert [entry["level"] for entry in rest] == ["debug", "info", "warning"]
        assert (await client.call("get_logs", source="stderr")).json == {"logs": []}


async def test_a_subscription_outlives_a_restart_of_the_hub_and_is_heard_before_anything_else_is_asked(
    clock: FakeClock,
) -> None:
    library, store = Library(), MemoryStore()
    async with running_hub({"lib": library}, clock=clock, store=store) as running:
        client = await running.client()
        for uri in ("a:1", "a:2"):
            await client.call("subscribe_resource", server="lib", uri=uri)
        await client.call("unsubscribe_resource", server="lib", uri="a:2")
    library.received.clear()
    async with running_hub({"lib": library}, clock=clock, store=store) as running:
        await settle()
        assert [params for method, params in library.received if method == "resources/subscribe"] == [{"uri": "a:1"}]
        again = HubClient(running.hub, running.hub.sessions[client.session.id])
        await library.notify("notifications/resources/updated", {"uri": "a:1"})
        await settle()
        news = (await again.call("list_tasks")).events
        assert [event["data"]["params"] for event in news if event["type"] == "notification"] == [{"uri": "a:1"}]
        await again.call("unsubscribe_resource", server="lib", uri="a:1")
        assert "wishes" not in {key.kind for key in store._records}


async def test_a_list_that_the_client_has_looked_at_and_that_changed_over_a_reconnect_is_told(clock: FakeClock) -> None:
    library = Library()

    async def other_prompts(_params: Mapping[str, Any]) -> dict[str, Any]:
        return {"prompts": [{"name": "new"}, {"name": "newer"}]}

    async with running_hub({"lib": library}, clock=clock) as running:
        client = await running.client()
        for tool in ("list_prompts", "list_resources"):
            await client.call(tool)
        library.methods = {**library.methods, "prompts/list": other_prompts}
        await client.call("reconnect_server", name="lib")
        await settle()
        news = (await client.call("list_tasks")).events
        (back,) = [event["data"] for event in news if event["type"] == "server_reconnected"]
        assert (back["refreshed"], back["changed"]) == ({"tools": 0, "prompts": 2, "resources": 1}, ["prompts"])
        changes = [event["data"]["method"] for event in news if event["type"] == "notification"]
        assert changes == ["notifications/prompts/list_changed"]


async def test_a_wish_that_the_server_does_not_grant_any_more_does_not_keep_it_away(clock: FakeClock) -> None:
    library = Library()

    async def refuse(_params: Mapping[str, Any]) -> dict[str, Any]:
        raise PeerError(-32002, "there is no such resource any more")

    async with running_hub({"lib": library}, clock=clock) as running:
        client = await running.client()
        await client.call("subscribe_resource", server="lib", uri="a:1")
        library.methods = {**library.methods, "resources/subscribe": refuse}
        await client.call("reconnect_server", name="lib")
        assert client.session.link("lib").status == "connected"
