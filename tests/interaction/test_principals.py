"""Several principals on one hub: each has its own servers, sessions and workspaces, and hears of nobody else's."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from emceepee.config import ServerConfig
from emceepee.hub import LOCAL, Hub, Origin
from emceepee.store import MemoryStore, SqliteStore, Store
from emceepee.testing import FakeClock, HubClient, ScriptedServer, running_hub, settle
from tests.interaction.gates import Gate, echo

pytestmark = pytest.mark.anyio

ALICE, BOB = "user:alice", "user:bob"


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "data")


async def names(client: HubClient) -> list[str]:
    return [server["name"] for server in (await client.call("list_servers")).json["servers"]]


async def url_of(client: HubClient, name: str) -> str:
    (found,) = [server for server in (await client.call("list_servers")).json["servers"] if server["name"] == name]
    return str(found["url"])


async def test_a_server_that_one_principal_added_is_nothing_to_another(clock: FakeClock) -> None:
    servers = {"shared": ScriptedServer({"echo": echo}), "mine": ScriptedServer({"echo": echo})}
    async with running_hub({"shared": servers["shared"]}, servers=servers, clock=clock) as running:
        alice, also_alice, bob = [await running.client(who) for who in (ALICE, ALICE, BOB)]
        await settle()
        for client in (also_alice, bob):
            await client.call("list_servers")
        await alice.call("add_server", name="mine", url="http://mine.invalid/mcp")
        await settle()
        heard = await also_alice.call("list_servers")
        assert heard.event_types == ["server_added", "server_connected"]
        assert [server["name"] for server in heard.json["servers"]] == ["shared", "mine"]
        unheard = await bob.call("list_servers")
        assert unheard.event_types == []
        assert [server["name"] for server in unheard.json["servers"]] == ["shared"]
        refused = await bob.execute("mine", "echo", {"text": "hi"})
        assert refused.error_code == "SERVER_NOT_FOUND"
        assert "Known servers: shared." in refused.texts[0]
        for tool in ("remove_server", "reconnect_server"):
            assert (await bob.call(tool, name="mine")).error_code == "SERVER_NOT_FOUND"
        assert (await alice.execute("mine", "echo", {"text": "hi"})).texts[0] == "hi"
        assert [running.hub.knows_server("mine", who) for who in (ALICE, BOB, LOCAL)] == [True, False, False]


async def test_two_principals_use_one_name_for_servers_of_their_own(clock: FakeClock) -> None:
    async with running_hub({}, servers={"x": ScriptedServer({"echo": echo})}, clock=clock) as running:
        alice, bob = await running.client(ALICE), await running.client(BOB)
        await alice.call("add_server", name="x", url="http://alice.invalid/mcp")
        await bob.call("add_server", name="x", url="http://bob.invalid/mcp")
        assert await url_of(alice, "x") == "http://alice.invalid/mcp"
        assert await url_of(bob, "x") == "http://bob.invalid/mcp"
        await bob.call("remove_server", name="x")
        assert (await names(alice), await names(bob)) == (["x"], [])
        assert "server_removed" not in (await alice.call("list_servers")).event_types


async def test_a_server_of_ones_own_hides_everybodys_of_that_name_until_it_is_removed(clock: FakeClock) -> None:
    gate = Gate()
    async with running_hub({"x": ScriptedServer({"slow": gate})}, clock=clock) as running:
        alice, also_alice, bob = [await running.client(who) for who in (ALICE, ALICE, BOB)]
        task = (await bob.execute("x", "slow", timeout_ms=0)).task
        await also_alice.call("list_tools")
        await alice.call("add_server", name="x", url="http://alice.invalid/mcp")
        assert await url_of(also_alice, "x") == "http://alice.invalid/mcp"
        assert await url_of(bob, "x") == "http://x.invalid/mcp"
        assert (await bob.call("get_task", task_id=task["task_id"])).json["task"]["status"] == "working"
        await running.hub.put_server(ServerConfig(name="x", url="http://everybodys.invalid/mcp"))
        assert await url_of(alice, "x") == "http://alice.invalid/mcp"
        assert await url_of(bob, "x") == "http://everybodys.invalid/mcp"
        removed = await alice.call("remove_server", name="x")
        assert removed.json["success"] is True
        assert await url_of(also_alice, "x") == "http://everybodys.invalid/mcp"


async def test_the_tokens_of_whoever_runs_the_hub_are_not_for_servers_that_others_add(clock: FakeClock) -> None:
    async with running_hub({}, clock=clock) as running:
        for who in (ALICE, LOCAL):
            client = await running.client(who)
            await client.call("add_server", name="x", url="https://server.invalid/mcp", timeout_ms=0)
        assert not running.hub.registry.of(ALICE).get("x").may_use_oauth
        assert running.hub.registry.of(LOCAL).get("x").may_use_oauth


async def test_everybodys_server_is_removed_by_the_local_user_only(clock: FakeClock) -> None:
    async with running_hub({"x": ScriptedServer({"echo": echo})}, clock=clock) as running:
        alice, local = await running.client(ALICE), await running.client()
        assert (await alice.call("remove_server", name="x")).error_code == "NOT_ALLOWED"
        assert await names(alice) == ["x"]
        await local.call("remove_server", name="x")
        assert (await names(alice), await names(local)) == ([], [])
        assert (await alice.call("remove_server", name="x")).error_code == "SERVER_NOT_FOUND"


async def test_what_the_local_user_adds_takes_the_place_of_the_configuration(clock: FakeClock) -> None:
    async with running_hub({"x": ScriptedServer({"echo": echo})}, clock=clock) as running:
        local = await running.client()
        await local.call("add_server", name="x", url="http://other.invalid/mcp")
        assert await url_of(local, "x") == "http://other.invalid/mcp"
        await local.call("remove_server", name="x")
        assert await names(local) == []


async def test_added_servers_come_back_to_those_who_added_them(clock: FakeClock, store: Store) -> None:
    async with running_hub({}, clock=clock, store=store) as running:
        for who in (ALICE, BOB, LOCAL):
            client = await running.client(who)
            url = f"http://{who.removeprefix('user:')}.invalid/mcp"
            await client.call("add_server", name="x", url=url, timeout_ms=0)
        await (await running.client(BOB)).call("remove_server", name="x")
    async with running_hub({}, clock=clock, store=store) as running:
        assert await url_of(await running.client(ALICE), "x") == "http://alice.invalid/mcp"
        assert await names(await running.client(BOB)) == []
        assert await url_of(await running.client(), "x") == "http://local.invalid/mcp"


async def test_without_a_local_user_its_servers_wait_in_the_store(clock: FakeClock) -> None:
    store = MemoryStore()
    async with running_hub({}, clock=clock, store=store) as running:
        await (await running.client()).call("add_server", name="x", url="http://x.invalid/mcp", timeout_ms=0)
    for has_local_user in (False, True):
        hub = Hub(clock=clock, store=store, has_local_user=has_local_user)
        assert await _restored(hub) is has_local_user


async def _restored(hub: Hub) -> bool:
    async with anyio.create_task_group() as tasks:
        await tasks.start(hub.run)
        found = len(hub.registry) == 1
        hub.close()
    return found


async def test_a_workspace_is_one_principals(clock: FakeClock) -> None:
    async with running_hub({}, clock=clock) as running:
        ours = await running.hub.workspace(Origin(ALICE, workspace="default"))
        assert await running.hub.workspace(Origin(ALICE, workspace="default")) is ours
        theirs = await running.hub.workspace(Origin(BOB, workspace="default"))
        assert theirs.id != ours.id
        assert [session.id for session in running.hub.sessions_of(BOB)] == [theirs.id]
