"""Clients that live through all of it, each with one session under one `Mcp-Session-Id`, over raw Streamable HTTP.

A client follows every call to its end: through promotion, questions, its own impatience, and the death of the hub. What
it sees goes into `records.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from random import Random
from time import monotonic
from typing import Any, TypeAlias

import anyio
import httpx2

from tests.chaos.records import CallRecord, Outcome, Records
from tests.chaos.world import HubProcess, until
from tests.process.hub_process import INITIALIZE, json_blocks

__all__ = ["ChaosClient", "HubDied", "SessionGone"]

JsonObject: TypeAlias = dict[str, Any]

GLANCE_MS = 1000
"""How long a client waits for a result before it looks again."""

TTL_MS = 20_000
"""Longer than any call takes whose server lives; a call whose server was stopped for good ends by it."""

PATIENCE_S = 0.1
"""Of a client that gives up."""

FOUND_LIMIT_S = 60
"""Until a call that its client has given up must have shown up as a task; the hub waits ten seconds for the client."""

STATUS_OF_CODE: dict[str, Outcome] = {
    "TASK_FAILED": "failed",
    "TASK_CANCELLED": "cancelled",
    "TASK_EXPIRED": "expired",
}
EXPECTED_FAILURES = {"SERVER_DISCONNECTED", "SERVER_ERROR", "SERVER_TIMED_OUT", "TOO_MANY_TASKS"}


class HubDied(Exception):
    """A request got no whole response, because the hub was killed."""


class SessionGone(Exception):
    """The hub does not know the session."""


class ChaosClient:
    """`run_worker` makes calls until `is_over`; `run_listener` waits for activity meanwhile."""

    def __init__(self, name: str, hub: HubProcess, records: Records, servers: list[str], rng: Random) -> None:
        self.name = name
        self._hub = hub
        self._records = records
        self._servers = servers
        self._rng = rng
        self._ids = count(1)
        self._tags = count(1)
        self._known_tasks: dict[str, str] = {}
        self._newest_event: str | None = None
        self.session_id = ""
        self.http = httpx2.AsyncClient(
            headers={"accept": "application/json, text/event-stream"},
            timeout=httpx2.Timeout(60.0),
            limits=httpx2.Limits(max_connections=None),
            verify=False,  # nothing here is encrypted
        )

    # The session

    async def open(self) -> None:
        while True:
            await self._hub.up.wait()
            life = self._hub.life
            message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE}
            try:
                opened = await self.http.post(self._hub.url, json=message)
            except httpx2.TransportError:
                await self._hub_back(life)
                continue
            self.session_id = opened.headers["mcp-session-id"]
            self.http.headers["mcp-session-id"] = self.session_id
            self.http.headers["mcp-protocol-version"] = "2025-11-25"
            return

    async def close(self) -> None:
        """End the session, and hear from the hub that it is over; after a kill it may have been over already."""
        try:
            while True:
                await self._hub.up.wait()
                life = self._hub.life
                try:
                    response = await self.http.delete(self._hub.url)
                except httpx2.TransportError:
                    await self._hub_back(life)
                    continue
                if response.status_code not in (200, 404):
                    self._records.wrong(f"closing a session was answered with HTTP {response.status_code}")
                return
        finally:
            await self.http.aclose()

    # What it does

    async def run_worker(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            await self._one_call()
            await anyio.sleep(self._rng.uniform(0.02, 0.2))

    async def run_listener(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            with suppress(HubDied):
                await self.call("await_activity", timeout_ms=self._rng.choice([0, 200, 1000]))

    async def drain(self) -> None:
        """Hear of everything that nobody has told us of yet."""
        while (await self.insist("await_activity", timeout_ms=0))["content"][0]["text"].find('"events":[]') < 0:
            pass

    async def look_again(self, call: CallRecord) -> None:
        """A result that was completed is still there, and still the same."""
        assert call.task_id is not None
        result = await self.insist("get_task_result", task_id=call.task_id, timeout_ms=0)
        if result.get("isError") or not result["content"][0]["text"].startswith(call.tag):
            self._records.wrong(f"the completed result of {call.tag} has gone: {result}")
        self._records.counts["completed results looked at again"] += 1

    async def _one_call(self) -> None:
        rng = self._rng
        tool = rng.choices(["echo", "work", "note", "ask", "job"], [3, 4, 2, 3, 2])[0]
        tag = f"{self.name}.{next(self._tags)}"
        args: JsonObject = {"tag": tag}
        if tool in ("work", "job"):
            args["ms"] = rng.choice([20, 150, 600, 1500])
        elif tool == "note":
            args["count"] = rng.randint(1, 4)
        server = rng.choice(self._servers)
        call = self._records.begin(CallRecord(tag, server, tool, args, self.session_id))
        options = {"timeout_ms": rng.choice([0, 50, 400, 5000]), "task_ttl_ms": TTL_MS}
        gives_up = tool == "work" and args["ms"] >= 600 and options["timeout_ms"] == 5000
        life, cursor = self._hub.life, self._newest_event
        request = {"server": server, "tool": tool, "args": args, **options}
        try:
            with anyio.CancelScope() as patience:
                result = await self.call("execute_tool", patience if gives_up else None, **request)
            if patience.cancelled_caught:
                call.was_abandoned = True
                self._records.cut_responses[self.session_id] += 1
                await self._find_abandoned(call, life)
            else:
                self._take_result(call, result)
        except HubDied:
            await self._find_lost(call)
        if call.was_abandoned or self._hub.life != life:
            await self._hear_again(cursor)
        if call.outcome is None:
            await self._follow(call)
        if call.reason == "SERVER_DISCONNECTED" and server in ("pipe", "stubborn"):
            # Killed too often in a row, and given up: somebody has to ask for it.
            await self.insist("reconnect_server", name=server)

    def _take_result(self, call: CallRecord, result: JsonObject) -> None:
        """What `execute_tool` or `get_task_result` said: an end, or a task that goes on."""
        if result.get("isError"):
            self._take_error(call, json.loads(result["content"][0]["text"])["error"])
            return
        for block in json_blocks(result):
            if "proxy_task" in block:
                call.task_id, call.was_promoted = block["proxy_task"]["task_id"], True
                self._known_tasks[block["proxy_task"]["task_id"]] = call.tag
                return
            if "questions" in block:
                return
        text = result["content"][0]["text"]
        if not text.startswith(call.tag):
            self._records.wrong(f"call {call.tag} was answered with {text!r}")
        self._records.end(call, "completed")

    def _take_error(self, call: CallRecord, error: JsonObject) -> None:
        code = str(error["code"])
        if code not in EXPECTED_FAILURES and code not in STATUS_OF_CODE:
            self._records.wrong(f"call {call.tag} failed with {error}")
        self._records.end(call, STATUS_OF_CODE.get(code, "failed"), code)
        if code not in STATUS_OF_CODE:
            self._records.counts[f"calls that failed with {code}"] += 1

    async def _follow(self, call: CallRecord) -> None:
        """Wait for a task, and answer what it asks; now and then lose interest and cancel it."""
        if self._rng.random() < 0.08:
            await self.insist("cancel_task", task_id=call.task_id)
        while call.outcome is None:
            result = await self.insist("get_task_result", task_id=call.task_id, timeout_ms=GLANCE_MS)
            self._take_result(call, result)
            for block in json_blocks(result):
                for question in block.get("questions", []):
                    # Over stdio it may be shown with another call than its own, whose tag it asks with.
                    await self._answer(self._records.calls[question["message"]], question["request_id"])

    async def _answer(self, call: CallRecord, request_id: str) -> None:
        action = self._rng.choice(["accept", "accept", "accept", "decline", "cancel"])
        content = {"content": {"name": call.tag}} if action == "accept" else {}
        try:
            result = await self.call("respond_to_elicitation", request_id=request_id, action=action, **content)
        except HubDied:
            return  # the question died with the hub, and its task says so
        if not result.get("isError"):
            call.answers.append(action)
        elif json.loads(result["content"][0]["text"])["error"]["code"] != "REQUEST_NOT_FOUND":
            self._records.wrong(f"the answer of {call.tag} was refused: {result}")

    # After a response was lost

    async def _find_lost(self, call: CallRecord) -> None:
        """The hub died before it answered: either there is a task, or nothing is left of the call."""
        task_id = await self._task_of(call)
        if task_id is None:
            self._records.end(call, "lost with the hub")
        else:
            self._records.counts["calls without a response that were found as tasks"] += 1
            call.task_id, call.was_promoted = task_id, True

    async def _find_abandoned(self, call: CallRecord, life: int) -> None:
        """We hung up: the call goes on as a task, unless the hub died meanwhile."""
        limit = monotonic() + FOUND_LIMIT_S
        task_id = await self._task_of(call)
        while task_id is None and self._hub.life == life and self._hub.up.is_set() and monotonic() < limit:
            await self.insist("await_activity", timeout_ms=100)
            task_id = await self._task_of(call)
        if task_id is not None:
            call.task_id, call.was_promoted = task_id, True
        elif self._hub.life == life and self._hub.up.is_set():
            self._records.wrong(f"call {call.tag} was given up by its client and is not a task")
            self._records.end(call, "failed", "vanished")
        else:
            await self._find_lost(call)

    async def _task_of(self, call: CallRecord) -> str | None:
        listed = await self.insist("list_tasks", include_completed=True)
        for task in json_blocks(listed)[0]["tasks"]:
            if task["task_id"] not in self._known_tasks:
                shown = json_blocks(await self.insist("get_task", task_id=task["task_id"]))[0]
                self._known_tasks[task["task_id"]] = shown["task"]["args"]["tag"]
        return next((task_id for task_id, tag in self._known_tasks.items() if tag == call.tag), None)

    async def _hear_again(self, cursor: str | None) -> None:
        """Events may have been in the response that never came: ask for all since we heard last."""
        if cursor is not None:
            await self.insist("await_activity", timeout_ms=0, last_event_id=cursor)

    # The wire

    async def insist(self, tool: str, /, **arguments: Any) -> JsonObject:
        """The result of a tool that can be asked twice, however often the hub dies meanwhile."""
        while True:
            try:
                return await self.call(tool, **arguments)
            except HubDied:
                continue

    async def call(self, tool: str, patience: anyio.CancelScope | None = None, /, **arguments: Any) -> JsonObject:
        """The result of a tool; `patience` ends soon after the request is out, for before that there is no call.

        Raises:
            HubDied: there was no whole response; the next hub is up by now.
            SessionGone: the hub does not know us.
        """
        await self._hub.up.wait()
        life = self._hub.life
        params = {"name": tool, "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": "tools/call", "params": params}

        async def on_progress(step: str, _facts: object) -> None:
            if patience is not None and step.endswith("send_request_body.complete"):
                patience.deadline = anyio.current_time() + PATIENCE_S

        try:
            response = await self.http.post(self._hub.url, json=message, extensions={"trace": on_progress})
            answer = _answer_in(response, message["id"])
        except (httpx2.TransportError, EOFError):
            self._records.cut_responses[self.session_id] += 1
            await self._hub_back(life)
            raise HubDied from None
        if response.status_code == 404:
            raise SessionGone(self.session_id)
        if "result" not in answer:
            self._records.wrong(f"{tool} was answered with {answer} (HTTP {response.status_code})")
            return {"content": [{"type": "text", "text": '{"error":{"code":"JSONRPC"}}'}], "isError": True}
        result: JsonObject = answer["result"]
        self._take_events(result, life, replay="last_event_id" in arguments)
        return result

    async def _hub_back(self, life: int) -> None:
        """The connection broke: the hub was, or is about to be, killed."""
        with anyio.move_on_after(30):
            await until(lambda: self._hub.life != life or not self._hub.up.is_set())
        if self._hub.life == life and self._hub.up.is_set():
            self._records.wrong(f"a response of {self.session_id} broke off in life {life}, and nobody killed the hub")
        await self._hub.up.wait()

    def _take_events(self, result: JsonObject, life: int, *, replay: bool) -> None:
        for block in json_blocks(result):
            if "events_since_last_response" in block:
                events = block["events_since_last_response"]
            elif "triggers" in block:
                events = [event for server in block["events"] for event in server["events"]]
            else:
                continue
            lost = block.get("events_lost", 0)
            self._records.saw_events(self.session_id, life, events, lost=lost, replay=replay)
            for event in events:
                self._newest_event = max(self._newest_event or "", event["id"])


def _answer_in(response: httpx2.Response, request_id: object) -> JsonObject:
    if not response.headers.get("content-type", "").startswith("text/event-stream"):
        return dict(response.json())
    for line in response.text.splitlines():
        if line.startswith("data:") and (data := line.removeprefix("data:").strip()):
            told: JsonObject = json.loads(data)
            if told.get("id") == request_id:
                return told
    raise EOFError("the stream ended without an answer")
