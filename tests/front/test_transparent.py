"""One server as it is, and all of them as one, for clients of either era."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from emceepee.config import HubSettings, ServerConfig
from emceepee.errors import PeerError
from emceepee.front.templates import fits
from emceepee.testing import FakeClock, ScriptedCall, ScriptedServer, form, settle, text_result
from tests.front.clients import TASKS, Handshake, Modern, World, front
from tests.interaction.gates import Gate, ask_name, echo

pytestmark = pytest.mark.anyio

FULL: dict[str, Any] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "completions": {},
    "logging": {},
}
ONE = "/mcp/server/demo"
ALL = "/mcp/all"
ADA = {"action": "accept", "content": {"name": "Ada"}}


def full(name: str = "demo", *, modern: bool = False, **more: Any) -> ScriptedServer:
    """A server with everything, all of it under its own name."""

    async def prompts(_params: Mapping[str, Any]) -> dict[str, Any]:
        return {"prompts": [{"name": "greet", "x-unknown": 1}]}

    async def prompt(params: Mapping[str, Any]) -> dict[str, Any]:
        text = {"type": "text", "text": f"{name} {params['name']}"}
        return {"messages": [{"role": "user", "content": text}]}

    async def resources(_params: Mapping[str, Any]) -> dict[str, Any]:
        return {"resources": [{"uri": f"{name}://a", "name": "a"}]}

    async def templates(_params: Mapping[str, Any]) -> dict[str, Any]:
        return {"resourceTemplates": [{"uriTemplate": f"{name}://by-id/{{id}}", "name": "t"}]}

    async def read(params: Mapping[str, Any]) -> dict[str, Any]:
        if params["uri"].endswith("missing"):
            raise PeerError(-32002, "Resource not found", {"uri": params["uri"]})
        return {"contents": [{"uri": params["uri"], "text": name}]}

    async def complete(params: Mapping[str, Any]) -> dict[str, Any]:
        ref = params["ref"]
        return {"completion": {"values": [name, ref.get("name") or ref.get("uri")]}}

    async def nothing(_params: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    async def vendor(params: Mapping[str, Any]) -> dict[str, Any]:
        return {"echo": params.get("x"), "server": name}

    methods = {
        "prompts/list": prompts,
        "prompts/get": prompt,
        "resources/list": resources,
        "resources/templates/list": templates,
        "resources/read": read,
        "completion/complete": complete,
        "logging/setLevel": nothing,
        "resources/subscribe": nothing,
        "resources/unsubscribe": nothing,
        "vendor/x": vendor,
        **more.pop("methods", {}),
    }
    tools = {"echo": echo, "ask": ask_name, **more.pop("tools", {})}
    return ScriptedServer(tools, modern=modern, capabilities=FULL, methods=methods, **more)


async def client_of(world: World, era: str, url: str, capabilities: dict[str, Any] | None = None) -> Handshake | Modern:
    if era == "handshake":
        return await world.handshake(capabilities, url=url)
    return world.modern(capabilities, url=url)


def plain(result: dict[str, Any]) -> dict[str, Any]:
    """A result without what the modern era puts on every one."""
    return {key: value for key, value in result.items() if key not in ("resultType", "ttlMs", "cacheScope")}


PAIRS = pytest.mark.parametrize(
    ("era", "modern"), [(era, modern) for era in ("handshake", "modern") for modern in (False, True)]
)


# One server


@PAIRS
async def test_a_server_is_seen_as_it_is(clock: FakeClock, era: str, modern: bool) -> None:
    async with front({"demo": full(modern=modern)}, clock=clock) as world:
        client = await client_of(world, era, ONE)
        if isinstance(client, Handshake):
            introduction = client.introduction
            assert introduction["serverInfo"] == {"name": "scripted", "version": "1"}
            assert introduction["capabilities"]["tasks"]["requests"] == {"tools": {"call": {}}}
        else:
            introduction = await client.request("server/discover").result()
            assert introduction["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "scripted"
            assert "io.modelcontextprotocol/tasks" in introduction["capabilities"]["extensions"]
        assert set(FULL) <= set(introduction["capabilities"])
        tools = plain(await client.request("tools/list").result())["tools"]
        assert [tool["name"] for tool in tools] == ["echo", "ask"]
        result = await client.request("tools/call", {"name": "echo", "arguments": {"text": "hi"}}).result()
        assert plain(result) == text_result("hi")
        prompts = await client.request("prompts/list").result()
        assert plain(prompts) == {"prompts": [{"name": "greet", "x-unknown": 1}]}
        prompt = await client.request("prompts/get", {"name": "greet"}).result()
        assert prompt["messages"][0]["content"]["text"] == "demo greet"
        resources = plain(await client.request("resources/list").result())
        assert resources == {"resources": [{"uri": "demo://a", "name": "a"}]}
        templates = plain(await client.request("resources/templates/list").result())
        assert templates["resourceTemplates"][0]["uriTemplate"] == "demo://by-id/{id}"
        read = plain(await client.request("resources/read", {"uri": "demo://a"}).result())
        assert read == {"contents": [{"uri": "demo://a", "text": "demo"}]}
        ref = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "a", "value": ""}}
        completion = await client.request("completion/complete", ref).result()
        assert completion["completion"]["values"] == ["demo", "greet"]
        assert plain(await client.request("vendor/x", {"x": 7}).result()) == {"echo": 7, "server": "demo"}


@PAIRS
async def test_a_servers_errors_are_its_own_in_the_clients_era(clock: FakeClock, era: str, modern: bool) -> None:
    async def broken(_call: ScriptedCall) -> str:
        raise PeerError(-32050, "broken", {"part": 7})

    async with front({"demo": full(modern=modern, tools={"broken": broken})}, clock=clock) as world:
        client = await client_of(world, era, ONE)
        response = await client.request("tools/call", {"name": "broken", "arguments": {}}).response()
        assert response["error"] == {"code": -32050, "message": "broken", "data": {"part": 7}}
        _, code = await client.request("no/such/method").failure()
        assert code == -32601
        status, code = await client.request("resources/read", {"uri": "demo://missing"}).failure()
        assert (status, code) == ((200, -32002) if era == "handshake" else (400, -32602))


@PAIRS
async def test_a_question_comes_the_clients_own_way(clock: FakeClock, era: str, modern: bool) -> None:
    async with front({"demo": full(modern=modern)}, clock=clock) as world:
        client = await client_of(world, era, ONE, {"elicitation": {"form": {}}})
        params = {"name": "ask", "arguments": {}}
        exchange = client.request("tools/call", params)
        if isinstance(client, Handshake):
            await settle()
            (question,) = [message for message in exchange.messages if "id" in message]
            await client.answer(question, ADA)
            result = await exchange.result()
        else:
            first = await exchange.result()
            assert first["resultType"] == "input_required"
            answers = dict.fromkeys(first["inputRequests"], ADA)
            retry = {**params, "inputResponses": answers, "requestState": first["requestState"]}
            result = await client.request("tools/call", retry).result()
        assert result["content"][0]["text"] == "hello Ada"


def with_vendor(*, modern: bool) -> ScriptedServer:
    """A server with a method of its own that tells how far it is, asks for a name, and greets."""

    async def greet(params: Mapping[str, Any]) -> dict[str, Any]:
        *_, (_, peer) = demo._channels
        call = ScriptedCall(peer, params, modern)
        await call.progress(1, 2, "half")
        if modern and not call.answers():
            asked = {"name": {"method": "elicitation/create", "params": form("Name?", name="string")}}
            return {"resultType": "input_required", "inputRequests": asked, "requestState": "{}"}
        answer = await call.elicit(form("Name?", name="string"), "name")
        return {"greeting": f"hello {answer['content']['name']}"}

    demo = full(modern=modern, methods={"vendor/greet": greet})
    return demo


@PAIRS
async def test_a_method_that_the_protocol_does_not_know_asks_and_tells_how_far_it_is(
    clock: FakeClock, era: str, modern: bool
) -> None:
    async with front({"demo": with_vendor(modern=modern)}, clock=clock) as world:
        client = await client_of(world, era, ONE, {"elicitation": {"form": {}}})
        token = {"progressToken": "t"}
        progress = {"progressToken": "t", "progress": 1.0, "total": 2.0, "message": "half"}
        if isinstance(client, Handshake):
            exchange = client.request("vendor/greet", {"_meta": token})
            await settle()
            (question,) = [message for message in exchange.messages if "id" in message]
            assert question["params"] == form("Name?", name="string")
            await client.answer(question, ADA)
        else:
            asking = client.request("vendor/greet", meta=token)
            first = await asking.result()
            assert (first["resultType"], asking.messages[0].get("params")) == ("input_required", progress)
            retry = {
                "inputResponses": dict.fromkeys(first["inputRequests"], ADA),
                "requestState": first["requestState"],
            }
            exchange = client.request("vendor/greet", retry, meta=token)
        assert plain(await exchange.result()) == {"greeting": "hello Ada"}
        if era == "handshake":
            assert exchange.messages[0]["params"] == progress


async def test_what_an_unknown_method_asks_of_a_client_that_cannot_be_asked_is_answered_elsewhere(
    clock: FakeClock,
) -> None:
    async with front({"demo": with_vendor(modern=False)}, clock=clock) as world:
        helper = await world.handshake()
        clients: list[Handshake | Modern] = [await world.handshake(url=ONE), world.modern(url=ONE)]
        for client in clients:
            exchange = client.request("vendor/greet")
            await settle()
            (question,) = (await helper.call("get_elicitations")).json["elicitations"]
            await helper.call("respond_to_elicitation", request_id=question["request_id"], **ADA)
            assert plain(await exchange.result()) == {"greeting": "hello Ada"}


@pytest.mark.parametrize("modern", [False, True])
async def test_a_call_is_a_task_of_the_clients_protocol_where_it_wants_one(clock: FakeClock, modern: bool) -> None:
    gate = Gate()
    settings = HubSettings(default_timeout_ms=3000)
    demo = full(modern=modern, tools={"slow": gate})
    async with front({"demo": demo}, clock=clock, settings=settings) as world:
        older = await world.handshake(url=ONE)
        params = {"name": "slow", "arguments": {}}
        created = (await older.request("tools/call", {**params, "task": {"ttl": 60_000}}).result())["task"]
        assert (created["status"], created["ttl"]) == ("working", 60_000)
        newer = world.modern(TASKS, url=ONE)
        call = newer.request("tools/call", params)
        await settle()
        await clock.advance(3)
        task = await call.result()
        assert (task["resultType"], task["status"]) == ("task", "working")
        # One that knows no tasks waits for as long as it takes.
        waiting = [world.modern(url=ONE).request("tools/call", params), older.request("tools/call", params)]
        await settle()
        await clock.advance(600)
        assert [one.is_complete for one in waiting] == [False, False]
        gate.opened.set()
        for one in waiting:
            assert (await one.result())["content"] == text_result("done")["content"]
        # Its time ran out long ago.
        failed = await newer.request("tasks/get", {"taskId": task["taskId"]}).response()
        assert failed.get("error", {}).get("code") == -32602


@pytest.mark.parametrize("modern", [False, True])
async def test_a_task_is_ignored_where_none_is_declared(clock: FakeClock, modern: bool) -> None:
    opened = anyio.Event()

    async def read(params: Mapping[str, Any]) -> dict[str, Any]:
        await opened.wait()
        return {"contents": [{"uri": params["uri"], "text": "slow"}]}

    demo = full(modern=modern, methods={"resources/read": read})
    async with front({"demo": demo}, clock=clock) as world:
        client = await world.handshake(url=ONE)
        task = {"task": {"ttl": 5}}
        reading = client.request("resources/read", {"uri": "demo://a", **task})
        await settle()
        await clock.advance(60)
        opened.set()
        assert plain(await reading.result()) == {"contents": [{"uri": "demo://a", "text": "slow"}]}
        prompt = await client.request("prompts/get", {"name": "greet", **task}).result()
        assert prompt["messages"][0]["content"]["text"] == "demo greet"
        assert plain(await client.request("prompts/list", task).result())["prompts"][0]["name"] == "greet"
        # In a request that the protocol does not know, it may be anything.
        await client.request("vendor/x", {"x": 1, **task}).result()
        assert [method for method, params in demo.received if "task" in params] == ["vendor/x"]
        assert (await client.request("tasks/list").result())["tasks"] == []


async def test_logs_and_progress_of_a_call_go_on_its_own_stream(clock: FakeClock) -> None:
    async def work(call: ScriptedCall) -> str:
        await call.peer.notify("notifications/message", {"level": "info", "data": "working"})
        await call.progress(1, 2, "half")
        return "done"

    async with front({"demo": full(tools={"work": work})}, clock=clock) as world:
        client = await world.handshake(url=ONE)
        params = {"name": "work", "arguments": {}, "_meta": {"progressToken": "t"}}
        exchange = client.request("tools/call", params)
        await exchange.result()
        log, progress, _ = exchange.messages
        assert log["params"] == {"level": "info", "data": "working"}
        assert progress["params"] == {"progressToken": "t", "progress": 1.0, "total": 2.0, "message": "half"}
        # A modern client hears what it asked for with the request.
        modern = world.modern(url=ONE)
        silent = modern.request("tools/call", params)
        await silent.result()
        assert [message.get("method") for message in silent.messages] == [None]
        loud = modern.request("tools/call", params, meta={"io.modelcontextprotocol/logLevel": "debug"})
        await loud.result()
        assert [message.get("method") for message in loud.messages] == ["notifications/message", None]


@pytest.mark.parametrize(
    ("wished", "heard"),
    [
        ("debug", ["debug", "info", "loud", "warning", "error", "emergency"]),
        ("warning", ["warning", "error", "emergency"]),
        ("error", ["error", "emergency"]),
        ("no level", ["info", "loud", "warning", "error", "emergency"]),
    ],
)
async def test_a_modern_client_hears_what_is_severe_enough_for_its_request(
    clock: FakeClock, wished: str, heard: list[str]
) -> None:
    levels = ("debug", "info", "loud", "warning", "error", "emergency")

    async def log(_call: ScriptedCall) -> str:
        for level in levels:
            await demo.notify("notifications/message", {"level": level, "data": "x"})
        return "done"

    demo = full(tools={"log": log})
    async with front({"demo": demo}, clock=clock) as world:
        client = world.modern(url=ONE)
        exchange = client.request("tools/call", {"name": "log"}, meta={"io.modelcontextprotocol/logLevel": wished})
        await exchange.result()
        assert [message["params"]["level"] for message in exchange.messages[:-1]] == heard
        # A client of the handshake era has set the level at the server.
        older = (await world.handshake(url=ONE)).request("tools/call", {"name": "log"})
        await older.result()
        assert [message["params"]["level"] for message in older.messages[:-1]] == list(levels)


async def test_a_modern_client_hears_a_vendors_notification_whatever_it_wants_of_logs(clock: FakeClock) -> None:
    async def work(call: ScriptedCall) -> str:
        await call.peer.notify("notifications/vendor", {"step": 1})
        await call.peer.notify("notifications/message", {"level": "emergency", "data": "x"})
        return "done"

    async with front({"demo": full(tools={"work": work})}, clock=clock) as world:
        exchange = world.modern(url=ONE).request("tools/call", {"name": "work"})
        await exchange.result()
        assert [message.get("method") for message in exchange.messages] == ["notifications/vendor", None]


async def test_setting_the_level_and_the_clients_notifications_reach_the_server(clock: FakeClock) -> None:
    demo = full()
    async with front({"demo": demo}, clock=clock) as world:
        client = await world.handshake(url=ONE)
        assert await client.request("logging/setLevel", {"level": "debug"}).result() == {}
        assert ("logging/setLevel", {"level": "debug"}) in demo.received
        assert await client.request("logging/setLevel", {}).failure() == (200, -32602)
        await client.notify("notifications/roots/list_changed", {"x": 1})
        await client.notify("notifications/progress", {"progressToken": 1, "progress": 1})
        await settle()
        assert demo.received[-1] == ("notifications/roots/list_changed", {"x": 1})


# Subscriptions


async def test_a_subscription_that_is_repeated_ends_with_one_word(clock: FakeClock) -> None:
    demo = full()
    async with front({"demo": demo}, clock=clock) as world:
        client = await world.handshake(url=ONE)
        stream = client.get()
        for _ in range(2):
            assert await client.request("resources/subscribe", {"uri": "demo://a"}).result() == {}
        await demo.notify("notifications/resources/updated", {"uri": "demo://a"})
        await settle()
        assert [message["params"] for message in stream.messages] == [{"uri": "demo://a"}]
        assert await client.request("resources/unsubscribe", {"uri": "demo://a"}).result() == {}
        assert "resources/unsubscribe" in demo.received_methods()
        assert await client.request("resources/subscribe", {}).failure() == (200, -32602)


async def test_a_subscription_that_the_server_refuses_is_none(clock: FakeClock) -> None:
    async def refuse(_params: Mapping[str, Any]) -> dict[str, Any]:
        raise PeerError(-32050, "not this one")

    demo = full(methods={"resources/subscribe": refuse})
    async with front({"demo": demo}, clock=clock) as world:
        client = await world.handshake(url=ONE)
        assert await client.request("resources/subscribe", {"uri": "demo://a"}).failure() == (200, -32050)
        assert list(client.session.link("demo").wishes) == []
        wanted = {"notifications": {"resourceSubscriptions": ["demo://a"]}}
        listening = world.modern(url=ONE).request("subscriptions/listen", wanted)
        assert (await listening.failure())[1] == -32050


@pytest.mark.parametrize("modern", [False, True])
async def test_a_modern_client_listens_for_changes(clock: FakeClock, modern: bool) -> None:
    demo = full(modern=modern)
    async with front({"demo": demo}, clock=clock) as world:
        client = world.modern(url=ONE)
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["demo://a"]}
        listening = [client.request("subscriptions/listen", {"notifications": wanted}) for _ in range(2)]
        deaf = client.request("subscriptions/listen", {"notifications": {"promptsListChanged": True}})
        # A server that never says that it listens is not waited for long.
        await clock.advance(6)
        for method, params in (
            ("notifications/tools/list_changed", {}),
            ("notifications/prompts/list_changed", {}),
            ("notifications/resources/updated", {"uri": "demo://a"}),
            ("notifications/resources/updated", {"uri": "demo://b"}),
        ):
            await demo.notify(method, params)
        await settle()
        for exchange in listening:
            assert [message["method"] for message in exchange.messages] == [
                "notifications/subscriptions/acknowledged",
                "notifications/tools/list_changed",
                "notifications/resources/updated",
            ]
        assert [message["method"] for message in deaf.messages][1:] == ["notifications/prompts/list_changed"]
        listening[0].drop()
        await settle()
        assert "resources/unsubscribe" not in demo.received_methods()
        listening[1].drop()
        await settle()
        if not modern:
            assert demo.received_methods()[-1] == "resources/unsubscribe"


async def test_a_server_that_does_not_know_how_to_unsubscribe_ends_nobodys_session(clock: FakeClock) -> None:
    async def refuse(_params: Mapping[str, Any]) -> dict[str, Any]:
        raise PeerError(-32601, "Method not found")

    demo = full(methods={"resources/unsubscribe": refuse})
    async with front({"demo": demo}, clock=clock) as world:
        client = world.modern(url=ONE)
        wanted = {"notifications": {"resourceSubscriptions": ["demo://a"]}}
        listening = client.request("subscriptions/listen", wanted)
        await settle()
        (session,) = world.hub.sessions.values()
        listening.drop()
        await settle()
        await client.request("tools/list").result()
        assert list(world.hub.sessions.values()) == [session]


async def test_a_server_that_is_removed_under_a_listener_ends_nobodys_session(clock: FakeClock) -> None:
    async with front({"demo": full(), "other": full("other")}, clock=clock) as world:
        client = world.modern(url=ALL)
        listening = client.request("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["demo://a"]}})
        await settle()
        await world.hub.remove_server("demo")
        with capture_logs() as logged:
            listening.drop()
            await settle()
        assert [entry["server"] for entry in logged if entry["event"] == "not_passed_on"] == ["demo"]
        tools = (await client.request("tools/list").result())["tools"]
        assert [tool["name"] for tool in tools] == ["other__echo", "other__ask"]
        older = await world.handshake(url=ALL)
        await older.notify("notifications/roots/list_changed")


# Servers that are away


async def test_a_server_that_comes_back_is_used_again_and_its_new_tools_are_told(clock: FakeClock) -> None:
    demo = full()
    async with front({"demo": demo}, clock=clock) as world:
        client = await world.handshake(url=ONE)
        stream = client.get()
        await client.request("tools/list").result()
        await client.request("resources/subscribe", {"uri": "demo://a"}).result()
        await demo.die()
        demo.tools = {"echo": echo, "new": echo}
        await clock.advance(5)
        result = await client.request("tools/call", {"name": "new", "arguments": {"text": "hi"}}).result()
        assert result == text_result("hi")
        assert "notifications/tools/list_changed" in [message.get("method") for message in stream.messages]
        assert demo.received_methods().count("resources/subscribe") == 2


async def test_a_call_in_flight_at_a_server_that_dies_is_an_error(clock: FakeClock) -> None:
    gate = Gate()
    demo = full(tools={"slow": gate})
    async with front({"demo": demo}, clock=clock) as world:
        older, newer = await world.handshake(url=ONE), world.modern(url=ONE)
        params = {"name": "slow", "arguments": {}}
        calls = [older.request("tools/call", params), newer.request("tools/call", params)]
        await gate.reached.wait()
        await settle()
        await demo.die()
        await settle()
        for call in calls:
            assert (await call.failure())[1] == -32603


async def test_a_server_that_cannot_be_had_is_an_error_that_says_so(clock: FakeClock) -> None:
    async def refuse(_params: Mapping[str, Any]) -> dict[str, Any]:
        raise PeerError(-32050, "not today")

    demo = full(methods={"initialize": refuse})
    async with front({"demo": demo}, clock=clock) as world:
        client = world.modern(url=ONE)
        _, code = await client.request("tools/list").failure()
        assert code == -32603
        sessions = len(world.hub.sessions)
        with pytest.raises(AssertionError):
            await world.handshake(url=ONE)
        await settle()
        # No session is left of a handshake that came to nothing.
        assert len(world.hub.sessions) == sessions
        # What is not at all is not found.
        for url in ("/mcp/server/nowhere", "/mcp/server/", "/mcp/x", "/mcp/server/demo/x"):
            assert (await world.modern(url=url).request("tools/list").failure())[0] == 404


async def test_a_session_is_of_the_endpoint_that_it_was_opened_at(clock: FakeClock) -> None:
    async with front({"demo": full(), "other": full("other")}, clock=clock) as world:
        client = await world.handshake(url=ONE)
        for url in ("/mcp", ALL, "/mcp/server/other"):
            client.url = url
            assert (await client.request("ping").failure())[0] == 404
        client.url = ONE + "/"
        assert await client.request("ping").result() == {}


@pytest.mark.parametrize("url", [ONE, ALL, "/mcp"])
@pytest.mark.parametrize("meta", [[1], "x", None])
async def test_a_meta_that_is_no_object_is_an_invalid_parameter(clock: FakeClock, url: str, meta: Any) -> None:
    async with front({"demo": full()}, clock=clock) as world:
        client = await world.handshake(url=url)
        for method, params in (("tools/list", {}), ("tools/call", {"name": "echo"}), ("ping", {})):
            assert await client.request(method, {**params, "_meta": meta}).failure() == (200, -32602)


# Roots


async def list_roots(call: ScriptedCall) -> str:
    return ",".join(root["uri"] for root in (await call.peer.request("roots/list"))["roots"])


async def test_a_client_is_asked_for_its_roots_on_a_stream_that_it_reads(clock: FakeClock) -> None:
    async with front({"demo": ScriptedServer({"roots": list_roots})}, clock=clock) as world:
        client = await world.handshake({"roots": {}}, url=ONE)
        roots = {"roots": [{"uri": "file:///mine"}]}
        standalone = None
        for state in ("none", "open", "dropped"):
            if state == "open":
                standalone = client.get()
                await settle()
            elif standalone is not None:
                standalone.drop()
                await settle()
            exchange = client.request("tools/call", {"name": "roots", "arguments": {}})
            await settle()
            asked = (standalone if standalone is not None and state == "open" else exchange).messages[0]
            assert asked["method"] == "roots/list"
            await client.answer(asked, roots)
            assert await exchange.result() == text_result("file:///mine")


@pytest.mark.parametrize("roots", [(), ("file:///set",)])
async def test_the_roots_of_a_modern_client_are_those_of_the_settings(clock: FakeClock, roots: tuple[str, ...]) -> None:
    """It has no stream to be asked on; but a server may show more tools to clients with roots."""
    demo = ScriptedServer({"roots": list_roots})
    async with front({"demo": demo}, clock=clock, settings=HubSettings(roots=roots)) as world:
        client = world.modern({"roots": {}}, url=ONE)
        await client.request("tools/list").result()
        (told,) = [params["capabilities"] for method, params in demo.received if method == "initialize"]
        assert "roots" in told
        called = client.request("tools/call", {"name": "roots", "arguments": {}})
        assert plain(await called.result()) == text_result(",".join(roots))


# All of them


@PAIRS
async def test_all_servers_are_seen_as_one(clock: FakeClock, era: str, modern: bool) -> None:
    servers = {"demo": full(modern=modern), "other": full("other"), "other__x": full("x")}
    async with front(servers, clock=clock) as world:
        client = await client_of(world, era, ALL)
        if isinstance(client, Handshake):
            declared = client.introduction["capabilities"]
            assert client.introduction["serverInfo"]["name"] == "emceepee"
        else:
            declared = (await client.request("server/discover").result())["capabilities"]
        assert set(FULL) <= set(declared)
        tools = (await client.request("tools/list").result())["tools"]
        names = [tool["name"] for tool in tools]
        assert names == [f"{server}__{tool}" for server in servers for tool in ("echo", "ask")]
        for name in names[::2]:
            params = {"name": name, "arguments": {"text": name}}
            assert plain(await client.request("tools/call", params).result()) == text_result(name)
        prompts = (await client.request("prompts/list").result())["prompts"]
        assert [prompt["name"] for prompt in prompts] == ["demo__greet", "other__greet", "other__x__greet"]
        prompt = await client.request("prompts/get", {"name": "other__x__greet"}).result()
        assert prompt["messages"][0]["content"]["text"] == "x greet"
        resources = (await client.request("resources/list").result())["resources"]
        assert [resource["uri"] for resource in resources] == ["demo://a", "other://a", "x://a"]
        templates = (await client.request("resources/templates/list").result())["resourceTemplates"]
        assert len(templates) == 3
        for uri, owner in (("other://a", "other"), ("x://by-id/7", "x"), ("demo://a", "demo")):
            read = await client.request("resources/read", {"uri": uri}).result()
            assert read["contents"][0]["text"] == owner
        argument = {"argument": {"name": "a", "value": ""}}
        for ref, values in (
            ({"type": "ref/prompt", "name": "other__greet"}, ["other", "greet"]),
            ({"type": "ref/resource", "uri": "x://by-id/{id}"}, ["x", "x://by-id/{id}"]),
        ):
            completion = await client.request("completion/complete", {"ref": ref, **argument}).result()
            assert completion["completion"]["values"] == values


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "echo"}),
        ("tools/call", {"name": "nowhere__echo"}),
        ("tools/call", {"name": "demo_echo"}),
        ("tools/call", {"name": 7}),
        ("prompts/get", {"name": "greet"}),
        ("resources/read", {"uri": "nowhere://a"}),
        ("resources/read", {}),
        ("completion/complete", {}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "greet"}}),
    ],
)
async def test_what_belongs_to_no_server_is_an_invalid_parameter(
    clock: FakeClock, method: str, params: dict[str, Any]
) -> None:
    async with front({"demo": full()}, clock=clock) as world:
        client = await world.handshake(url=ALL)
        assert await client.request(method, params).failure() == (200, -32602)
        assert await client.request("vendor/x").failure() == (200, -32601)


def with_template(name: str, template: str, *, is_there: Callable[[str], bool] = lambda _uri: True) -> ScriptedServer:
    async def templates(_params: Mapping[str, Any]) -> dict[str, Any]:
        return {"resourceTemplates": [{"uriTemplate": template, "name": "t"}]}

    async def read(params: Mapping[str, Any]) -> dict[str, Any]:
        if not is_there(params["uri"]):
            raise PeerError(-32002, f"{name}: not found")
        return {"contents": [{"uri": params["uri"], "text": name}]}

    return full(name, methods={"resources/templates/list": templates, "resources/read": read})


async def test_of_several_templates_that_begin_alike_the_one_that_fits_says_whose_a_resource_is(
    clock: FakeClock,
) -> None:
    servers = {"one": with_template("one", "demo://{x}"), "two": with_template("two", "demo://b/{id}")}
    async with front(servers, clock=clock) as world:
        client = await world.handshake(url=ALL)
        for uri, owner in (("demo://b/1", "two"), ("demo://b", "one"), ("demo://c/1", "one")):
            read = await client.request("resources/read", {"uri": uri}).result()
            assert read["contents"][0]["text"] == owner
        for uri, owner in (("demo://{x}", "one"), ("demo://b/{id}", "two")):
            ref = {"ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": "x", "value": ""}}
            completion = await client.request("completion/complete", ref).result()
            assert completion["completion"]["values"][0] == owner


async def test_a_resource_that_one_server_does_not_have_may_be_of_the_next(clock: FakeClock) -> None:
    servers = {
        "one": with_template("one", "demo://{+path}", is_there=lambda uri: uri == "demo://1"),
        "two": with_template("two", "demo://{+path}", is_there=lambda uri: uri == "demo://2"),
    }
    async with front(servers, clock=clock) as world:
        client = await world.handshake(url=ALL)
        for uri, owner in (("demo://1", "one"), ("demo://2", "two")):
            read = await client.request("resources/read", {"uri": uri}).result()
            assert read["contents"][0]["text"] == owner
        refused = (await client.request("resources/read", {"uri": "demo://3"}).response())["error"]
        assert refused == {"code": -32002, "message": "one: not found"}


async def test_a_name_that_may_be_of_two_servers_is_of_the_one_that_has_it(clock: FakeClock) -> None:
    def named(name: str) -> Callable[[ScriptedCall], Awaitable[str]]:
        async def tool(_call: ScriptedCall) -> str:
            return name

        return tool

    one = ScriptedServer({"b__c": named("one b__c"), "b__d": named("one b__d")})
    two = ScriptedServer({"c": named("two c")})
    async with front({"one": one, "one__b": two}, clock=clock) as world:
        client = await world.handshake(url=ALL)
        with capture_logs() as logs:
            listed = (await client.request("tools/list").result())["tools"]
        assert sorted(tool["name"] for tool in listed) == ["one__b__c", "one__b__d"]
        assert [(log["name"], log["servers"]) for log in logs if log["event"] == "names_clash"] == [
            ("one__b__c", ["one", "one__b"])
        ]
        for name, text in (("one__b__c", "two c"), ("one__b__d", "one b__d")):
            assert await client.request("tools/call", {"name": name}).result() == text_result(text)


@pytest.mark.parametrize(
    ("template", "uri", "is_fitting"),
    [
        ("a://b", "a://b", True),
        ("a://b", "a://bc", False),
        ("a://{x}", "a://b", True),
        ("a://{x}", "a://", False),
        ("a://{x}", "a://b/c", False),
        ("a://{x}/{y}.txt", "a://b/c.d.txt", True),
        ("a://{x}/{y}.txt", "a://b/c.d", False),
        ("a://{+x}", "a://b/c", True),
        ("a://b{/x*}", "a://b", True),
        ("a://b{/x*}", "a://b/c/d", True),
        ("a://b{?q,r}", "a://b?q=1", True),
        ("a://b{?q,r}", "a://c?q=1", False),
        ("{x}", "b", True),
        ("a://{", "a://{", True),
        ("{x}{y}" * 100 + "!", "x" * 8000, False),
        ("a://{x}", "a://" + "x" * 10_000, False),
    ],
)
def test_whether_a_template_fits(template: str, uri: str, is_fitting: bool) -> None:
    assert fits(template, uri) is is_fitting


async def test_one_server_that_fails_costs_the_others_nothing(clock: FakeClock) -> None:
    async def refuse(_params: Mapping[str, Any]) -> dict[str, Any]:
        raise PeerError(-32050, "not today")

    lists = ("tools/list", "resources/list", "resources/templates/list", "prompts/list", "logging/setLevel")
    bad = full("bad", methods=dict.fromkeys(lists, refuse))
    away = full("away", methods={"initialize": refuse})
    async with front({"bad": bad, "away": away, "demo": full()}, clock=clock) as world:
        client = await world.handshake(url=ALL)
        for method, key in (("tools/list", "tools"), ("resources/list", "resources"), ("prompts/list", "prompts")):
            listed = (await client.request(method).result())[key]
            assert all("demo" in str(item.get("uri", item["name"])) for item in listed)
            assert listed
        read = await client.request("resources/read", {"uri": "demo://by-id/1"}).result()
        assert read["contents"][0]["text"] == "demo"
        assert (await client.request("tools/call", {"name": "away__echo"}).failure())[1] == -32603


async def test_a_server_that_hangs_is_waited_for_once_and_told_when_it_is_there(clock: FakeClock) -> None:
    arrived = anyio.Event()

    async def hang(_params: Mapping[str, Any]) -> dict[str, Any]:
        await arrived.wait()
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": FULL,
            "serverInfo": {"name": "late", "version": "1"},
        }

    late = full("late", methods={"initialize": hang})
    async with front({"late": late, "demo": full()}, clock=clock) as world:
        client = world.modern(url=ALL)
        first = client.request("tools/list")
        await settle()
        assert not first.done.is_set()
        await clock.advance(10)
        assert len((await first.result())["tools"]) == 2
        second = client.request("tools/list")
        await settle()
        assert len((await second.result())["tools"]) == 2
        listening = client.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await clock.advance(6)
        arrived.set()
        await settle()
        assert "notifications/tools/list_changed" in [message["method"] for message in listening.messages]
        third = client.request("tools/list")
        assert len((await third.result())["tools"]) == 4


async def test_a_server_that_never_lists_anything_is_left_out(clock: FakeClock) -> None:
    async def hang(_params: Mapping[str, Any]) -> dict[str, Any]:
        await anyio.sleep_forever()
        return {}

    hanging = full("hanging", methods=dict.fromkeys(("prompts/list", "resources/list"), hang))
    async with front({"hanging": hanging, "demo": full()}, clock=clock) as world:
        client = await world.handshake(url=ALL)
        prompts, read = client.request("prompts/list"), client.request("resources/read", {"uri": "demo://a"})
        await settle()
        await clock.advance(10)
        assert [prompt["name"] for prompt in (await prompts.result())["prompts"]] == ["demo__greet"]
        assert (await read.result())["contents"][0]["text"] == "demo"


async def test_a_server_that_comes_or_goes_changes_the_lists(clock: FakeClock) -> None:
    async with front({"demo": full()}, clock=clock, others={"late": full("late")}) as world:
        client = await world.handshake(url=ALL)
        stream = client.get()
        await client.request("tools/list").result()
        await settle()
        before = len(stream.messages)
        await world.hub.put_server(ServerConfig(name="late", url="http://late.invalid/mcp"))
        await settle()
        told = [message["method"] for message in stream.messages[before:]]
        assert "notifications/tools/list_changed" in told
        names = [tool["name"] for tool in (await client.request("tools/list").result())["tools"]]
        assert "late__echo" in names
        await world.hub.remove_server("late")
        await settle()
        names = [tool["name"] for tool in (await client.request("tools/list").result())["tools"]]
        assert names == ["demo__echo", "demo__ask"]


@pytest.mark.parametrize("modern", [False, True])
async def test_a_question_and_a_task_at_one_of_all(clock: FakeClock, modern: bool) -> None:
    async with front({"other": full("other"), "demo": full(modern=modern)}, clock=clock) as world:
        client = world.modern({"elicitation": {}}, url=ALL)
        params = {"name": "demo__ask", "arguments": {}}
        first = await client.request("tools/call", params).result()
        assert first["resultType"] == "input_required"
        answers = dict.fromkeys(first["inputRequests"], ADA)
        retry = {**params, "inputResponses": answers, "requestState": first["requestState"]}
        assert (await client.request("tools/call", retry).result())["content"][0]["text"] == "hello Ada"
        older = await world.handshake({"elicitation": {}}, url=ALL)
        exchange = older.request("tools/call", params)
        await settle()
        await older.answer(exchange.messages[0], ADA)
        assert (await exchange.result())["content"][0]["text"] == "hello Ada"


async def test_a_header_of_an_argument_has_to_say_what_the_argument_says(clock: FakeClock) -> None:
    schema = {"type": "object", "properties": {"text": {"type": "string", "x-mcp-header": "Text"}}}
    demo = full(definitions={"echo": {"inputSchema": schema}})
    async with front({"demo": demo}, clock=clock) as world:
        client = world.modern(url=ONE)
        params = {"name": "echo", "arguments": {"text": "hi"}}
        for headers in ({}, {"mcp-param-text": "other"}):
            assert await client.request("tools/call", params, headers=headers).failure() == (400, -32020)
        result = await client.request("tools/call", params, headers={"mcp-param-text": "hi"}).result()
        assert plain(result) == text_result("hi")


async def test_the_log_level_of_a_client_holds_on_the_next_connection_too(clock: FakeClock) -> None:
    demo = full()
    async with front({"demo": demo}, clock=clock) as world:
        client = await world.handshake(url=ONE)
        assert await client.request("logging/setLevel", {"level": "debug"}).result() == {}
        await demo.die()
        demo.received.clear()
        await client.request("tools/list").result()
        assert ("logging/setLevel", {"level": "debug"}) in demo.received
