"""Servers that want OAuth: a hub in front of another hub, which lets in whom a real authorization server knows."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest

from emceepee.client import Http, OAuthOptions, ServerAuth, TokenFile, connect
from emceepee.errors import ConnectFailed
from emceepee.testing import FakeClock
from tests.auth.authorization_server import (
    MACHINE,
    MACHINE_SECRET,
    AuthorizationServer,
    running_authorization_server,
)
from tests.process.hub_process import EMCEEPEE, HttpClient, Program, error_code, own_json, serving, started

pytestmark = pytest.mark.anyio

LIMIT_S = 180


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[AuthorizationServer, str]]:
    """The authorization server, and a protected server: a hub with the demo server behind it."""
    with running_authorization_server() as issuer:
        # To the letter as it calls itself, which clients insist on.
        flags = ["--oauth-issuer", f"{issuer.url}/", "--oauth-introspection-url", f"{issuer.url}/introspect"]
        with serving(*flags, "--demo") as (url, _):
            yield issuer, url


@pytest.fixture
def issuer(place: tuple[AuthorizationServer, str]) -> AuthorizationServer:
    place[0].lifetime = 3600
    place[0].refuses_refreshing = False
    place[0].refreshes = 0
    return place[0]


@pytest.fixture
def url(place: tuple[AuthorizationServer, str]) -> str:
    return place[1]


@pytest.fixture
def config(tmp_path: Path, url: str) -> list[str]:
    return settings(tmp_path, {"url": url})


def settings(folder: Path, entry: dict[str, Any]) -> list[str]:
    path = folder / "servers.json"
    path.write_text(json.dumps({"mcpServers": {"guarded": entry}}))
    return ["--config", str(path), "--data", str(folder / "data")]


@contextmanager
def logging_in(config: list[str], *arguments: str) -> Iterator[tuple[str, Program]]:
    """`emceepee login`, as far as the page that the user has to open."""
    with started([*EMCEEPEE, "login", "guarded", "--no-browser", *config, *arguments]) as program:
        yield program.wait_for_line("/authorize?").strip(), program


def log_in(config: list[str], *arguments: str) -> Program:
    with logging_in(config, *arguments) as (page, program):
        answer = httpx2.get(page, follow_redirects=True, timeout=LIMIT_S)
        assert "You can close this page" in answer.text
        assert program.wait(LIMIT_S) == 0, program.lines
        return program


def token_file(config: list[str]) -> Path:
    (path,) = (Path(config[-1]) / "oauth").glob("*.json")
    return path


async def echoed(client: HttpClient) -> str:
    result = await client.execute("guarded", "execute_tool", {"server": "demo", "tool": "echo", "args": {"text": "hi"}})
    return str(result["content"][0]["text"])


# Over processes


async def test_a_server_that_wants_authorisation_says_so_until_the_user_has_logged_in(
    config: list[str], issuer: AuthorizationServer
) -> None:
    with anyio.fail_after(LIMIT_S), serving(*config) as (hub_url, hub):
        async with HttpClient(hub_url) as client:
            refused = await client.call("list_tools")
            (entry,) = own_json(await client.call("list_servers"))["servers"]
            assert entry["status"] in ("error", "connecting")  # it is tried again now and then
            assert entry["last_error"].startswith("it needs authorisation: run `emceepee login guarded`")
            assert "emceepee login guarded" in json.dumps(refused)
            assert error_code(await client.execute("guarded", "list_servers")) == "SERVER_DISCONNECTED"

            login = await anyio.to_thread.run_sync(log_in, config)
            assert login.lines[-1] == "emceepee may use guarded now (emceepee)."
            # The hub that runs takes it up.
            assert await echoed(client) == "hi"
            shown = json.dumps([await client.call("list_servers"), await client.call("get_logs")])
    said = "\n".join([*hub.lines, *login.lines, shown])
    assert issuer.given
    assert [secret for secret in issuer.given if secret in said] == []


def test_what_is_kept_can_be_read_by_its_user_only(config: list[str]) -> None:
    log_in(config)
    path = token_file(config)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def let_access_token_expire(config: list[str]) -> dict[str, Any]:
    """Returns what was kept before."""
    path = token_file(config)
    kept: dict[str, Any] = json.loads(path.read_text())
    path.write_text(json.dumps({**kept, "expires_at": time.time() - 1}))
    return kept


async def test_an_expired_token_is_refreshed_once_for_all_links(config: list[str], issuer: AuthorizationServer) -> None:
    await anyio.to_thread.run_sync(log_in, config)
    path = token_file(config)
    kept = let_access_token_expire(config)
    with anyio.fail_after(LIMIT_S), serving(*config) as (hub_url, _):
        async with HttpClient(hub_url) as one, HttpClient(hub_url) as two, anyio.create_task_group() as tasks:
            for client in (one, two, one, two):
                tasks.start_soon(echoed, client)
    assert issuer.refreshes == 1
    renewed = json.loads(path.read_text())
    assert renewed["tokens"]["refresh_token"] != kept["tokens"]["refresh_token"]
    assert renewed["expires_at"] > time.time()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_an_expired_token_is_refreshed_once_for_all_processes(
    config: list[str], issuer: AuthorizationServer, url: str
) -> None:
    """Each `TokenFile` stands for a process: a lock on a file is one of the file as it was opened, and not of us."""
    await anyio.to_thread.run_sync(log_in, config)
    let_access_token_expire(config)
    names = list[str]()

    async def use_it() -> None:
        auth = ServerAuth("guarded", url, TokenFile(token_file(config).parent, url))
        async with connect(Http(url, auth=auth)) as server:
            names.append(server.server_info["name"])

    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(use_it)
    assert names == ["emceepee"] * 3
    assert issuer.refreshes == 1


async def test_whether_a_token_has_expired_is_a_matter_of_the_clock(
    config: list[str], issuer: AuthorizationServer, url: str, clock: FakeClock
) -> None:
    await anyio.to_thread.run_sync(log_in, config)
    auth = ServerAuth("guarded", url, TokenFile(token_file(config).parent, url), clock=clock)

    async def refreshes() -> int:
        async with connect(Http(url, auth=auth)):
            return issuer.refreshes

    with anyio.fail_after(LIMIT_S):
        # Fake time begins years after what the issuer has just given.
        assert await refreshes() == 1
        assert json.loads(token_file(config).read_text())["expires_at"] == clock.now() + issuer.lifetime
        assert await refreshes() == 1
        await clock.advance(issuer.lifetime)
        assert await refreshes() == 2


def spoil_access_token(config: list[str]) -> None:
    """To those who look at it, it is as if it were revoked."""
    path = token_file(config)
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({**kept, "tokens": {**kept["tokens"], "access_token": "not-good-any-more"}}))


async def test_a_token_that_was_revoked_is_refreshed_and_after_that_the_user_is_asked_for(
    config: list[str], issuer: AuthorizationServer
) -> None:
    await anyio.to_thread.run_sync(log_in, config)
    spoil_access_token(config)
    with anyio.fail_after(LIMIT_S), serving(*config) as (hub_url, _):
        async with HttpClient(hub_url) as client:
            assert await echoed(client) == "hi"
            assert issuer.refreshes == 1
    spoil_access_token(config)
    issuer.refuses_refreshing = True
    with anyio.fail_after(LIMIT_S), serving(*config) as (hub_url, _):
        async with HttpClient(hub_url) as client:
            assert "emceepee login guarded" in json.dumps(await client.execute("guarded", "list_servers"))
    assert "tokens" not in json.loads(token_file(config).read_text())


def test_logging_in_again_needs_no_new_registration(config: list[str], issuer: AuthorizationServer) -> None:
    log_in(config)
    registered = len(issuer.clients)
    before = json.loads(token_file(config).read_text())
    log_in(config)
    after = json.loads(token_file(config).read_text())
    assert len(issuer.clients) == registered
    assert after["client"]["client_id"] == before["client"]["client_id"]
    assert after["tokens"] != before["tokens"]


def test_only_the_redirect_that_was_waited_for_counts(config: list[str]) -> None:
    with logging_in(config) as (page, program):
        redirect = str(httpx2.URL(page).params["redirect_uri"])
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/callback", redirect)
        assert httpx2.get(redirect, params={"code": "x", "state": "made-up"}, timeout=LIMIT_S).status_code == 400
        assert httpx2.get(redirect.replace("/callback", "/other"), timeout=LIMIT_S).status_code == 404
        httpx2.get(page, follow_redirects=True, timeout=LIMIT_S)
        assert program.wait(LIMIT_S) == 0


def test_a_user_who_says_no_is_heard(config: list[str]) -> None:
    with logging_in(config) as (page, program):
        params = httpx2.URL(page).params
        said = {"error": "access_denied", "error_description": "not today", "state": params["state"]}
        httpx2.get(params["redirect_uri"], params=said, timeout=LIMIT_S)
        assert program.wait(LIMIT_S) == 1
    assert program.lines[-1] == "emceepee: guarded: the issuer did not agree: not today"


def test_logging_out_forgets_everything(config: list[str]) -> None:
    log_in(config)
    for said in ("guarded: forgotten", "guarded: there was nothing to forget"):
        with started([*EMCEEPEE, "logout", "guarded", *config]) as program:
            assert program.wait(LIMIT_S) == 0
        assert program.lines[-1] == said
    assert list((Path(config[-1]) / "oauth").iterdir()) == []


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ("nobody", "there is no server 'nobody' in the configuration, which has guarded; or give the URL of one"),
        ("ftp://nobody", "there is no server 'ftp://nobody' in the configuration, which has guarded"),
    ],
)
def test_a_server_that_nobody_knows_cannot_be_logged_in_to(config: list[str], server: str, said: str) -> None:
    with started([*EMCEEPEE, "login", server, *config]) as program:
        assert program.wait(LIMIT_S) == 2
    assert said in program.lines[-1]


async def test_a_machine_with_credentials_of_its_own_needs_nobody(
    tmp_path: Path, url: str, issuer: AuthorizationServer
) -> None:
    oauth = {
        "grant": "client_credentials",
        "client_id": MACHINE,
        "client_secret": MACHINE_SECRET,
        "issuer": f"{issuer.url}/",
    }
    config = settings(tmp_path, {"url": url, "oauth": oauth})
    with anyio.fail_after(LIMIT_S), serving(*config) as (hub_url, hub):
        async with HttpClient(hub_url) as client:
            assert await echoed(client) == "hi"
            shown = json.dumps(await client.call("list_servers"))
    assert not [secret for secret in (MACHINE_SECRET, *issuer.given) if secret in shown + "".join(hub.lines)]
    assert not (tmp_path / "data" / "oauth").exists()


# The parts


def test_a_file_of_another_server_or_of_no_sense_is_no_grant(tmp_path: Path) -> None:
    ours = TokenFile(tmp_path, "https://one.example/mcp")
    other = TokenFile(tmp_path, "https://two.example/mcp")
    assert ours.path != other.path
    tokens = {"access_token": "secret"}
    ours.path.write_text(json.dumps({"url": "https://one.example/mcp", "tokens": tokens}))
    assert ours.read().access_token == "secret"
    assert "secret" not in repr(ours.read())
    os.replace(ours.path, other.path)
    assert other.read().access_token is None
    for text in ("", "[]", "{", '{"url": "https://two.example/mcp", "tokens": 5}'):
        other.path.write_text(text)
        assert other.read().access_token is None
    assert ours.read().access_token is None


async def test_a_slow_answer_holds_back_nobody_else(tmp_path: Path, url: str) -> None:
    """The SDK's provider sends one request at a time; a call that waits must not hold back the next one."""
    auth = ServerAuth("x", "http://server.example/mcp", TokenFile(tmp_path, "http://server.example/mcp"))
    answered, release = [], anyio.Event()

    async def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/slow":
            await release.wait()
        answered.append(request.url.path)
        return httpx2.Response(200)

    async def slow(http: httpx2.AsyncClient) -> None:
        await http.get("http://server.example/slow")

    with anyio.fail_after(LIMIT_S):
        async with (
            httpx2.AsyncClient(auth=auth, transport=httpx2.MockTransport(answer)) as http,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(slow, http)
            await http.get("http://server.example/fast")
            release.set()
    assert answered == ["/fast", "/slow"]


async def test_credentials_go_to_their_issuer_only(tmp_path: Path, url: str) -> None:
    options = OAuthOptions(MACHINE, MACHINE_SECRET, grant="client_credentials", issuer="https://other.example")
    auth = ServerAuth("x", url, TokenFile(tmp_path, url), options)
    with anyio.fail_after(LIMIT_S), pytest.raises(ConnectFailed, match="authorisation failed"):
        async with connect(Http(url, auth=auth)):
            pass
