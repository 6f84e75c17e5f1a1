"""The stdio front over two pipes, for a client of either era."""

from __future__ import annotations

import io
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, BinaryIO

import anyio
import anyio.to_thread
import pytest

from emceepee.front.stdio import MAX_UNSENT, StdioFront
from emceepee.hub import Hub
from emceepee.testing import FakeClock, ScriptedCall, ScriptedServer, running_hub, settle, text_result
from tests.front.asgi import PATIENCE
from tests.front.clients import MODERN, TASKS
from tests.front.writes import stuck_at
from tests.interaction.gates import Gate, ask_name, echo

pytestmark = pytest.mark.anyio

ADA = {"action": "accept", "content": {"name": "Ada"}}


class Pipe:
    """The client at the other end."""

    def __init__(self, hub: Hub, to_front: BinaryIO, from_front: BinaryIO) -> None:
        self.hub = hub
        self.ended = anyio.Event()
        self.others: list[dict[str, Any]] = []
        """What came while we waited for something else."""
        self._to_front = to_front
        self._from_front = from_front

    async def write(self, line: bytes) -> None:
        await anyio.to_thread.run_sync(self._to_front.write, line)

    async def send(self, message: Mapping[str, Any]) -> None:
        await self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def read(self) -> dict[str, Any]:
        with anyio.fail_after(PATIENCE):
            line = await anyio.to_thread.run_sync(self._from_front.readline, abandon_on_cancel=True)
        message: dict[str, Any] = json.loads(line)
        return message

    async def until(self, request_id: Any) -> dict[str, Any]:
        """The response to a request."""
        while True:
            for message in self.others:
                if message.get("id") == request_id and "method" not in message:
                    self.others.remove(message)
                    return message
            self.others.append(await self.read())

    async def until_asked(self) -> dict[str, Any]:
        while True:
            for message in self.others:
                if "id" in message and "method" in message:
                    self.others.remove(message)
                    return message
            self.others.append(await self.read())

    async def request(self, request_id: Any, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        await self.send({"id": request_id, "method": method, "params": params or {}})
        return await self.until(request_id)

    async def modern(
        self, request_id: Any, method: str, params: Mapping[str, Any] | None = None, **capabilities: Any
    ) -> dict[str, Any]:
        return await self.request(request_id, method, dressed(params, **capabilities))

    async def initialize(self, version: str = "2025-11-25", **capabilities: Any) -> dict[str, Any]:
        params = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": {"name": "t"}}
        response = await self.request("init", "initialize", params)
        await self.send({"method": "notifications/initialized"})
        result: dict[str, Any] = response["result"]
        return result

    def hang_up(self) -> None:
        self._to_front.close()


def dressed(params: Mapping[str, Any] | None = None, **capabilities: Any) -> dict[str, Any]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }
    return {**(params or {}), "_meta": meta}


def execute(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"name": "execute_tool", "arguments": {"server": "demo", "tool": tool, **arguments}}


@asynccontextmanager
async def stdio(servers: Mapping[str, ScriptedServer], clock: FakeClock, **options: Any) -> AsyncIterator[Pipe]:
    """A front on two pipes for the body; it ends when the client hangs up, and nothing may be left then."""
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    with (
        os.fdopen(in_read, "rb") as stdin,
        os.fdopen(in_write, "wb", buffering=0) as to_front,
        os.fdopen(out_read, "rb") as from_front,
        os.fdopen(out_write, "wb") as stdout,
    ):
        async with running_hub(servers, clock=clock) as running, anyio.create_task_group() as tasks:
            front = StdioFront(running.hub, stdin, stdout, **options)
            pipe = Pipe(running.hub, to_front, from_front)

            async def run() -> None:
                await front.run()
                pipe.ended.set()

            tasks.start_soon(run)
            yield pipe
            pipe.hang_up()
            with anyio.fail_after(PATIENCE):
                await pipe.ended.wait()


def server() -> ScriptedServer:
    return ScriptedServer({"echo": echo, "ask": ask_name})


async def test_a_handshake_client_has_a_session_that_ends_with_the_pipe(clock: FakeClock) -> None:
    async with stdio({"demo": server()}, clock) as pipe:
        assert (await pipe.request(0, "ping"))["result"] == {}
        assert (await pipe.request(1, "tools/list"))["error"]["code"] == -32600
        assert (await pipe.initialize())["protocolVersion"] == "2025-11-25"
        assert (await pipe.request(2, "initialize", {"protocolVersion": "2025-11-25"}))["error"]["code"] == -32600
        result = (await pipe.request(3, "tools/call", execute("echo", args={"text": "hi"})))["result"]
        assert result["content"][0] == text_result("hi")["content"][0]
        assert len(pipe.hub.sessions) == 1
        pipe.hang_up()
        await pipe.ended.wait()
        assert len(pipe.hub.sessions) == 0


async def test_a_client_that_can_be_asked_is_asked_in_the_pipe(clock: FakeClock) -> None:
    async with stdio({"demo": server()}, clock) as pipe:
        await pipe.initialize(elicitation={})
        await pipe.request(1, "tools/call", {"name": "list_tools", "arguments": {}})
        await pipe.send({"id": 2, "method": "tools/call", "params": execute("ask")})
        question = await pipe.until_asked()
        assert question["method"] == "elicitation/create"
        await pipe.send({"id": question["id"], "result": ADA})
        assert (await pipe.until(2))["result"]["content"][0]["text"] == "hello Ada"


async def test_a_modern_client_needs_no_handshake(clock: FakeClock) -> None:
    async with stdio({"demo": server()}, clock) as pipe:
        found = (await pipe.modern(1, "server/discover"))["result"]
        assert MODERN in found["supportedVersions"]
        # One that says nothing of itself is told what is missing.
        assert (await pipe.request(2, "server/discover"))["error"]["code"] == -32602
        wrong = dressed()
        wrong["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2099-01-01"
        assert (await pipe.request(3, "tools/list", wrong))["error"]["code"] == -32022
        assert (await pipe.modern(4, "tasks/get", {"taskId": "x"}))["error"]["code"] == -32021
        assert (await pipe.modern(5, "nonsense"))["error"]["code"] == -32601
        result = (await pipe.modern(6, "tools/call", execute("echo", args={"text": "hi"})))["result"]
        assert result["resultType"] == "complete"


async def test_a_modern_client_is_asked_back_or_gets_a_task(clock: FakeClock) -> None:
    async with stdio({"demo": server()}, clock) as pipe:
        params = execute("ask")
        first = (await pipe.modern(1, "tools/call", params, elicitation={}))["result"]
        assert first["resultType"] == "input_required"
        again = {
            **params,
            "requestState": first["requestState"],
            "inputResponses": dict.fromkeys(first["inputRequests"], ADA),
        }
        result = (await pipe.modern(2, "tools/call", again, elicitation={}))["result"]
        assert result["content"][0]["text"] == "hello Ada"
        task = (await pipe.modern(3, "tools/call", params, elicitation={}, **TASKS))["result"]
        assert task["resultType"] == "task"
        got = (await pipe.modern(4, "tasks/get", {"taskId": task["taskId"]}, elicitation={}, **TASKS))["result"]
        assert got["status"] == "input_required"


async def test_the_workspace_is_what_the_command_line_says_if_the_request_says_nothing(clock: FakeClock) -> None:
    gate = Gate()
    async with stdio({"demo": ScriptedServer({"slow": gate})}, clock, workspace="mine") as pipe:
        await pipe.modern(1, "tools/call", execute("slow", timeout_ms=0))
        listed = (await pipe.modern(2, "tools/call", {"name": "list_tasks", "arguments": {}}))["result"]
        assert '"tool":"slow"' in listed["content"][0]["text"]
        elsewhere = {"name": "list_tasks", "arguments": {"workspace": "default"}}
        assert '"tasks":[]' in (await pipe.modern(3, "tools/call", elsewhere))["result"]["content"][0]["text"]
        assert [session.origin.workspace for session in pipe.hub.sessions.values()] == ["mine", "default"]
        gate.opened.set()


async def test_both_eras_may_talk_over_one_pipe(clock: FakeClock) -> None:
    async with stdio({"demo": server()}, clock) as pipe:
        await pipe.modern(1, "server/discover")
        await pipe.initialize()
        assert "result" in await pipe.request(2, "tools/list")
        assert (await pipe.modern(3, "tools/list"))["result"]["resultType"] == "complete"


async def test_a_listener_is_told_and_ends_without_a_word_when_it_is_cancelled(clock: FakeClock) -> None:
    demo = server()
    async with stdio({"demo": demo}, clock, endpoint="server/demo") as pipe:
        wanted = dressed({"notifications": {"toolsListChanged": True}})
        await pipe.send({"id": "l", "method": "subscriptions/listen", "params": wanted})
        assert (await pipe.read())["method"] == "notifications/subscriptions/acknowledged"
        await demo.notify("notifications/tools/list_changed")
        assert (await pipe.read())["method"] == "notifications/tools/list_changed"
        await pipe.send({"method": "notifications/cancelled", "params": {"requestId": "l"}})
        # Its id is free again.
        assert "result" in await pipe.modern("l", "tools/list")
        assert pipe.others == []


async def test_a_cancelled_call_is_not_answered_and_its_events_are_told_with_the_next(clock: FakeClock) -> None:
    gate = Gate()
    demo = ScriptedServer({"slow": gate, "echo": echo})
    async with stdio({"demo": demo}, clock) as pipe:
        await pipe.initialize()
        await pipe.request(1, "tools/call", {"name": "list_tools", "arguments": {}})
        await pipe.send({"id": 2, "method": "tools/call", "params": execute("slow")})
        await gate.reached.wait()
        await pipe.send({"id": 2, "method": "ping"})
        assert (await pipe.until(2))["error"]["code"] == -32600
        await pipe.send({"method": "notifications/cancelled", "params": {"requestId": 2, "reason": "no more"}})
        assert (await pipe.request(3, "ping"))["result"] == {}
        await settle()
        assert demo.cancelled == ["slow"]
        (session,) = pipe.hub.sessions.values()
        assert len(session.state.tasks) == 0


async def test_a_client_that_lost_patience_finds_its_call_among_the_tasks(clock: FakeClock) -> None:
    gate = Gate()
    async with stdio({"demo": ScriptedServer({"slow": gate})}, clock) as pipe:
        await pipe.initialize()
        await pipe.send({"id": 1, "method": "tools/call", "params": execute("slow")})
        await gate.reached.wait()
        reason = {"requestId": 1, "reason": "McpError: MCP error -32001: Request timed out"}
        await pipe.send({"method": "notifications/cancelled", "params": reason})
        listed = await pipe.request(2, "tools/call", {"name": "list_tasks", "arguments": {}})
        assert '"status":"working"' in listed["result"]["content"][0]["text"]
        gate.opened.set()


@pytest.mark.parametrize("nth", range(3))
@pytest.mark.parametrize("reason", ["no more", "timed out"])
async def test_events_are_not_lost_with_a_wait_that_is_cancelled_at_any_point(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch, nth: int, reason: str
) -> None:
    demo = server()
    async with stdio({"demo": demo}, clock) as pipe:
        await pipe.initialize()
        await pipe.request(1, "tools/call", {"name": "list_tools", "arguments": {}})
        await demo.notify("notifications/x")
        await settle()
        (session,) = pipe.hub.sessions.values()
        put_right = stuck_at(monkeypatch, session, nth)
        await pipe.send({"id": 2, "method": "tools/call", "params": {"name": "await_activity", "arguments": {}}})
        await pipe.request(3, "ping")
        await settle()
        await pipe.send({"method": "notifications/cancelled", "params": {"requestId": 2, "reason": reason}})
        await pipe.request(4, "ping")
        put_right()
        after = await pipe.request(5, "tools/call", {"name": "list_tasks", "arguments": {}})
        told = json.dumps([*pipe.others, after])
        assert told.count("notifications/x") == 1


async def test_silence_is_filled_for_a_client_that_wants_progress(clock: FakeClock) -> None:
    gate = Gate()
    async with stdio({"demo": ScriptedServer({"slow": gate})}, clock) as pipe:
        await pipe.initialize()
        params = {**execute("slow"), "_meta": {"progressToken": "p"}}
        await pipe.send({"id": 1, "method": "tools/call", "params": params})
        await gate.reached.wait()
        await clock.advance(31)
        for _ in range(2):
            assert (await pipe.read())["params"]["progressToken"] == "p"
        gate.opened.set()
        await pipe.until(1)


async def test_what_is_no_message_is_refused_and_the_next_one_is_served(clock: FakeClock) -> None:
    async with stdio({"demo": server()}, clock, max_line_bytes=1000) as pipe:
        await pipe.write(b"\n  \n")
        for line, code in (
            (b"nonsense\n", -32700),
            (b"[]\n", -32600),
            (b'{"jsonrpc":"1.0"}\n', -32600),
            # Only once, and what would be a message in the rest of it is none.
            (b'"' + b"x" * 2501 + b'\x00{"jsonrpc":"2.0","id":1,"method":"ping"}' + b"y" * 3000 + b"\n", -32600),
        ):
            await pipe.write(line)
            refused = await pipe.read()
            assert (refused["id"], refused["error"]["code"]) == (None, code)
            assert (await pipe.request("after", "ping"))["result"] == {}


async def test_a_last_line_without_an_end_is_served_and_the_pipe_ends(clock: FakeClock) -> None:
    async with stdio({"demo": server()}, clock) as pipe:
        await pipe.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
        pipe.hang_up()
        assert (await pipe.read())["result"] == {}


async def test_a_client_that_has_closed_its_end_does_not_keep_us(clock: FakeClock) -> None:
    class Closed(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, _data: Any) -> int:
            raise BrokenPipeError

    lines = [json.dumps({"jsonrpc": "2.0", "id": number, "method": "ping"}) for number in range(MAX_UNSENT + 100)]
    stdin = io.BytesIO("\n".join(lines).encode())
    async with running_hub({"demo": server()}, clock=clock) as running:
        front = StdioFront(running.hub, stdin, Closed())  # type: ignore[arg-type]
        with anyio.fail_after(PATIENCE):
            await front.run()


@pytest.mark.parametrize("endpoint", ["server/demo", "all"])
async def test_a_pipe_may_lead_to_a_server_as_it_is_or_to_all(clock: FakeClock, endpoint: str) -> None:
    async def report(call: ScriptedCall) -> str:
        await call.progress(1)
        return "done"

    async with stdio({"demo": ScriptedServer({"report": report, "ask": ask_name})}, clock, endpoint=endpoint) as pipe:
        await pipe.initialize(elicitation={})
        tools = (await pipe.request(1, "tools/list"))["result"]["tools"]
        prefix = "demo__" if endpoint == "all" else ""
        assert [tool["name"] for tool in tools] == [f"{prefix}report", f"{prefix}ask"]
        params = {"name": f"{prefix}report", "arguments": {}, "_meta": {"progressToken": 7}}
        assert (await pipe.request(2, "tools/call", params))["result"] == text_result("done")
        assert [message["params"]["progress"] for message in pipe.others if "params" in message] == [1.0]
        await pipe.send({"id": 3, "method": "tools/call", "params": {"name": f"{prefix}ask", "arguments": {}}})
        question = await pipe.until_asked()
        await pipe.send({"id": question["id"], "result": ADA})
        assert (await pipe.until(3))["result"] == text_result("hello Ada")
        modern = (await pipe.modern(4, "tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in modern] == [tool["name"] for tool in tools]


async def test_a_batch_is_taken_apart_where_its_revision_has_batches(clock: FakeClock) -> None:
    batch = [
        {"jsonrpc": "2.0", "id": "a", "method": "ping"},
        {"jsonrpc": "2.0", "method": "notifications/unknown"},
        {"jsonrpc": "2.0", "id": "b", "method": "tools/call", "params": execute("echo", args={"text": "hi"})},
        {"jsonrpc": "2.0", "id": "c", "method": "initialize", "params": {}},
        7,
    ]
    async with stdio({"demo": server()}, clock) as pipe:
        await pipe.initialize("2025-03-26")
        await pipe.write(json.dumps(batch).encode() + b"\n")
        assert (await pipe.until("a"))["result"] == {}
        assert (await pipe.until("b"))["result"]["content"][0]["text"] == "hi"
        assert [(await pipe.until(bad))["error"]["code"] for bad in ("c", None)] == [-32600] * 2


async def test_a_batch_is_refused_where_its_revision_has_none(clock: FakeClock) -> None:
    async with stdio({"demo": server()}, clock) as pipe:
        await pipe.initialize()
        await pipe.write(b'[{"jsonrpc": "2.0", "id": "a", "method": "ping"}]\n')
        assert (await pipe.until(None))["error"]["code"] == -32600
        assert pipe.others == []
