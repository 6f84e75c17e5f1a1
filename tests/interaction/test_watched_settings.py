"""The settings file while the hub runs: its servers come, change and go with it, and nothing else is touched."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from emceepee.cli.watching import LOOK_SECONDS, watching
from emceepee.config import Configuration, Settings, Sources
from emceepee.testing import FakeClock, RunningHub, ScriptedCall, ScriptedServer, running_hub

pytestmark = pytest.mark.anyio

SECRET = "hunter2"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "emceepee.toml"


def url(name: str) -> str:
    """As `running_hub` has it."""
    return f"http://{name}.invalid/mcp"


def write(path: Path, *names: str, top: str = "", **other_urls: str) -> None:
    """A file with these servers; `other_urls` are by name."""
    urls = {name: url(name) for name in names} | other_urls
    tables = [f"[servers.{name}]\nurl = {json.dumps(each)}\n" for name, each in urls.items()]
    write_text(path, top + "\n" + "".join(tables))


def write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def said(logs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What was logged of settings."""
    return [entry for entry in logs if entry["event"].startswith("settings_")]


@asynccontextmanager
async def following(
    path: Path, *configured: str, clock: FakeClock, servers: Mapping[str, ScriptedServer]
) -> AsyncIterator[RunningHub]:
    """A hub that was started with a file of the servers `configured`, and follows it."""
    write(path, *configured)
    sources = Sources(path, {}, {})
    given = {name: servers[name] for name in configured}
    with anyio.fail_after(60):
        async with (
            running_hub(given, servers=servers, clock=clock) as running,
            watching(running.hub, sources.read, sources.read()),
        ):
            yield running


async def two_looks(clock: FakeClock) -> None:
    await clock.advance(2 * LOOK_SECONDS)


def scripted(*names: str) -> dict[str, ScriptedServer]:
    return {name: ScriptedServer() for name in names}


def registered(running: RunningHub) -> dict[str, str | None]:
    return {config.name: config.url for config in running.hub.registry.all()}


async def test_a_server_that_comes_into_the_file_is_connected_by_every_session(clock: FakeClock, path: Path) -> None:
    async with following(path, "old", clock=clock, servers=scripted("old", "new")) as running:
        clients = [await running.client(), await running.client()]
        await clock.advance(0)
        kept = [client.session.links["old"] for client in clients]
        write(path, "old", "new")
        await two_looks(clock)
        for client, link in zip(clients, kept, strict=True):
            told = await client.call("list_servers")
            assert {server["name"]: server["status"] for server in told.json["servers"]} == {
                "old": "connected",
                "new": "connected",
            }
            assert client.session.links["old"] is link
            news = [(event["type"], event["server"]) for event in told.events if event["server"] == "new"]
            assert news == [("server_added", "new"), ("server_connected", "new")]


async def test_a_server_that_goes_out_of_the_file_is_removed(clock: FakeClock, path: Path) -> None:
    async with following(path, "a", "b", clock=clock, servers=scripted("a", "b")) as running:
        client = await running.client()
        write(path, "b")
        await two_looks(clock)
        assert registered(running) == {"b": url("b")}
        assert "server_removed" in (await client.call("list_servers")).event_types


async def test_an_updated_server_is_connected_anew_and_a_call_at_another_goes_on(clock: FakeClock, path: Path) -> None:
    reached, opened = anyio.Event(), anyio.Event()

    async def slow(_call: ScriptedCall) -> str:
        reached.set()
        await opened.wait()
        return "done"

    servers = {"same": ScriptedServer({"slow": slow}), "other": ScriptedServer()}
    async with following(path, "same", "other", clock=clock, servers=servers) as running:
        client = await running.client()
        task = (await client.execute("same", "slow", timeout_ms=0)).task
        await reached.wait()
        await clock.advance(0)
        write(path, "same", other="http://moved.invalid/mcp", new=url("new"))
        await two_looks(clock)
        assert registered(running)["other"] == "http://moved.invalid/mcp"
        assert client.session.links["other"].status == "connected"
        assert servers["other"].received_methods().count("initialize") == 2
        assert servers["same"].received_methods().count("initialize") == 1
        opened.set()
        assert (await client.call("get_task_result", task_id=task["task_id"])).texts[0] == "done"


async def test_a_file_that_says_the_same_in_other_words_changes_nothing(clock: FakeClock, path: Path) -> None:
    async with following(path, "a", "b", clock=clock, servers=scripted("a", "b")) as running:
        client = await running.client()
        links = dict(client.session.links)
        write(path, "b", "a", top="# better sorted")
        with capture_logs() as logs:
            await two_looks(clock)
        assert client.session.links == links
        assert said(logs) == [
            {
                "event": "settings_reloaded",
                "log_level": "info",
                "file": str(path),
                "added": [],
                "updated": [],
                "removed": [],
            }
        ]


async def test_a_key_that_looks_like_a_slip_is_warned_of_when_the_file_is_read_again(
    clock: FakeClock, tmp_path: Path
) -> None:
    path = tmp_path / "servers.json"
    write_text(path, '{"mcpServers": {}}')
    sources = Sources(path, {}, {})
    async with (
        running_hub({}, servers=scripted("a"), clock=clock) as running,
        watching(running.hub, sources.read, sources.read()),
    ):
        write_text(
            path, '{"mcpServers": {"a": {"url": "http://a.invalid/mcp", "header": {"Authorization": "secret"}}}}'
        )
        with capture_logs() as logs:
            await two_looks(clock)
    (warned,) = [entry for entry in logs if entry["event"] == "settings_key_ignored"]
    assert warned == {
        "event": "settings_key_ignored",
        "log_level": "warning",
        "file": str(path),
        "key": "mcpServers.a.header",
        "did_you_mean": "headers",
    }


async def test_a_wrong_file_is_logged_once_and_changes_nothing_until_it_is_right_again(
    clock: FakeClock, path: Path
) -> None:
    async with following(path, "a", clock=clock, servers=scripted("a", "b")) as running:
        client = await running.client()
        link = client.session.links["a"]
        write_text(path, f'prot = 1\n[servers.b]\nurl = "{SECRET}"')
        with capture_logs() as logs:
            await two_looks(clock)
            await two_looks(clock)
        (rejected,) = said(logs)
        assert (rejected["event"], rejected["log_level"]) == ("settings_rejected", "warning")
        assert [problem.split(": ")[1] for problem in rejected["problems"]] == ["prot", "servers.b"]
        assert SECRET not in str(logs)
        assert registered(running) == {"a": url("a")}
        write(path, "a", "b")
        await two_looks(clock)
        assert registered(running) == {"a": url("a"), "b": url("b")}
        assert client.session.links["a"] is link


async def test_a_file_that_is_gone_takes_no_server_along(clock: FakeClock, path: Path) -> None:
    async with following(path, "a", clock=clock, servers=scripted("a", "b")) as running:
        os.remove(path)
        with capture_logs() as logs:
            await two_looks(clock)
        assert [entry["event"] for entry in said(logs)] == ["settings_rejected"]
        assert registered(running) == {"a": url("a")}
        write(path, "b")
        await two_looks(clock)
        assert registered(running) == {"b": url("b")}


async def test_a_file_that_is_being_written_is_not_read(clock: FakeClock, path: Path) -> None:
    async with following(path, "a", clock=clock, servers=scripted("a", "b")) as running:
        client = await running.client()
        link = client.session.links["a"]
        write_text(path, "")  # Which would be a file without any server.
        await clock.advance(LOOK_SECONDS)
        write(path, "a", "b")
        await clock.advance(LOOK_SECONDS)
        assert registered(running) == {"a": url("a")}
        await clock.advance(LOOK_SECONDS)
        assert registered(running) == {"a": url("a"), "b": url("b")}
        assert client.session.links["a"] is link


async def test_what_changed_before_the_first_look_is_seen(clock: FakeClock, path: Path) -> None:
    write(path, "a")
    sources = Sources(path, {}, {})
    current = sources.read()
    write(path, "a", "b")
    servers = scripted("a", "b")
    async with (
        running_hub({"a": servers["a"]}, servers=servers, clock=clock) as running,
        watching(running.hub, sources.read, current),
    ):
        await two_looks(clock)
        assert registered(running) == {"a": url("a"), "b": url("b")}


async def test_a_server_that_a_client_added_is_not_touched(clock: FakeClock, path: Path) -> None:
    async with following(path, "a", clock=clock, servers=scripted("a", "b", "theirs")) as running:
        client = await running.client()
        await client.call("add_server", name="theirs", url="http://theirs.invalid/own")
        theirs = client.session.links["theirs"]
        write(path, "b", "theirs")
        with capture_logs() as logs:
            await two_looks(clock)
        assert registered(running) == {"b": url("b"), "theirs": "http://theirs.invalid/own"}
        assert [entry["server"] for entry in logs if entry["event"] == "settings_server_kept"] == ["theirs"]
        write(path, "b")
        await two_looks(clock)
        assert client.session.links["theirs"] is theirs
        assert registered(running) == {"b": url("b"), "theirs": "http://theirs.invalid/own"}


async def test_a_server_of_the_file_that_a_client_replaced_is_the_clients(clock: FakeClock, path: Path) -> None:
    async with following(path, "a", clock=clock, servers=scripted("a")) as running:
        client = await running.client()
        await client.call("add_server", name="a", url="http://a.invalid/own")
        write(path, a="http://a.invalid/newer")
        await two_looks(clock)
        assert registered(running) == {"a": "http://a.invalid/own"}
        write(path)
        await two_looks(clock)
        assert registered(running) == {"a": "http://a.invalid/own"}


async def test_a_server_of_the_file_that_a_client_removed_comes_back_when_its_entry_changes(
    clock: FakeClock, path: Path
) -> None:
    async with following(path, "a", "b", clock=clock, servers=scripted("a", "b")) as running:
        client = await running.client()
        await client.call("remove_server", name="a")
        write(path, "a")
        await two_looks(clock)
        assert registered(running) == {}
        write(path, a="http://a.invalid/newer")
        await two_looks(clock)
        assert registered(running) == {"a": "http://a.invalid/newer"}
        await client.call("remove_server", name="a")
        write(path)
        await two_looks(clock)
        assert registered(running) == {}


async def test_other_settings_are_those_of_the_start_and_that_is_said(clock: FakeClock, path: Path) -> None:
    async with following(path, "a", clock=clock, servers=scripted("a", "b")) as running:
        write(path, "a", "b", top="max_tasks = 7\nport = 9")
        with capture_logs() as logs:
            await two_looks(clock)
        assert registered(running) == {"a": url("a"), "b": url("b")}
        assert running.hub.settings.limits.max_tasks == 100
        (said,) = [entry for entry in logs if entry["event"] == "settings_need_restart"]
        assert said["keys"] == ["port", "max_tasks"]


async def test_one_failure_does_not_end_the_watch(clock: FakeClock, path: Path) -> None:
    write(path, "a")
    sources = Sources(path, {}, {})
    current = sources.read()
    failures = [OSError("a disk that trembles")]

    def read() -> Configuration:
        if failures:
            raise failures.pop()
        return sources.read()

    servers = scripted("a", "b")
    async with (
        running_hub({"a": servers["a"]}, servers=servers, clock=clock) as running,
        watching(running.hub, read, current),
    ):
        write(path, "a", "b")
        with capture_logs() as logs:
            await two_looks(clock)
        assert [entry["event"] for entry in said(logs)] == ["settings_watch_failed"]
        write(path, "b")
        await two_looks(clock)
        assert registered(running) == {"b": url("b")}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
async def test_a_pipe_is_read_once_and_not_followed(clock: FakeClock, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reads = 0

    def read() -> Configuration:
        nonlocal reads
        reads += 1
        return Configuration(Settings(), path=pipe)

    async with (
        running_hub({}, clock=clock) as running,
        watching(running.hub, read, Configuration(Settings(), path=pipe)),
    ):
        await two_looks(clock)
    assert reads == 0, "a second reader of the pipe would wait for ever"


async def test_a_name_that_does_not_fit_is_said_with_what_the_server_is_called(
    clock: FakeClock, tmp_path: Path
) -> None:
    path = tmp_path / "mcp.json"
    servers = {"owner-repo": ScriptedServer()}
    sources = Sources(path, {}, {})
    with anyio.fail_after(30):
        async with running_hub({}, servers=servers, clock=clock) as running:
            write_text(path, '{"servers": {}}')
            async with watching(running.hub, sources.read, sources.read()):
                write_text(path, json.dumps({"servers": {"owner/repo": {"url": url("owner-repo")}}}))
                with capture_logs() as logs:
                    await two_looks(clock)
                assert [config.name for config in running.hub.registry.all()] == ["owner-repo"]
    (renamed,) = [entry for entry in said(logs) if entry["event"] == "settings_server_renamed"]
    assert (renamed["server"], renamed["known_as"]) == ("owner/repo", "owner-repo")
