"""Bad input at the front: each mistake is told apart, and the hub goes on serving whoever made it, and the others."""

import json
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import httpx2
import pytest

from tests.process.hub_process import (
    INITIALIZE,
    HttpClient,
    StdioClient,
    config_file,
    demo_serving,
    error_code,
    odd_server,
    open_questions,
    own_json,
    proxy_task,
    serving,
)

LIMIT_S = 180
PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}

pytestmark = pytest.mark.anyio

HALF = "\ud800"
"""Half of a character, which JSON can spell and UTF-8 cannot."""
NOT_JSON = [
    b"",
    b"{",
    b"hello",
    b"\xff\xfe\x00",
    b"[" * 100_000,
    b'{"jsonrpc": "2.0", "id": 1, "method": "ping"',
    b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": NaN}}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": 1e999}}',
    rb'{"jsonrpc": "2.0", "id": "\ud800", "method": "ping"}',
    json.dumps({**PING, "method": "initialize", "params": {**INITIALIZE, "capabilities": {HALF: {}}}}).encode(),
]
NOT_JSON_RPC = [
    b"null",
    b"42",
    b'"ping"',
    b"{}",
    b'{"id": 1, "method": "ping"}',
    b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}',
    b'{"jsonrpc": "2.0", "id": null, "method": "ping"}',
    b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}',
    b'{"jsonrpc": "2.0", "id": true, "method": "ping"}',
    b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}',
    b'{"jsonrpc": "2.0", "id": 1, "method": 7}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}',
    b'{"jsonrpc": "2.0", "id": 1}',
    b'{"jsonrpc": "2.0", "id": 1, "result": {}, "error": {}}',
    b"[]",
    b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"jsonrpc": "2.0", "id": 2, "method": "ping"}]',
]


UNWRITABLE = [rb'"\ud800"', b"1e999", b"NaN", b"-Infinity"]
"""What JSON can spell, or Python reads, and nobody can be passed."""
ABOUT_A_REQUEST = [
    (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', 1),
    (b'{"jsonrpc": "2.0", "id": "r", "method": "ping", "params": [1]}', "r"),
    (b'{"jsonrpc": "2.0", "id": 1, "method": 7}', 1),
    (b'{"jsonrpc": "2.0", "id": 1, "result": {}, "error": {}}', None),
    (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', None),
    (rb'{"jsonrpc": "2.0", "id": "\ud800", "method": "ping"}', None),
    (b'{"jsonrpc": "2.0", "id": 1, "result": {"a": NaN}}', None),
    *[(b'{"jsonrpc": "2.0", "id": "r", "method": "ping", "params": {"a": %s}}' % bad, "r") for bad in UNWRITABLE],
]
"""Bad messages, and the id of the request that each was meant to be."""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def demo_flags(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """A demo server that is there already: a hub need not start one for every session."""
    with demo_serving() as url:
        yield config_file(tmp_path_factory.mktemp("hub"), {"demo": {"url": url}})


@pytest.fixture(scope="module")
def hub_url(demo_flags: list[str]) -> Iterator[str]:
    with serving(*demo_flags) as (url, _):
        yield url


@pytest.fixture
async def session(hub_url: str) -> AsyncIterator[HttpClient]:
    """A session that must be served before and after whatever the test does."""
    with anyio.fail_after(LIMIT_S):
        async with HttpClient(hub_url) as client:
            yield client
            assert (await client.request("ping"))["result"] == {}


@pytest.fixture(scope="module")
async def pipes(demo_flags: list[str]) -> AsyncIterator[StdioClient]:
    """One session over stdio for the module."""
    async with StdioClient(*demo_flags) as client:
        yield client


@pytest.fixture(params=["http", "stdio"])
async def client(
    request: pytest.FixtureRequest, session: HttpClient, pipes: StdioClient
) -> AsyncIterator[HttpClient | StdioClient]:
    """A session over each front; afterwards it must still reach a server."""
    front = session if request.param == "http" else pipes
    with anyio.fail_after(LIMIT_S):
        yield front
        result = await front.execute("demo", "echo", {"text": "still here"})
        assert result["content"][0] == {"type": "text", "text": "still here"}


async def post(client: HttpClient, body: bytes, **headers: str) -> httpx2.Response:
    return await client.http.post(
        client.url, content=body, headers={"content-type": "application/json", **named(headers)}
    )


def named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def told(response: httpx2.Response) -> tuple[int, int]:
    """The HTTP status, and the JSON-RPC error code of the body."""
    return response.status_code, int(response.json()["error"]["code"])


# Messages over HTTP


async def test_half_a_character_inside_a_string_of_json_is_refused(client: HttpClient | StdioClient) -> None:
    args = json.dumps({"text": HALF})
    refused = await client.call("execute_tool", {"server": "demo", "tool": "echo", "args": args, "timeout_ms": 0})
    assert error_code(refused) == "INVALID_ARGUMENTS"


@pytest.mark.parametrize("body", NOT_JSON, ids=range(len(NOT_JSON)))
async def test_a_body_that_is_no_json_is_a_parse_error(session: HttpClient, body: bytes) -> None:
    assert told(await post(session, body)) == (400, -32700)


@pytest.mark.parametrize("body", NOT_JSON_RPC, ids=range(len(NOT_JSON_RPC)))
async def test_json_that_is_no_message_is_an_invalid_request(session: HttpClient, body: bytes) -> None:
    assert told(await post(session, body)) == (400, -32600)


@pytest.mark.parametrize(("body", "request_id"), ABOUT_A_REQUEST, ids=range(len(ABOUT_A_REQUEST)))
async def test_whoever_made_a_request_that_is_none_hears_which(
    session: HttpClient, body: bytes, request_id: str | int | None
) -> None:
    assert (await post(session, body)).json()["id"] == request_id


async def test_an_unknown_method_is_not_found(session: HttpClient) -> None:
    response = await session.request("no/such/method")
    assert response["error"]["code"] == -32601


@pytest.mark.parametrize("params", [{}, {"name": 7}, {"name": None}, {"arguments": {}}])
async def test_a_call_without_the_name_of_a_tool_has_invalid_params(session: HttpClient, params: Any) -> None:
    response = await session.request("tools/call", params)
    assert response["error"]["code"] == -32602


@pytest.mark.parametrize("params", [{}, {"protocolVersion": 7}])
async def test_initialize_without_a_version_has_invalid_params(session: HttpClient, params: Any) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    assert told(await post(session, json.dumps(message).encode())) == (400, -32602)


async def test_a_version_that_nobody_knows_is_answered_with_one_that_we_speak(session: HttpClient) -> None:
    response = await session.request("initialize", {**INITIALIZE, "protocolVersion": "1999-01-01"})
    assert response["result"]["protocolVersion"] == "2025-11-25"


async def test_a_response_that_nobody_waits_for_is_accepted_and_dropped(session: HttpClient) -> None:
    response = await post(session, b'{"jsonrpc": "2.0", "id": 99, "result": {}}')
    assert (response.status_code, response.content) == (202, b"")


# HTTP itself


async def test_a_session_id_is_needed_and_has_to_be_known(session: HttpClient) -> None:
    accept = {"accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(headers=accept, timeout=LIMIT_S) as stranger:
        body = json.dumps(PING).encode()
        kind = {"content-type": "application/json"}
        for method in ("POST", "GET", "DELETE"):
            assert (await stranger.request(method, session.url, content=body, headers=kind)).status_code == 400
            unknown = {**kind, "mcp-session-id": "01ARZ3NDEKTSV4RRFFQ69G5FAV"}
            assert (await stranger.request(method, session.url, content=body, headers=unknown)).status_code == 404


@pytest.mark.parametrize("accept", ["text/html", "application/json", "text/event-stream", ""])
async def test_a_client_that_accepts_too_little_is_refused(session: HttpClient, accept: str) -> None:
    assert (await post(session, json.dumps(PING).encode(), accept=accept)).status_code == 406


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_a_content_type_other_than_json_is_refused(session: HttpClient, kind: str) -> None:
    response = await post(session, json.dumps(PING).encode(), **{"content-type": kind})
    assert response.status_code in (400, 415)


async def test_a_body_over_the_limit_is_refused(session: HttpClient) -> None:
    message = {**PING, "params": {"padding": "x" * (4 * 1024 * 1024)}}
    assert (await post(session, json.dumps(message).encode())).status_code == 413


async def test_a_body_over_the_limit_of_undeclared_length_is_refused(session: HttpClient) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 65536

    try:
        response = await session.http.post(session.url, content=endless(), headers={"content-type": "application/json"})
    except httpx2.TransportError:
        return  # The hub may close the connection before the client has sent it all.
    assert response.status_code == 413


async def test_a_body_just_below_the_limit_is_served(session: HttpClient) -> None:
    message = {**PING, "params": {"padding": "x" * (4 * 1024 * 1024 - 200)}}
    assert (await post(session, json.dumps(message).encode())).json()["result"] == {}


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example"])
async def test_a_foreign_host_is_misdirected(session: HttpClient, host: str) -> None:
    assert (await post(session, json.dumps(PING).encode(), host=host)).status_code == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost.evil.example"])
async def test_a_foreign_origin_is_forbidden(session: HttpClient, origin: str) -> None:
    assert (await post(session, json.dumps(PING).encode(), origin=origin)).status_code == 403


async def test_an_origin_on_this_machine_is_served(session: HttpClient) -> None:
    assert (await post(session, json.dumps(PING).encode(), origin="http://localhost:5173")).status_code == 200


@pytest.mark.parametrize("version", ["1999-01-01", "nonsense"])
async def test_an_unsupported_protocol_version_is_refused(session: HttpClient, version: str) -> None:
    response = await post(session, json.dumps(PING).encode(), mcp_protocol_version=version)
    assert told(response) == (400, -32022)
    assert "2025-11-25" in response.json()["error"]["data"]["supported"]


async def test_other_paths_and_methods_are_refused(session: HttpClient) -> None:
    assert (await session.http.post(session.url + "/more", json=PING)).status_code == 404
    refused = await session.http.put(session.url, json=PING)
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, POST, DELETE")


async def test_delete_ends_the_session(session: HttpClient) -> None:
    async with HttpClient(session.url) as other:
        assert (await other.http.delete(other.url)).status_code == 200
        assert (await other.http.post(other.url, json=PING)).status_code == 404
        assert (await other.http.get(other.url)).status_code == 404
        assert (await other.http.delete(other.url)).status_code == 404


async def test_delete_ends_the_sessions_stream_and_its_open_call(session: HttpClient) -> None:
    async with HttpClient(session.url) as other, other.listening() as stream, anyio.create_task_group() as tasks:
        tasks.start_soon(open_call_that_ends, other)
        await other.next_event("server_connected")
        await other.http.delete(other.url)
        await stream.aread()


async def open_call_that_ends(client: HttpClient) -> None:
    """A call that nothing but the end of its session ends: with an error, or as one of no session."""
    arguments = {"server": "demo", "tool": "slow", "args": {"seconds": 600}, "timeout_ms": 600_000}
    response = await client.request("tools/call", {"name": "execute_tool", "arguments": arguments})
    assert response["error"]["code"] < 0


async def test_health_is_told_without_a_session(session: HttpClient) -> None:
    async with httpx2.AsyncClient(timeout=LIMIT_S) as stranger:
        response = await stranger.get(session.url.removesuffix("/mcp") + "/healthz")
    assert (response.status_code, response.json()["status"]) == (200, "ok")


async def test_the_id_of_an_open_request_is_in_use(session: HttpClient) -> None:
    await session.execute("demo", "echo", {"text": "the events are told"})
    waiting = {"name": "execute_tool", "arguments": {"server": "demo", "tool": "slow", "args": {"seconds": 600}}}
    message = {"jsonrpc": "2.0", "id": "twice", "method": "tools/call"}
    open_call = {**message, "params": {**waiting, "_meta": {"progressToken": 1}}}
    async with session.http.stream("POST", session.url, json=open_call) as response:
        lines = response.aiter_lines()  # held, for its end would close the response
        await anext(lines)
        second = await session.http.post(session.url, json={**message, "params": waiting})
        assert told(second) == (400, -32600)


async def test_a_cancellation_of_something_that_is_no_id_is_ignored(session: HttpClient) -> None:
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": {"no": "id"}}}
    assert (await session.http.post(session.url, json=message)).status_code == 202


async def test_a_connection_that_talks_no_http_harms_nobody(session: HttpClient) -> None:
    port = int(session.url.rsplit(":", 1)[1].split("/")[0])
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as raw:
        raw.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert raw.recv(12) in (b"HTTP/1.1 400", b"")


# Messages over stdio


async def test_stray_lines_on_stdio_are_answered_with_an_error_and_nothing_breaks() -> None:
    with anyio.fail_after(LIMIT_S):
        async with StdioClient() as client:
            for line in NOT_JSON[1:]:
                await client.send_line(line)
                assert (await client.next_unasked())["error"]["code"] == -32700
            for line in NOT_JSON_RPC:
                await client.send_line(line)
                assert (await client.next_unasked())["error"]["code"] == -32600
            for line, request_id in ABOUT_A_REQUEST:
                await client.send_line(line)
                assert (await client.next_unasked())["id"] == request_id
            await client.send_line(b"")
            await client.send_line(b'{"jsonrpc": "2.0", "id": 99, "result": {}}')
            await client.send_line(b'{"jsonrpc": "2.0", "method": "notifications/unknown"}')
            assert (await client.request("ping"))["result"] == {}
            assert (await client.request("no/such/method"))["error"]["code"] == -32601
            assert client.unasked == []


async def test_a_cancellation_of_something_that_is_no_id_does_not_end_stdio() -> None:
    with anyio.fail_after(LIMIT_S):
        async with StdioClient() as client:
            params = {"requestId": ["no", "id"]}
            await client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
            assert (await client.request("ping"))["result"] == {}


async def test_requests_before_initialize_are_refused_on_stdio() -> None:
    with anyio.fail_after(LIMIT_S):
        client = StdioClient()
        await client.start()
        try:
            assert (await client.request("tools/list"))["error"]["code"] == -32600
            assert (await client.request("initialize", {}))["error"]["code"] == -32602
            assert (await client.request("ping"))["result"] == {}
            assert (await client.request("initialize", INITIALIZE))["result"]["serverInfo"]["name"] == "emceepee"
            assert (await client.request("tools/list"))["result"]["tools"]
        finally:
            await client.__aexit__()


async def test_a_line_over_the_limit_is_refused_on_stdio() -> None:
    with anyio.fail_after(LIMIT_S):
        async with StdioClient() as client:
            message = {"jsonrpc": "2.0", "id": "long", "method": "ping", "params": {"padding": "x" * (5 * 1024 * 1024)}}
            await client.send(message)
            assert (await client.next_unasked())["error"]["code"] == -32600
            while "error" in (response := await client.request("ping")):
                pass
            assert response["result"] == {}


# Arguments of tools


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("execute_tool", {"server": "nobody", "tool": "echo"}, "SERVER_NOT_FOUND"),
        ("execute_tool", {"server": "demo", "tool": "ecko"}, "TOOL_NOT_FOUND"),
        ("execute_tool", {"server": "demo"}, "INVALID_ARGUMENTS"),
        ("execute_tool", {"server": 7, "tool": ["echo"]}, "INVALID_ARGUMENTS"),
        ("execute_tool", {"server": "demo", "tool": "echo", "args": "no object"}, "INVALID_ARGUMENTS"),
        ("execute_tool", {"server": "demo", "tool": "echo", "args": [1]}, "INVALID_ARGUMENTS"),
        ("execute_tool", {"server": "demo", "tool": "echo", "timeout_ms": -1}, "INVALID_ARGUMENTS"),
        ("execute_tool", {"server": "demo", "tool": "echo", "timeout_ms": "soon"}, "INVALID_ARGUMENTS"),
        ("execute_tool", {"server": "demo", "tool": "echo", "task_ttl_ms": 0}, "INVALID_ARGUMENTS"),
        ("execute_tool", {"server": "demo", "tool": "echo", "surprise": 1}, "INVALID_ARGUMENTS"),
        ("get_task", {"task_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV"}, "TASK_NOT_FOUND"),
        ("get_task_result", {"task_id": "no task"}, "TASK_NOT_FOUND"),
        ("cancel_task", {"task_id": ""}, "TASK_NOT_FOUND"),
        ("get_task", {"task_id": None}, "INVALID_ARGUMENTS"),
        ("respond_to_elicitation", {"request_id": "no request", "action": "decline"}, "REQUEST_NOT_FOUND"),
        ("respond_to_elicitation", {"request_id": "no request", "action": "maybe"}, "INVALID_ARGUMENTS"),
        ("respond_to_sampling", {"request_id": "no request", "content": "x", "model": "m"}, "REQUEST_NOT_FOUND"),
        ("respond_to_sampling", {"request_id": "no request", "reject": "no"}, "REQUEST_NOT_FOUND"),
        ("respond_to_sampling", {"request_id": "no request"}, "INVALID_ARGUMENTS"),
        ("remove_server", {"name": "nobody"}, "SERVER_NOT_FOUND"),
        ("list_tools", {"server": "nobody"}, "SERVER_NOT_FOUND"),
        ("list_tools", {"tool": "/[/"}, "INVALID_ARGUMENTS"),
        ("list_tasks", {"status": "lost"}, "INVALID_ARGUMENTS"),
        ("await_activity", {"timeout_ms": "soon"}, "INVALID_ARGUMENTS"),
        ("add_server", {"name": "x"}, "INVALID_ARGUMENTS"),
        ("add_server", {"name": "x", "url": "ftp://127.0.0.1"}, "INVALID_ARGUMENTS"),
        ("add_server", {"name": "x", "url": "http://127.0.0.1", "command": "true"}, "INVALID_ARGUMENTS"),
        ("no_such_tool", {}, "TOOL_NOT_FOUND"),
    ],
)
async def test_wrong_arguments_are_told_with_a_code_and_what_to_do(
    session: HttpClient, tool: str, arguments: dict[str, Any], code: str
) -> None:
    assert error_code(await session.call(tool, arguments)) == code


@pytest.mark.parametrize("arguments", ["text", [1], 7])
async def test_arguments_that_are_no_object_are_invalid(session: HttpClient, arguments: Any) -> None:
    response = await session.request("tools/call", {"name": "list_servers", "arguments": arguments})
    assert error_code(response["result"]) == "INVALID_ARGUMENTS"


async def test_an_answer_that_breaks_the_schema_is_refused_and_the_question_stays_open(
    client: HttpClient | StdioClient,
) -> None:
    promoted = await client.execute("demo", "book_table")
    task_id = proxy_task(promoted)["task_id"]
    (question,) = open_questions(promoted)
    answer = {"request_id": question["request_id"], "action": "accept"}
    for content in ({"date": 7, "time": "19:30"}, {"time": "19:30"}, {}, None, "no object", [1]):
        refused = await client.call("respond_to_elicitation", {**answer, "content": content})
        assert error_code(refused) == "INVALID_ARGUMENTS"
        assert [found["request_id"] for found in open_questions(refused)] == [question["request_id"]]

    own_json(
        await client.call("respond_to_elicitation", {**answer, "content": {"date": "2030-05-17", "time": "19:30"}})
    )
    second = await client.next_question()
    own_json(await client.call("respond_to_elicitation", {"request_id": second["request_id"], "action": "decline"}))
    result = await client.call("get_task_result", {"task_id": task_id})
    assert result["content"][0]["text"].startswith("No table was booked")


async def test_a_question_is_answered_once(client: HttpClient | StdioClient) -> None:
    promoted = await client.execute("demo", "summarise", {"text": "x"})
    (question,) = open_questions(promoted, "sampling_requests")
    answer = {"request_id": question["request_id"], "content": "once", "model": "m"}
    own_json(await client.call("respond_to_sampling", answer))
    assert error_code(await client.call("respond_to_sampling", answer)) == "REQUEST_NOT_FOUND"
    reject = {"request_id": question["request_id"], "reject": "changed my mind"}
    assert error_code(await client.call("respond_to_sampling", reject)) == "REQUEST_NOT_FOUND"
    result = await client.call("get_task_result", {"task_id": proxy_task(promoted)["task_id"]})
    assert result["content"][0] == {"type": "text", "text": "once"}


async def test_an_elicitation_is_not_answered_with_a_sample(client: HttpClient | StdioClient) -> None:
    (question,) = open_questions(await client.execute("demo", "book_table"))
    answer = {"request_id": question["request_id"], "content": "x", "model": "m"}
    assert error_code(await client.call("respond_to_sampling", answer)) == "REQUEST_NOT_FOUND"
    decline = {"request_id": question["request_id"], "action": "decline"}
    own_json(await client.call("respond_to_elicitation", decline))


async def test_a_finished_task_cannot_be_cancelled(session: HttpClient) -> None:
    promoted = await session.execute("demo", "summarise", {"text": "x"})
    task = {"task_id": proxy_task(promoted)["task_id"]}
    (question,) = open_questions(promoted, "sampling_requests")
    await session.call("respond_to_sampling", {"request_id": question["request_id"], "content": "y", "model": "m"})
    await session.call("get_task_result", task)
    assert own_json(await session.call("cancel_task", task))["success"] is False
    assert own_json(await session.call("get_task", task))["task"]["status"] == "completed"


# Adding servers


async def test_a_program_is_not_started_for_a_client_over_http(session: HttpClient) -> None:
    refused = await session.call("add_server", {"name": "odd", **odd_server("none")})
    assert error_code(refused) == "NOT_ALLOWED"
    assert [found["name"] for found in own_json(await session.call("list_servers"))["servers"]] == ["demo"]


async def test_a_program_is_started_over_http_where_that_is_allowed() -> None:
    with anyio.fail_after(LIMIT_S), serving("--allow-spawn") as (url, _):
        async with HttpClient(url) as client:
            own_json(await client.call("add_server", {"name": "odd", **odd_server("none")}))
            assert (await client.execute("odd", "hello"))["content"][0]["text"] == "hello"


async def test_a_program_is_started_over_stdio() -> None:
    with anyio.fail_after(LIMIT_S):
        async with StdioClient() as client:
            own_json(await client.call("add_server", {"name": "odd", **odd_server("none")}))
            assert (await client.execute("odd", "hello"))["content"][0]["text"] == "hello"


async def test_a_server_at_a_dead_url_stays_registered_with_status_error(client: HttpClient | StdioClient) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens: until the end of the test nobody else is given the port
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/mcp?token=secret"
        entry = {"name": "dead", "url": url, "headers": {"authorization": "hidden"}}
        try:
            added = await client.call("add_server", entry)
            assert error_code(added) == "SERVER_DISCONNECTED"
            listed = await client.call("list_servers")
            (dead,) = [server for server in own_json(listed)["servers"] if server["name"] == "dead"]
            assert dead["status"] in ("error", "connecting")  # it is tried again now and then
            assert (dead["connected"], dead["url"]) == (False, url.partition("?")[0])
            assert dead["last_error"]
            assert "secret" not in json.dumps([added, listed])
            assert "hidden" not in json.dumps([added, listed])
            assert error_code(await client.execute("dead", "echo")) == "SERVER_DISCONNECTED"
        finally:
            own_json(await client.call("remove_server", {"name": "dead"}))
