"""Who may do what on a real hub: credentials, names, principals, and what is never shown to anybody."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from tests.process.hub_process import (
    EMCEEPEE,
    INITIALIZE,
    HttpClient,
    Program,
    demo_serving,
    error_code,
    odd_server,
    own_json,
    proxy_task,
    serving,
)

LIMIT_S = 180

ALICE, BOB, WRONG = "alice-token-4f1c", "bob-token-9b2e", "wrong-token-77aa"
"""Tokens."""

SECRETS = {
    "header": "header-secret-1",
    "env": "env-secret-2",
    "query": "query-secret-3",
    "user": "user-secret-4",
    "added": "added-secret-5",
    "token": ALICE,
    "other token": BOB,
    "wrong token": WRONG,
}

ACCEPT = "application/json, text/event-stream"
OPEN = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE}

pytestmark = pytest.mark.anyio

JsonObject = dict[str, Any]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Program]]:
    """A hub for two users, with a server that has secrets in every place that there is for one."""
    with demo_serving() as demo:
        secret_url = demo.replace("://", f"://{SECRETS['user']}:x@") + f"?key={SECRETS['query']}"
        program = odd_server("none")
        document = {
            "tokens": {"alice": ALICE, "bob": BOB},
            "mcpServers": {
                "demo": {"url": demo, "headers": {"Authorization": f"Bearer {SECRETS['header']}"}},
                "program": {**program, "env": {"KEY": SECRETS["env"]}},
                "keyed": {"url": secret_url},
            },
        }
        path = tmp_path_factory.mktemp("hub") / "emceepee.json"
        path.write_text(json.dumps(document))
        with serving("--config", str(path), "--log-level", "debug") as found:
            yield found


@pytest.fixture
def url(running: tuple[str, Program]) -> str:
    return running[0]


@pytest.fixture
async def alice(url: str) -> AsyncIterator[HttpClient]:
    with anyio.fail_after(LIMIT_S):
        async with HttpClient(url, ALICE) as client:
            yield client


@pytest.fixture
async def bob(url: str) -> AsyncIterator[HttpClient]:
    with anyio.fail_after(LIMIT_S):
        async with HttpClient(url, BOB) as client:
            yield client


def posted(url: str, message: Mapping[str, Any] = OPEN, /, **headers: str) -> httpx2.Response:
    return httpx2.post(url, json=message, headers={"accept": ACCEPT, **headers}, timeout=LIMIT_S)


def bearer(token: str) -> str:
    return f"Bearer {token}"


class ModernClient:
    """Requests of 2026-07-28, each by itself, that declare the tasks extension."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._token = token
        self._ids = count(1)

    async def request(self, method: str, params: JsonObject, name: str | None = None) -> JsonObject:
        version = "2026-07-28"
        meta = {
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
        }
        headers = {
            "accept": ACCEPT,
            "authorization": bearer(self._token),
            "mcp-protocol-version": version,
            "mcp-method": method,
            **({} if name is None else {"mcp-name": name}),
        }
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": {**params, "_meta": meta}}
        async with httpx2.AsyncClient(timeout=LIMIT_S, verify=False) as http:
            response = await http.post(self._url, json=message, headers=headers)
        if response.headers["content-type"].startswith("text/event-stream"):
            lines = [line.removeprefix("data:") for line in response.text.splitlines() if line.startswith("data:")]
            return dict(json.loads(next(line for line in reversed(lines) if line.strip())))
        return dict(response.json())

    async def call(self, tool: str, arguments: JsonObject) -> JsonObject:
        return await self.request("tools/call", {"name": tool, "arguments": arguments}, tool)


# Credentials


@pytest.mark.parametrize(
    ("authorization", "challenge"),
    [
        (None, 'Bearer realm="emceepee"'),
        (bearer(WRONG), 'Bearer realm="emceepee", error="invalid_token"'),
        (bearer(ALICE[:-1]), 'Bearer realm="emceepee", error="invalid_token"'),
        (bearer(ALICE + "x"), 'Bearer realm="emceepee", error="invalid_token"'),
        (f"Basic {ALICE}", 'Bearer realm="emceepee"'),
        (ALICE, 'Bearer realm="emceepee"'),
        ("Bearer", 'Bearer realm="emceepee"'),
    ],
)
def test_without_a_good_token_nobody_is_served(url: str, authorization: str | None, challenge: str) -> None:
    given: dict[str, str] = {} if authorization is None else {"authorization": authorization}
    for endpoint in (url, f"{url}/all", f"{url}/server/demo", f"{url}/server/nobody"):
        refused = posted(endpoint, **given)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, challenge)
        assert refused.json()["id"] is None
        assert "Authorization: Bearer" in refused.json()["error"]["message"]
        assert "mcp-session-id" not in refused.headers
    for request in (httpx2.get, httpx2.delete):
        assert request(url, headers={"accept": ACCEPT, **given}, timeout=LIMIT_S).status_code == 401


def test_health_is_open_and_metrics_are_not(url: str) -> None:
    base = url.removesuffix("/mcp")
    assert httpx2.get(f"{base}/healthz", timeout=LIMIT_S).status_code == 200
    assert httpx2.get(f"{base}/metrics", timeout=LIMIT_S).status_code == 401
    assert httpx2.get(f"{base}/metrics", headers={"authorization": bearer(BOB)}, timeout=LIMIT_S).status_code == 200
    assert httpx2.get(f"{base}/metrics", headers={"host": "evil.example"}, timeout=LIMIT_S).status_code == 421


async def test_a_token_may_come_by_flag_by_variable_and_by_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{ALICE}\n")
    for arguments, env in (
        (["--token", ALICE], {}),
        ([], {"EMCEEPEE_TOKEN": ALICE}),
        (["--token-file", str(path)], {}),
    ):
        with anyio.fail_after(LIMIT_S), serving(*arguments, env=env) as (url, _):
            assert posted(url).status_code == 401
            async with HttpClient(url, ALICE) as client:
                assert own_json(await client.call("list_servers")) == {"servers": []}


# Names and addresses


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8080", "127.0.0.1.evil.example", "0x7f.1", ""),
        *("localhost:80@evil.example", "localhost:evil.example", "localhost:80/evil.example", "[::1]:80@evil.example"),
    ],
)
def test_a_host_that_is_not_ours_is_refused_even_with_the_token(url: str, host: str) -> None:
    assert posted(url, host=host, authorization=bearer(ALICE)).status_code == 421


@pytest.mark.parametrize(
    "origin",
    [
        *("http://evil.example", "null", "https://localhost.evil.example", "file://"),
        *("http://localhost:80@evil.example", "http://localhost:evil.example", "http://localhost:80/evil.example"),
    ],
)
def test_a_page_of_somebody_else_is_refused_even_with_the_token(url: str, origin: str) -> None:
    assert posted(url, origin=origin, authorization=bearer(ALICE)).status_code == 403


def test_the_names_of_a_proxy_are_good_once_they_are_allowed() -> None:
    with serving("--token", ALICE, "--allowed-hosts", "Hub.example, other.example:8443") as (url, _):
        for host in ("hub.example", "hub.example:443", "other.example:8443", "127.0.0.1", "localhost:1"):
            assert posted(url, host=host, authorization=bearer(ALICE)).status_code == 200
        for host in ("other.example", "sub.hub.example", "hub.example.evil.example"):
            assert posted(url, host=host, authorization=bearer(ALICE)).status_code == 421
        assert posted(url, origin="https://hub.example", authorization=bearer(ALICE)).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_bind_beyond_loopback_without_credentials_is_refused(host: str) -> None:
    command = [*EMCEEPEE, "serve", "--port", "0", "--host", host]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"emceepee: --host: {host} can be reached by others")


def test_a_bind_beyond_loopback_with_a_token_answers_to_the_machines_names() -> None:
    with serving("--host", "0.0.0.0", "--token", ALICE) as (url, _):
        local = url.replace("0.0.0.0", "127.0.0.1")
        assert posted(local).status_code == 401
        for host in ("127.0.0.1", socket.gethostname().lower()):
            assert posted(local, host=host, authorization=bearer(ALICE)).status_code == 200
        assert posted(local, host="evil.example", authorization=bearer(ALICE)).status_code == 421


# Sessions, tasks, streams


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_a_session_is_not_found_with_another_credential(alice: HttpClient, method: str) -> None:
    headers = {**alice.http.headers, "authorization": bearer(BOB)}
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with httpx2.AsyncClient(verify=False, timeout=LIMIT_S) as http:
        stolen = await http.request(method, alice.url, headers=headers, json=ping if method == "POST" else None)
        unknown = await http.request(
            method, alice.url, headers={**headers, "mcp-session-id": "0" * 26}, json=ping if method == "POST" else None
        )
    assert (stolen.status_code, stolen.json()) == (404, unknown.json())
    assert (await alice.request("ping"))["result"] == {}


def test_a_session_that_came_back_after_a_restart_answers_to_the_token_that_made_it(tmp_path: Path) -> None:
    data = ["--data", str(tmp_path)]
    with serving("--token", ALICE, *data) as (url, _):
        opened = posted(url, authorization=bearer(ALICE)).headers["mcp-session-id"]
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    for token, status in ((BOB, 404), (ALICE, 200)):
        with serving("--token", token, *data) as (url, _):
            again = posted(url, ping, **{"authorization": bearer(token), "mcp-session-id": opened})
            assert again.status_code == status


async def test_a_handshake_task_of_another_principal_is_not_found(alice: HttpClient, bob: HttpClient) -> None:
    task = proxy_task(await alice.execute("demo", "slow", {"seconds": 600}, timeout_ms=0))
    guess = {"task_id": task["task_id"]}
    for tool in ("get_task", "get_task_result", "cancel_task"):
        assert error_code(await bob.call(tool, guess)) == "TASK_NOT_FOUND"
    for method in ("tasks/get", "tasks/result", "tasks/cancel"):
        refused = await bob.request(method, {"taskId": task["task_id"]})
        assert refused["error"]["code"] == -32602
    assert own_json(await bob.call("list_tasks"))["tasks"] == []
    assert own_json(await alice.call("get_task", guess))["task"]["status"] == "working"


async def test_a_modern_task_of_another_principal_is_not_found(url: str) -> None:
    ours, theirs = ModernClient(url, ALICE), ModernClient(url, BOB)
    with anyio.fail_after(LIMIT_S):
        call = {"server": "demo", "tool": "slow", "args": {"seconds": 600}, "timeout_ms": 0}
        task_id = (await ours.call("execute_tool", call))["result"]["taskId"]
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            refused = await theirs.request(method, {"taskId": task_id, "inputResponses": {}}, task_id)
            unknown = await theirs.request(method, {"taskId": "0" * 26, "inputResponses": {}}, "0" * 26)
            assert refused["error"]["code"] == unknown["error"]["code"] == -32602
            assert refused["error"]["message"].replace(task_id, "") == unknown["error"]["message"].replace("0" * 26, "")
        listed = json.loads((await theirs.call("list_tasks", {}))["result"]["content"][0]["text"])
        assert listed == {"tasks": []}
        mine = (await ours.request("tasks/get", {"taskId": task_id}, task_id))["result"]
        assert mine["status"] == "working"
        await ours.request("tasks/cancel", {"taskId": task_id}, task_id)


async def test_the_workspace_of_another_principal_is_another_workspace(url: str) -> None:
    ours, theirs = ModernClient(url, ALICE), ModernClient(url, BOB)
    with anyio.fail_after(LIMIT_S):
        await ours.call("add_server", {"name": "ours", "url": "http://127.0.0.1:1/mcp", "workspace": "w"})
        seen = json.loads((await theirs.call("list_servers", {"workspace": "w"}))["result"]["content"][0]["text"])
        assert "ours" not in [server["name"] for server in seen["servers"]]
        assert seen["servers"]
        await ours.call("remove_server", {"name": "ours", "workspace": "w"})


async def test_a_replay_never_crosses_sessions(alice: HttpClient, url: str) -> None:
    """Whatever id a client gives: of its own principal's other session, of another's, or of nobody's."""
    # Long enough for the response to be a stream.
    arguments = {"server": "demo", "tool": "slow", "args": {"seconds": 1.5}}
    params = {"name": "execute_tool", "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
    async with alice.http.stream("POST", alice.url, json=message) as response:
        told = (await response.aread()).decode()
    ids = [line.removeprefix("id:").strip() for line in told.splitlines() if line.startswith("id:")]
    assert ids
    assert "slept 1.5 s" in told
    for token in (ALICE, BOB):
        async with HttpClient(url, token) as other:
            for event_id in [*ids, "1-0", "1-1", "2-0"]:
                headers = {**other.http.headers, "last-event-id": event_id}
                async with other.http.stream("GET", url, headers=headers) as stream:
                    assert stream.status_code == 200
                    heard = await first_bytes(stream)
                assert "slept" not in heard
    async with httpx2.AsyncClient(verify=False, timeout=LIMIT_S) as http:
        headers = {**alice.http.headers, "authorization": bearer(BOB), "last-event-id": ids[0]}
        assert (await http.get(url, headers=headers)).status_code == 404


async def first_bytes(stream: httpx2.Response) -> str:
    """What a stream says at once: what was replayed comes before anything else."""
    async for chunk in stream.aiter_text():
        return chunk
    return ""


# Servers


async def test_servers_belong_to_who_added_them(alice: HttpClient, bob: HttpClient, url: str) -> None:
    await alice.call("add_server", {"name": "own", "url": "http://127.0.0.1:1/mcp"})
    names = [server["name"] for server in own_json(await bob.call("list_servers"))["servers"]]
    assert names == ["demo", "program", "keyed"]
    assert error_code(await bob.call("remove_server", {"name": "own"})) == "SERVER_NOT_FOUND"
    assert posted(f"{url}/server/own", authorization=bearer(BOB)).status_code == 404
    assert error_code(await bob.call("remove_server", {"name": "demo"})) == "NOT_ALLOWED"
    own_json(await alice.call("remove_server", {"name": "own"}))


async def test_a_program_is_not_started_for_a_client_over_http(alice: HttpClient, tmp_path: Path) -> None:
    proof = tmp_path / "started"
    given = {"name": "evil", "command": "touch", "args": [str(proof)], "timeout_ms": 2000}
    assert error_code(await alice.call("add_server", given)) == "NOT_ALLOWED"
    assert not proof.exists()
    assert "evil" not in json.dumps(own_json(await alice.call("list_servers")))


# Secrets


async def test_no_secret_is_shown_or_logged(running: tuple[str, Program], alice: HttpClient) -> None:
    url, hub = running
    posted(url, authorization=bearer(WRONG))
    told: list[object] = [await alice.call("list_tools")]
    headers = {"Authorization": f"Bearer {SECRETS['added']}", "X-Key": SECRETS["added"]}
    for address in ("http://127.0.0.1:1/mcp", url, f"http://{SECRETS['added']}@127.0.0.1:1/?k={SECRETS['added']}"):
        # One that is not there, one that refuses the credentials, one that has them in its URL.
        told.append(await alice.call("add_server", {"name": "added", "url": address, "headers": headers}))
        told.append(await alice.execute("added", "x"))
        told.append(await alice.call("reconnect_server", {"name": "added"}))
    told.append(await alice.call("add_server", {"name": "bad", "url": SECRETS["added"], "headers": headers}))
    told.append(await alice.call("add_server", {"name": "bad", "url": url, "headers": SECRETS["added"]}))
    told.append(await alice.call("list_servers"))
    told.append(await alice.call("await_activity", {"timeout_ms": 0, "last_event_id": "0" * 26}))
    told.append(await alice.call("get_logs"))
    told.append(await alice.request("resources/read", {"uri": "emceepee://status"}))
    told.append(await alice.call("remove_server", {"name": "added"}))
    told.append((await alice.http.get(url.removesuffix("/mcp") + "/metrics")).text)
    told.append((await alice.http.get(url.removesuffix("/mcp") + "/healthz")).text)
    shown = json.dumps(told)
    logged = "\n".join(hub.lines)
    assert "token_refused" in logged
    assert '"demo' in shown
    assert [name for name, secret in SECRETS.items() if secret in shown] == []
    assert [name for name, secret in SECRETS.items() if secret in logged] == []


def test_a_refused_setting_does_not_quote_the_token(tmp_path: Path) -> None:
    path = tmp_path / "emceepee.toml"
    path.write_text(f'tokens.alice = "{ALICE}"\ntokens.bob = "{ALICE}"\n')
    command = [*EMCEEPEE, "serve", "--port", "0", "--config", str(path), "--token", f"{BOB} {BOB}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 2
    assert [line.split(": expected")[0] for line in done.stderr.splitlines()] == [
        f"emceepee: {path}: tokens",
        "emceepee: --token",
    ]
    assert ALICE not in done.stderr
    assert BOB not in done.stderr
