"""Settings on the real command line: what is refused and how, which source wins, and a file that changes."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests.process.hub_process import EMCEEPEE, HttpClient, StdioClient, own_json, proxy_task, serving, started

LIMIT_S = 180
SECRET = "hunter2"
DEMO_ENTRY = f'[servers.demo]\ncommand = {json.dumps(sys.executable)}\nargs = ["-m", "emceepee.demo"]\n'

pytestmark = pytest.mark.anyio


def run(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, list[str]]:
    """The exit status and the lines on stderr of a command that ends by itself."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("EMCEEPEE_")}
    done = subprocess.run(
        [*EMCEEPEE, *arguments],
        cwd=folder,
        env={**ours, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize("command", ["serve", "stdio"])
def test_wrong_settings_are_refused_with_a_line_for_each(tmp_path: Path, command: str) -> None:
    (tmp_path / "my.toml").write_text(
        f'call_timout_ms = 5\nmax_logs = "{SECRET}"\n[servers.a]\nurl = "ws://{SECRET}"\nheaders = "{SECRET}"\n'
    )
    status, lines = run(
        tmp_path, command, "--config", "my.toml", "--max-tasks", SECRET, environment={"EMCEEPEE_MAX_EVENTS": SECRET}
    )
    assert status == 2
    assert lines == [
        "emceepee: my.toml: max_logs: expected a whole number from 1 to 1000000",
        "emceepee: my.toml: call_timout_ms: there is no such setting; did you mean call_timeout_ms?",
        "emceepee: my.toml: servers.a: url: expected a URL that begins with http:// or https:// and a host; "
        'headers: expected an object, such as {"NAME": "text"}',
        "emceepee: EMCEEPEE_MAX_EVENTS: expected a whole number from 10 to 1000000",
        "emceepee: --max-tasks: expected a whole number from 1 to 100000",
    ]


def test_a_file_that_is_not_there_is_refused_with_its_whole_path(tmp_path: Path) -> None:
    missing = f"emceepee: {tmp_path / 'no.toml'}: cannot be read: No such file or directory"
    assert run(tmp_path, "stdio", "--config", "no.toml") == (2, [missing])
    assert run(tmp_path, "stdio", environment={"EMCEEPEE_CONFIG": "no.toml"}) == (2, [missing])


def test_the_file_in_the_folder_is_used_by_serve_without_being_named(tmp_path: Path) -> None:
    (tmp_path / "emceepee.toml").write_text("port = -1")
    refused = "emceepee: emceepee.toml: port: expected a whole number from 0 to 65535"
    assert run(tmp_path, "serve") == (2, [refused])


def test_stdio_does_not_look_into_the_folder_that_a_client_happens_to_work_in(tmp_path: Path) -> None:
    (tmp_path / "emceepee.toml").write_text("port = -1")
    status, _ = run(tmp_path, "stdio")
    assert status == 0


def test_the_settings_of_serve_are_no_flags_of_stdio(tmp_path: Path) -> None:
    status, lines = run(tmp_path, "stdio", "--port", "1")
    assert (status, lines[-1]) == (2, "emceepee stdio: error: unrecognized arguments: --port 1")


def test_a_flag_that_was_probably_meant_otherwise_is_refused_with_the_right_one(tmp_path: Path) -> None:
    status, lines = run(tmp_path, "serve", "--confg=x", "--call-timeout", "5")
    assert status == 2
    assert lines[-1] == (
        "emceepee serve: error: unrecognized arguments: --confg=x --call-timeout 5 "
        "(did you mean --config, --call-timeout-ms?)"
    )


def test_the_settings_of_the_hub_are_none_of_the_demo_servers_business(tmp_path: Path) -> None:
    environment = {"EMCEEPEE_PORT": "x", "EMCEEPEE_MAX_TASKS": "x"}
    (tmp_path / "emceepee.toml").write_text("wrong")
    assert run(tmp_path, "demo-server", environment=environment)[0] == 0
    wrong = "emceepee: --port: expected a whole number from 0 to 65535"
    assert run(tmp_path, "demo-server", "--port", "x", environment=environment) == (2, [wrong])


def test_a_variable_that_was_probably_meant_otherwise_is_logged(tmp_path: Path) -> None:
    _, lines = run(tmp_path, "stdio", environment={"EMCEEPEE_CALL_TIMEOUT": SECRET})
    (said,) = [entry for line in lines if (entry := json.loads(line))["event"] == "variable_ignored"]
    assert (said["variable"], said["did_you_mean"]) == ("EMCEEPEE_CALL_TIMEOUT", "EMCEEPEE_CALL_TIMEOUT_MS")
    assert SECRET not in "".join(lines)


def test_programs_that_are_not_there_are_logged_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "servers.json"
    path.write_text(json.dumps({"mcpServers": {"gone": {"command": "no-such-program"}, "here": {"command": "sh"}}}))
    _, lines = run(tmp_path, "stdio", "--config", str(path))
    (said,) = [entry for line in lines if (entry := json.loads(line))["event"] == "server_program_missing"]
    assert (said["server"], said["program"]) == ("gone", "no-such-program")


def test_roots_that_are_not_there_are_logged_and_a_token_file_is_refused_by_its_flag(tmp_path: Path) -> None:
    status, lines = run(tmp_path, "serve", "--port", "0", "--roots", "gone,.", "--token-file", "no.tok")
    said = json.loads(lines[0])
    assert (said["event"], said["key"], said["roots"]) == ("roots_missing", "--roots", ["gone"])
    missing = f"emceepee: --token-file: {tmp_path / 'no.tok'} cannot be read: No such file or directory"
    assert (status, lines[1:]) == (2, [missing])


async def test_a_setting_of_the_file_reaches_the_hub_and_a_flag_wins_over_it(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(f"call_timeout_ms = 0\ntask_ttl_ms = 77000\n{DEMO_ENTRY}")
    with anyio.fail_after(LIMIT_S):
        async with StdioClient("--config", str(path)) as client:
            task = proxy_task(await client.execute("demo", "echo", {"text": "hi"}))
            told = own_json(await client.call("get_task", {"task_id": task["task_id"]}))["task"]
            assert told["ttl_ms"] == 77000
        async with StdioClient("--config", str(path), "--call-timeout-ms", "50000") as client:
            result = await client.execute("demo", "echo", {"text": "hi"})
            assert result["content"][0] == {"type": "text", "text": "hi"}


async def test_the_servers_of_the_file_come_and_go_while_running(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text("")
    with anyio.fail_after(LIMIT_S), serving("--config", str(path)) as (url, hub):
        async with HttpClient(url) as client:
            assert own_json(await client.call("list_servers"))["servers"] == []
            path.write_text(DEMO_ENTRY)
            await client.next_event("server_connected")
            result = await client.execute("demo", "echo", {"text": "hi"})
            assert result["content"][0] == {"type": "text", "text": "hi"}

            path.write_text(f"{DEMO_ENTRY}[servers.wrong]\nurl = '{SECRET}'\n")
            rejected = json.loads(await anyio.to_thread.run_sync(hub.wait_for_line, "settings_rejected"))
            assert [problem.split(": ")[1] for problem in rejected["problems"]] == ["servers.wrong"]
            listed = own_json(await client.call("list_servers"))["servers"]
            assert [(server["name"], server["status"]) for server in listed] == [("demo", "connected")]

            path.write_text("# none any more")
            await client.next_event("server_removed")
            assert own_json(await client.call("list_servers"))["servers"] == []
    assert SECRET not in "".join(hub.lines)


async def test_a_client_of_stdio_hears_of_a_server_that_came_into_its_file(tmp_path: Path) -> None:
    path = tmp_path / "servers.json"
    path.write_text('{"mcpServers": {}}')
    with anyio.fail_after(LIMIT_S):
        async with StdioClient("--config", str(path)) as client:
            entry = {"command": sys.executable, "args": ["-m", "emceepee.demo"]}
            path.write_text(json.dumps({"mcpServers": {"demo": entry}}))
            await client.next_event("server_connected")


def test_a_hub_that_follows_a_file_ends_when_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text("port = 0")
    with started([*EMCEEPEE, "serve", "--config", str(path)]) as hub:
        hub.wait_for_line("emceepee is serving on")
        hub.process.terminate()
        assert hub.wait(LIMIT_S) == 0
