"""Servers come and go: adding, updating, removing, reconnecting, listing."""

from __future__ import annotations

import anyio
import pytest

from emceepee.testing import FakeClock, ScriptedServer, running_hub, settle
from tests.interaction.gates import Gate, ask_name, echo
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


@requirement("T001-add-server", "T001-server-added")
async def test_an_added_server_is_connected_introduced_and_announced_to_the_others(clock: FakeClock) -> None:
    servers = {"demo": ScriptedServer({"echo": echo})}
    async with running_hub({}, servers=servers, clock=clock) as running:
        one, other = await running.client(), await running.client()
        added = await one.call("add_server", name="demo", url="http://demo.invalid/mcp")
        assert added.json["server"]["status"] == "connected"
        assert [tool["name"] for tool in added.json["tools"]] == ["echo"]
        assert added.json["capabilities"] == {"tools": {"listChanged": True}}
        assert "server_added" not in added.event_types
        await settle()
        heard = await other.call("list_servers")
        assert heard.event_types == ["server_added", "server_connected"]
        assert (await other.execute("demo", "echo", {"text": "hi"})).texts[0] == "hi"


async def test_an_added_server_reads_nothing_from_the_environment_of_the_hub(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUB_SECRET", "hunter2")
    async with running_hub({}, servers={"demo": ScriptedServer({"echo": echo})}, clock=clock) as running:
        client = await running.client()
        url, headers = "http://demo.invalid/${HUB_SECRET}", {"X": "${env:HUB_SECRET}"}
        await client.call("add_server", name="demo", url=url, headers=headers)
        (config,) = running.hub.registry.all()
        assert (config.url, config.headers) == (url, headers)


@requirement("T001-add-server-unreachable", "T001-link-status")
async def test_a_server_that_cannot_be_reached_stays_registered_and_says_why(clock: FakeClock) -> None:
    async with running_hub({}, servers={}, clock=clock) as running:
        client = await running.client()
        added = await client.call("add_server", name="dead", url="http://127.0.0.1:1/mcp")
        assert added.error_code == "SERVER_DISCONNECTED"
        listed = (await client.call("list_servers")).json["servers"][0]
        assert (listed["status"], listed["connected"]) == ("error", False)
        assert listed["last_error"]


@requirement("T001-add-server-update")
async def test_the_same_name_again_updates_the_server_and_the_same_entry_changes_nothing(clock: FakeClock) -> None:
    gate = Gate()
    servers = {"demo": ScriptedServer({"slow": gate})}
    async with running_hub({}, servers=servers, clock=clock) as running:
        client = await running.client()
        await client.call("add_server", name="demo", url="http://one.invalid/mcp")
        task = (await client.execute("demo", "slow", timeout_ms=0)).task
        await client.call("add_server", name="demo", url="http://one.invalid/mcp")
        assert (await client.call("get_task", task_id=task["task_id"])).json["task"]["status"] == "working"
        await client.call("add_server", name="demo", url="http://two.invalid/mcp")
        assert (await client.call("get_task", task_id=task["task_id"])).json["task"]["status"] == "failed"
        assert (await client.call("list_servers")).json["servers"][0]["url"] == "http://two.invalid/mcp"


@requirement("T001-remove-server", "T001-server-removed")
async def test_a_removed_server_fails_its_tasks_rejects_its_questions_and_is_told_to_all(clock: FakeClock) -> None:
    async with running_hub({"demo": ScriptedServer({"ask": ask_name, "echo": echo})}, clock=clock) as running:
        one, other = await running.client(), await running.client()
        task = (await one.execute("demo", "ask")).task
        await other.call("list_tools")
        removed = await other.call("remove_server", name="demo")
        assert removed.json["success"] is True
        await settle()
        failed = await one.call("get_task_result", task_id=task["task_id"])
        assert failed.error_code == "TASK_FAILED"
        assert sorted(failed.event_types) == [
            "elicitation_expired",
            "server_disconnected",
            "server_removed",
            "task_failed",
        ]
        assert "server_removed" in [*removed.event_types, *(await other.call("list_servers")).event_types]
        assert (await one.execute("demo", "echo")).error_code == "SERVER_NOT_FOUND"
        assert (await one.call("remove_server", name="demo")).error_code == "SERVER_NOT_FOUND"


@requirement("T001-reconnect-server")
async def test_reconnecting_makes_a_new_connection(clock: FakeClock) -> None:
    server = ScriptedServer({"echo": echo})
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        again = await client.call("reconnect_server", name="demo")
        assert again.json["server"]["status"] == "connected"
        assert server.received_methods().count("initialize") == 2
        assert (await client.call("reconnect_server", name="nope")).error_code == "SERVER_NOT_FOUND"


@requirement("T001-link-shared")
async def test_two_requests_for_a_connecting_server_share_one_attempt(clock: FakeClock) -> None:
    server = ScriptedServer({"echo": echo})
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await running.client()
        async with anyio.create_task_group() as tasks:
            for n in range(5):
                tasks.start_soon(client.execute, "demo", "echo", {"text": str(n)})
        assert server.received_methods().count("initialize") == 1


@requirement("T001-link-isolation")
async def test_one_server_that_hangs_costs_the_others_nothing(clock: FakeClock) -> None:
    async def never(_params: object) -> dict[str, object]:
        await anyio.sleep_forever()
        raise AssertionError

    hanging = ScriptedServer(methods={"initialize": never, "server/discover": never})
    async with running_hub({"good": ScriptedServer({"echo": echo}), "bad": hanging}, clock=clock) as running:
        client = await running.client()
        assert (await client.execute("good", "echo", {"text": "hi"})).texts[0] == "hi"
        slow = await client.execute("bad", "echo", timeout_ms=0)
        assert slow.task["status"] == "working"


@requirement("T001-list-tools")
async def test_tools_are_listed_by_pattern_with_or_without_their_schemas(clock: FakeClock) -> None:
    definition = {"description": "Says it.", "execution": {"taskSupport": "optional"}, "x-vendor": 1}
    one = ScriptedServer({"echo": echo, "slow": Gate()}, definitions={"echo": definition})
    async with running_hub({"one": one, "two": ScriptedServer({"echo": echo})}, clock=clock) as running:
        client = await running.client()
        brief = (await client.call("list_tools", server="o*", tool="/^ec/")).json["servers"]
        tools = [{"name": "echo", "description": "Says it.", "task_support": "optional"}]
        assert brief == [{"server": "one", "status": "connected", "tools": tools}]
        full = (await client.call("list_tools", server="one", tool="echo", include_schemas=True)).json["servers"]
        expected = {"name": "echo", "inputSchema": {"type": "object"}, **definition, "task_support": "optional"}
        assert full[0]["tools"] == [expected]
        assert (await client.call("list_tools", server="nope")).error_code == "SERVER_NOT_FOUND"
        assert (await client.call("list_tools", tool="/(/")).error_code == "INVALID_ARGUMENTS"


async def test_a_tool_that_appeared_without_a_word_is_found(clock: FakeClock) -> None:
    server = ScriptedServer({"echo": echo})
    async with running_hub({"demo": server}, clock=clock) as running:
        client = await running.client()
        await client.call("list_tools")
        server.tools = {"fresh": echo}
        assert (await client.execute("demo", "fresh", {"text": "new"})).texts[0] == "new"
        missing = await client.execute("demo", "echo", {"text": "x"})
        assert missing.error_code == "TOOL_NOT_FOUND"


async def test_programs_may_be_started_only_where_that_is_allowed(clock: FakeClock) -> None:
    async with running_hub({}, clock=clock) as running:
        client = await running.client()
        refused = await client.call("add_server", name="x", command="true")
        assert refused.error_code == "NOT_ALLOWED"
        assert (await client.call("list_servers")).json == {"servers": []}


@requirement("T001-validation")
@pytest.mark.parametrize(
    "arguments",
    [
        {"name": "x"},
        {"name": "x", "url": "ftp://host/"},
        {"name": "x", "url": "http://h/", "command": "y"},
        {"name": "", "url": "http://h/"},
        {"name": "bad name/x", "url": "http://h/"},
        {"name": "x", "url": "http://h/", "transport": "pigeon"},
        {"name": "x", "url": "http://h/", "surprise": 1},
        {"name": 7, "url": "http://h/"},
    ],
)
async def test_wrong_arguments_are_named_and_change_nothing(clock: FakeClock, arguments: dict[str, object]) -> None:
    async with running_hub({}, clock=clock) as running:
        client = await running.client()
        client.may_spawn = True
        assert (await client.call("add_server", **arguments)).error_code == "INVALID_ARGUMENTS"
        assert (await client.call("list_servers")).json == {"servers": []}


@requirement("T000-sec-secrets")
async def test_secrets_are_in_nothing_that_a_client_sees(clock: FakeClock) -> None:
    servers = {"demo": ScriptedServer({"echo": echo})}
    secret = "s3cr3t-value"
    async with running_hub({}, servers=servers, clock=clock) as running:
        client, other = await running.client(), await running.client()
        url = f"http://user:{secret}@demo.invalid/mcp?token={secret}"
        added = await client.call("add_server", name="demo", url=url, headers={"Authorization": secret})
        seen = [added, await client.call("list_servers"), await other.call("await_activity")]
        assert not any(secret in text for answer in seen for text in answer.texts)


@pytest.mark.parametrize(
    ("target", "remedies"),
    [
        ({"command": "no-such-program"}, ["Install the program"]),
        ({"command": "no-such-program -y server"}, ["Install the program", "put the arguments into args"]),
        ({"url": "http://127.0.0.1:1/mcp"}, ["Start the server", "correct its url"]),
    ],
    ids=["program", "arguments", "url"],
)
async def test_a_server_that_never_was_there_has_a_remedy_and_nothing_under_way(
    clock: FakeClock, target: dict[str, str], remedies: list[str]
) -> None:
    async with running_hub({}, clock=clock) as running:
        client = await running.client()
        client.may_spawn = True
        added = await client.call("add_server", name="broken", **target)
        executed = await client.execute("broken", "echo")
        for answer in (added, executed):
            assert answer.error_code == "SERVER_DISCONNECTED"
            hint = answer.json["error"]["hint"]
            assert all(remedy in hint for remedy in remedies)
            assert "under way" not in hint
