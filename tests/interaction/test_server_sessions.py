"""Servers that show a task only to the MCP session that made it: a hub that comes back goes on in that session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from emceepee.client import ClientOptions, Http, connect
from emceepee.concurrency import task_group
from emceepee.config import HubSettings, ServerConfig
from emceepee.core.backoff import Backoff
from emceepee.errors import ConnectFailed
from emceepee.hub import Hub
from emceepee.hub.link import SESSION_TRIES
from emceepee.store import Key, MemoryStore
from emceepee.testing import HubClient, text_result
from tests.wire.origin import Exchange, Origin

pytestmark = pytest.mark.anyio

LIMIT_S = 60


class ScopedServer(Origin):
    """A 2025-11-25 server over HTTP with one task per session; `forget` is its restart."""

    def __init__(self) -> None:
        super().__init__({"POST": self._post, "initialize": self._initialize, "DELETE": self._delete})
        self.sessions: dict[str, bool] = {}
        """Those that it knows, with whether their task is there."""
        self.finished = anyio.Event()
        self.unknown_status = 404
        self.is_away = False
        self.takes_an_id_once = False

    def methods(self) -> list[str]:
        """What was asked for in the newest session, by JSON-RPC or HTTP method."""
        return [
            exchange.message["method"] if exchange.verb == "POST" else exchange.verb
            for exchange in self.exchanges
            if exchange.headers.get("mcp-session-id") == f"session-{len(self.seen('initialize'))}"
        ]

    def forget(self) -> None:
        self.sessions.clear()

    async def _initialize(self, exchange: Exchange) -> None:
        session_id = f"session-{len(self.seen('initialize'))}"
        self.sessions[session_id] = False
        capabilities: dict[str, Any] = {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}}
        answer = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": {"name": "scoped"}}
        await exchange.result(answer, headers={"mcp-session-id": session_id})

    async def _delete(self, exchange: Exchange) -> None:
        self.sessions.pop(exchange.headers["mcp-session-id"], None)
        await exchange.reply(200)

    async def _post(self, exchange: Exchange) -> None:
        session_id = exchange.headers.get("mcp-session-id", "")
        if self.is_away:
            await exchange.reply(503)
        elif session_id not in self.sessions:
            await exchange.reply(self.unknown_status)
        elif "id" not in exchange.message:
            await exchange.reply(202)
        else:
            await self._answer(exchange, session_id)

    async def _answer(self, exchange: Exchange, session_id: str) -> None:
        task = {"taskId": "t", "status": "completed" if self.finished.is_set() else "working", "pollInterval": 50}
        match exchange.message["method"]:
            case "tools/list":
                tool = {"name": "job", "inputSchema": {}, "execution": {"taskSupport": "required"}}
                await exchange.result({"tools": [tool]})
            case "tools/call":
                self.sessions[session_id] = True
                await exchange.result({"task": task})
            case "tasks/get" if self.sessions[session_id]:
                await exchange.result(task)
            case "tasks/result" if self.takes_an_id_once and self._has_seen_before(exchange):
                error = {"code": -32600, "message": "The id is in use"}
                await exchange.json({"jsonrpc": "2.0", "id": exchange.message["id"], "error": error})
            case "tasks/result" if self.sessions[session_id]:
                await self.finished.wait()
                await exchange.result(text_result("done"))
            case "ping":
                await exchange.result()
            case _:
                error = {"code": -32602, "message": "Task not found"}
                await exchange.json({"jsonrpc": "2.0", "id": exchange.message["id"], "error": error})

    def _has_seen_before(self, exchange: Exchange) -> bool:
        ids = [seen.message["id"] for seen in self.seen("tasks/result")]
        return ids.count(exchange.message["id"]) > 1


class AskingServer(ScopedServer):
    """Its task asks whoever is the first to wait for the result, and ends with the response; `is_deaf` loses that."""

    def __init__(self) -> None:
        super().__init__()
        self.responses: list[dict[str, Any]] = []
        self.is_deaf = False
        self._has_asked = False

    async def _post(self, exchange: Exchange) -> None:
        if "method" not in exchange.message:
            if not self.is_deaf:
                self.responses.append(exchange.message)
                self.finished.set()
            await exchange.reply(202)
        elif exchange.message["method"] == "tasks/result" and not self._has_asked:
            self._has_asked = True
            meta = {"io.modelcontextprotocol/related-task": {"taskId": "t"}}
            params = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}, "_meta": meta}
            async with exchange.events() as events:
                await events.send({"id": "ask-1", "method": "elicitation/create", "params": params})
                await exchange.disconnected()
        else:
            await super()._post(exchange)


@pytest.fixture
async def server() -> AsyncIterator[ScopedServer]:
    with anyio.fail_after(LIMIT_S):
        async with ScopedServer() as found:
            yield found


@asynccontextmanager
async def hub_for(server: ScopedServer, store: MemoryStore) -> AsyncIterator[Hub]:
    """A hub that ends as with SIGTERM."""
    settings = HubSettings(backoff=Backoff(first=0.01))
    hub = Hub([ServerConfig(name="scoped", url=server.url, era="handshake")], settings=settings, store=store)
    async with task_group() as tasks:
        await tasks.start(hub.run)
        try:
            yield hub
        finally:
            hub.close()


def kept(store: MemoryStore) -> list[Key]:
    return [key for key in store._records if key.kind == "server_session"]


async def begun(hub: Hub) -> tuple[HubClient, str]:
    """A client, and its task once that is the server's."""
    client = HubClient(hub, await hub.open_session())
    task_id = (await client.execute("scoped", "job", timeout_ms=0)).task["task_id"]
    while client.session.state.tasks.get(task_id).origin != "native":
        await client.call("await_activity", timeout_ms=20)
    return client, task_id


async def test_a_restarted_hub_goes_on_in_the_session_of_its_task(server: ScopedServer) -> None:
    store = MemoryStore()
    async with hub_for(server, store) as hub:
        client, task_id = await begun(hub)
        assert kept(store) == [Key("server_session", client.session.id, "scoped")]
    before = len(server.exchanges)
    assert server.seen("DELETE") == []
    async with hub_for(server, store) as hub:
        again = HubClient(hub, hub.sessions[client.session.id])
        server.finished.set()
        assert (await again.call("get_task_result", task_id=task_id)).texts[0] == "done"
        assert kept(store) == []
        info = hub.sessions[client.session.id].links["scoped"].server
        assert info is not None
        assert info.server_info == {"name": "scoped"}
    assert server.exchanges[before].message["method"] == "ping"
    assert server.exchanges[before].headers["mcp-session-id"] == "session-1"
    assert server.exchanges[before].headers["mcp-protocol-version"] == "2025-11-25"
    assert len(server.seen("initialize")) == 1
    requests = {
        (exchange.message["id"], exchange.message["method"])
        for exchange in server.exchanges
        if b'"id":' in exchange.body
    }
    assert len({request_id for request_id, _ in requests}) == len(requests) > 4, "an id stands for one request"
    assert len(server.seen("DELETE")) == 1, "when no task needs it, the session ends with the hub"


async def test_what_the_hub_before_left_open_is_sent_once_more_in_the_same_session_only(server: ScopedServer) -> None:
    store = MemoryStore()
    async with hub_for(server, store) as hub:
        client, task_id = await begun(hub)
        await server.asked(lambda: bool(server.seen("tasks/result")))
    async with hub_for(server, store):
        await server.asked(lambda: len(server.seen("tasks/result")) >= 2)
    first, again = (exchange.message for exchange in server.seen("tasks/result"))
    assert first == again
    server.forget()
    async with hub_for(server, store) as hub:
        later = HubClient(hub, hub.sessions[client.session.id])
        assert (await later.call("get_task_result", task_id=task_id)).error_code == "TASK_FAILED"
    for exchange in server.seen("tasks/result")[2:]:
        assert exchange.message["id"] != first["id"], "in a new session the id would be another request's"
    assert server.seen("notifications/cancelled") == []


async def test_what_the_server_does_not_take_twice_is_cancelled_and_asked_anew(server: ScopedServer) -> None:
    store = MemoryStore()
    server.takes_an_id_once = True
    async with hub_for(server, store) as hub:
        client, task_id = await begun(hub)
        await server.asked(lambda: bool(server.seen("tasks/result")))
    async with hub_for(server, store) as hub:
        await server.asked(lambda: len(server.seen("tasks/result")) >= 3)
        await server.asked(lambda: bool(server.seen("notifications/cancelled")))
        server.finished.set()
        again = HubClient(hub, hub.sessions[client.session.id])
        assert (await again.call("get_task_result", task_id=task_id)).texts[0] == "done"
    first, refused, anew = (exchange.message["id"] for exchange in server.seen("tasks/result"))
    assert first == refused != anew
    (cancelled,) = server.seen("notifications/cancelled")
    assert cancelled.message["params"]["requestId"] == first


async def test_what_was_left_open_for_a_task_that_has_ended_is_not_cancelled(server: ScopedServer) -> None:
    store = MemoryStore()
    async with hub_for(server, store) as hub:
        client, task_id = await begun(hub)
        await server.asked(lambda: bool(server.seen("tasks/result")))
    server.finished.set()
    async with hub_for(server, store) as hub:
        again = HubClient(hub, hub.sessions[client.session.id])
        assert (await again.call("get_task_result", task_id=task_id)).texts[0] == "done"
    assert server.seen("notifications/cancelled") == []


@pytest.mark.parametrize("status", [404, 400])
async def test_a_session_that_the_server_has_forgotten_is_begun_anew(server: ScopedServer, status: int) -> None:
    store = MemoryStore()
    server.unknown_status = status
    async with hub_for(server, store) as hub:
        client, task_id = await begun(hub)
    server.forget()
    async with hub_for(server, store) as hub:
        again = HubClient(hub, hub.sessions[client.session.id])
        assert (await again.call("get_task_result", task_id=task_id)).error_code == "TASK_FAILED"
        assert kept(store) == []
    assert len(server.seen("initialize")) == 2
    assert server.methods()[-1] == "DELETE"


@pytest.mark.parametrize("status", [404, 400])
async def test_a_server_that_restarted_unnoticed_serves_the_very_next_call(server: ScopedServer, status: int) -> None:
    server.unknown_status = status
    server.finished.set()
    async with hub_for(server, MemoryStore()) as hub:
        client = HubClient(hub, await hub.open_session())
        assert (await client.execute("scoped", "job")).texts[0] == "done"
        server.forget()
        assert (await client.execute("scoped", "job")).texts[0] == "done"
    assert len(server.seen("initialize")) == 2


async def test_a_server_that_is_away_for_a_while_is_asked_again_in_the_same_session(server: ScopedServer) -> None:
    store = MemoryStore()
    async with hub_for(server, store) as hub:
        client, task_id = await begun(hub)
    server.is_away = True
    before = len(server.exchanges)
    async with hub_for(server, store) as hub:
        await server.asked(lambda: len(server.exchanges) >= before + 2)
        server.is_away = False
        server.finished.set()
        again = HubClient(hub, hub.sessions[client.session.id])
        assert (await again.call("get_task_result", task_id=task_id)).texts[0] == "done"
    assert len(server.seen("initialize")) == 1


async def test_a_hub_that_ends_before_it_is_connected_leaves_the_session_alone(server: ScopedServer) -> None:
    store = MemoryStore()
    async with hub_for(server, store) as hub:
        client, task_id = await begun(hub)
    server.is_away = True
    async with hub_for(server, store):
        pass
    server.is_away = False
    server.finished.set()
    async with hub_for(server, store) as hub:
        again = HubClient(hub, hub.sessions[client.session.id])
        assert (await again.call("get_task_result", task_id=task_id)).texts[0] == "done"


async def test_a_session_that_is_closed_on_purpose_ends_at_the_server_too(server: ScopedServer) -> None:
    store = MemoryStore()
    async with hub_for(server, store) as hub:
        client, _ = await begun(hub)
        client.session.close()
        await client.session.closed.wait()
        assert len(server.seen("DELETE")) == 1
    assert store._records == {}


async def test_a_server_that_is_removed_is_told_and_nothing_is_kept_of_it(server: ScopedServer) -> None:
    store = MemoryStore()
    async with hub_for(server, store) as hub:
        client, _ = await begun(hub)
        await client.call("remove_server", name="scoped")
        assert kept(store) == []
    assert len(server.seen("DELETE")) == 1


async def test_a_link_that_comes_back_goes_on_in_the_session_of_its_task(server: ScopedServer) -> None:
    async with hub_for(server, MemoryStore()) as hub:
        client, task_id = await begun(hub)
        connection = client.session.link("scoped").server
        assert connection is not None
        connection.hang_up("a test")
        server.finished.set()
        assert (await client.call("get_task_result", task_id=task_id)).texts[0] == "done"
    assert len(server.seen("initialize")) == 1


async def asked(hub: Hub) -> tuple[HubClient, str]:
    """A client, and its task once that asks."""
    client, task_id = await begun(hub)
    while not client.session.state.questions.pending(task_id=task_id):
        await client.call("await_activity", timeout_ms=20)
    return client, task_id


async def lose_question(client: HubClient) -> None:
    """Lose the connection, and with it the open question."""
    lose(client)
    while client.session.state.questions.pending():
        await client.call("await_activity", timeout_ms=20)


def is_of_a_lost_question(response: dict[str, Any]) -> bool:
    return response["id"] == "ask-1" and "connection that it came on is gone" in response["error"]["message"]


async def test_a_server_hears_on_the_next_connection_that_its_question_is_lost() -> None:
    with anyio.fail_after(LIMIT_S):
        async with AskingServer() as server, hub_for(server, MemoryStore()) as hub:
            client, task_id = await asked(hub)
            await lose_question(client)
            assert (await client.call("get_task_result", task_id=task_id)).texts[0] == "done"
            (response,) = server.responses
            assert is_of_a_lost_question(response)
            assert len(server.seen("initialize")) == 1
            lose(client)
            await connected(client, 3)
            assert server.responses == [response], "it hears that once"


async def test_a_server_hears_from_the_next_hub_that_its_question_is_lost() -> None:
    with anyio.fail_after(LIMIT_S):
        async with AskingServer() as server:
            store = MemoryStore()
            async with hub_for(server, store) as hub:
                client, task_id = await asked(hub)
                # What this hub says at its end does not get through, as if it were killed.
                server.is_deaf = True
            server.is_deaf = False
            async with hub_for(server, store) as hub:
                again = HubClient(hub, hub.sessions[client.session.id])
                assert (await again.call("get_task_result", task_id=task_id)).texts[0] == "done"
            (response,) = server.responses
            assert is_of_a_lost_question(response)


async def test_a_question_that_is_lost_with_its_session_is_not_answered_in_another_one() -> None:
    with anyio.fail_after(LIMIT_S):
        async with AskingServer() as server, hub_for(server, MemoryStore()) as hub:
            client, task_id = await asked(hub)
            server.forget()
            await lose_question(client)
            assert (await client.call("get_task_result", task_id=task_id)).error_code == "TASK_FAILED"
            assert server.responses == []


async def connected(client: HubClient, times: int) -> None:
    """Wait until the link has been connected so often."""
    link = client.session.link("scoped")
    link.start()
    while link.life.times_connected < times:
        await client.call("await_activity", timeout_ms=20)


def lose(client: HubClient) -> None:
    connection = client.session.link("scoped").server
    assert connection is not None
    connection.hang_up("a test")


def reconnections(client: HubClient) -> list[str]:
    events = client.session.state.events.read_after("").events
    return [event.data["kind"] for event in events if event.type == "server_reconnected"]


async def test_a_link_that_comes_back_goes_on_in_its_session_without_a_task_as_well(server: ScopedServer) -> None:
    async with hub_for(server, MemoryStore()) as hub:
        client = HubClient(hub, await hub.open_session())
        await connected(client, 1)
        lose(client)
        await connected(client, 2)
        server.forget()
        lose(client)
        await connected(client, 3)
        while (kinds := reconnections(client)) != ["network_blip", "restart"]:
            assert kinds in ([], ["network_blip"])
            await client.call("await_activity", timeout_ms=20)
    assert len(server.seen("initialize")) == 2
    assert len(server.seen("DELETE")) == 1


@pytest.mark.parametrize("status", [403, 410, 503])
async def test_a_session_that_is_refused_for_ever_does_not_keep_the_link_from_coming_back(
    server: ScopedServer, status: int
) -> None:
    server.unknown_status = status
    async with hub_for(server, MemoryStore()) as hub:
        client = HubClient(hub, await hub.open_session())
        await connected(client, 1)
        server.forget()
        lose(client)
        await connected(client, 2)
    assert len(server.seen("initialize")) == 2
    assert len(server.seen("ping")) == (1 if status < 500 else SESSION_TRIES + 1)


async def test_a_new_connection_that_somebody_asked_for_has_a_new_session(server: ScopedServer) -> None:
    async with hub_for(server, MemoryStore()) as hub:
        client = HubClient(hub, await hub.open_session())
        await connected(client, 1)
        await client.call("reconnect_server", name="scoped")
        await connected(client, 2)
    assert len(server.seen("initialize")) == 2


async def test_a_new_connection_does_not_cost_the_tasks_that_live_in_the_session(server: ScopedServer) -> None:
    async with hub_for(server, MemoryStore()) as hub:
        client, task_id = await begun(hub)
        await client.call("reconnect_server", name="scoped")
        await connected(client, 2)
        server.finished.set()
        assert (await client.call("get_task_result", task_id=task_id)).texts[0] == "done"
        assert len(server.seen("initialize")) == 1
        await client.call("reconnect_server", name="scoped")
        await connected(client, 3)
    assert len(server.seen("initialize")) == 2


async def test_a_fast_task_writes_nothing(server: ScopedServer) -> None:
    store = MemoryStore()
    server.finished.set()
    async with hub_for(server, store) as hub:
        client = HubClient(hub, await hub.open_session())
        assert (await client.execute("scoped", "job")).texts[0] == "done"
        assert kept(store) == []


async def test_the_library_takes_up_what_it_left(server: ScopedServer) -> None:
    options = ClientOptions(era="handshake", leaves_session=lambda: True)
    async with connect(Http(server.url), options=options) as connection:
        session = connection.session
        assert session is not None
    async with connect(Http(server.url, session=session), options=options) as connection:
        assert connection.protocol_version == "2025-11-25"
        assert [tool["name"] for tool in await connection.list_tools()] == ["job"]
    server.is_away = True
    with pytest.raises(ConnectFailed):
        async with connect(Http(server.url, session=session)):
            pytest.fail("it is connected")
    assert (len(server.seen("initialize")), server.seen("DELETE")) == (1, [])
