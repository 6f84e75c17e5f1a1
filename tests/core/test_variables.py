"""Variables in the servers of a settings file, as clients write them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from traceback import format_exception
from typing import Any

import pytest

from emceepee.config import Configuration, ServerConfig, Sources, WrongSettings, load_servers

SECRET = "hunter2"
ENVIRONMENT = {"TOKEN": SECRET, "EMPTY": "", "HOST": "example.com", "NESTED": "${TOKEN}"}


def read(path: Path, entry: dict[str, Any]) -> Configuration:
    path.write_text(json.dumps({"mcpServers": {"demo": entry}}), encoding="utf-8")
    return Sources(path, ENVIRONMENT, {}).read()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "servers.json"


def server(path: Path, **entry: Any) -> ServerConfig:
    (config,) = read(path, entry).servers
    return config


def refusal(path: Path, **entry: Any) -> str:
    with pytest.raises(WrongSettings) as refused:
        read(path, entry)
    (problem,) = refused.value.problems
    assert problem.key == f"{path}: mcpServers.demo"
    assert SECRET not in "".join(format_exception(refused.value))
    return problem.expected


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${TOKEN}", SECRET),
        ("${env:TOKEN}", SECRET),
        ("Bearer ${TOKEN}.", f"Bearer {SECRET}."),
        ("${TOKEN}${HOST}", f"{SECRET}example.com"),
        ("${TOKEN:-other}", SECRET),
        ("${NONE:-other}", "other"),
        ("${NONE:-}", ""),
        ("${env:NONE:-https://example.com:1/x}", "https://example.com:1/x"),
        ("${EMPTY}", ""),
        ("${EMPTY:-other}", ""),
        ("${NESTED}", "${TOKEN}"),
        ("${userHome}${/}a", f"{Path.home()}{os.sep}a"),
        ("$${TOKEN}", "${TOKEN}"),
        ("$TOKEN", "$TOKEN"),
        ("$(TOKEN) {TOKEN} ${", "$(TOKEN) {TOKEN} ${"),
    ],
)
def test_a_variable_is_what_the_environment_says(path: Path, written: str, value: str) -> None:
    assert server(path, command="a", env={"KEY": written}).env == {"KEY": value}


def test_variables_may_stand_wherever_a_server_has_texts(path: Path) -> None:
    program = server(path, command="${HOST}", args=["-k", "${TOKEN}"], env={"${HOST}": "${TOKEN}"}, cwd="/${HOST}")
    assert program.model_dump(exclude_defaults=True) == {
        "name": "demo",
        "command": "example.com",
        "args": ("-k", SECRET),
        "env": {"${HOST}": SECRET},
        "cwd": "/example.com",
    }
    remote = server(
        path,
        httpUrl="https://${HOST}/mcp",
        headers={"Authorization": "Bearer ${TOKEN}"},
        oauth={"clientId": "c", "clientSecret": "${TOKEN}", "scopes": ["${HOST}"]},
    )
    assert (remote.url, remote.headers) == ("https://example.com/mcp", {"Authorization": f"Bearer {SECRET}"})
    assert remote.oauth is not None
    assert (remote.oauth.client_secret, remote.oauth.scopes) == (SECRET, ("example.com",))


def test_variables_are_expanded_in_toml_as_well(tmp_path: Path) -> None:
    path = tmp_path / "emceepee.toml"
    path.write_text('[servers.demo]\ncommand = "a"\nargs = ["${TOKEN}"]')
    assert load_servers(path, ENVIRONMENT)[0].args == (SECRET,)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("${NONE}", "the variable NONE is not set; set it, or write ${NONE:-default}"),
        ("${env:NONE}", "the variable NONE is not set; set it, or write ${NONE:-default}"),
        ("${input:token}", "${input:…} means something to an editor only; set a variable and write ${env:NAME}"),
        ("${workspaceFolder}/x", "${workspaceFolder} means something to an editor only; write what it stands for"),
        ("${workspaceFolder:one}", "${workspaceFolder:…} means something to an editor only; write what it stands for"),
        ("${command:x.y}", "${command:…} means something to an editor only; write what it stands for"),
    ],
)
def test_a_variable_without_a_value_is_refused_with_its_key_and_what_to_do(path: Path, written: str, told: str) -> None:
    assert refusal(path, command="a", args=["-y", written]) == f"args.1: {told}"


@pytest.mark.parametrize(
    "written", ["${}", "${ TOKEN }", "${TOKEN%x}", "${hunter2:?}", "${NONE:-${TOKEN}}", "${file:/hunter2}", "${a b}"]
)
def test_what_is_like_a_variable_and_none_is_refused_and_not_quoted(path: Path, written: str) -> None:
    told = refusal(path, url="https://example.com", headers={"X": written})
    assert told.startswith("headers.X: ")


def test_all_variables_without_a_value_are_told_at_once(path: Path) -> None:
    told = refusal(path, command="${A}", args=["${B}"], env={"KEY": "${C}", "TOKEN": "${TOKEN}"})
    assert [problem.partition(": ")[0] for problem in told.split("; ") if ": " in problem] == [
        "command",
        "args.0",
        "env.KEY",
    ]


def test_a_disabled_server_needs_no_variables(path: Path) -> None:
    assert read(path, {"command": "${NONE}", "disabled": True}).servers == ()


def test_what_is_wrong_after_the_expansion_is_refused_without_the_value(path: Path) -> None:
    assert refusal(path, url="${TOKEN}").startswith("url: ")


@pytest.mark.parametrize(
    ("entry", "shown"),
    [
        (
            {"command": "npx", "args": ["mcp-remote", "--header", "Authorization: ${TOKEN}"], "cwd": "/${TOKEN}"},
            {"name": "demo", "command": "npx mcp-remote --header Authorization: ${TOKEN}"},
        ),
        ({"command": "${TOKEN}"}, {"name": "demo", "command": "${TOKEN}"}),
        (
            {"url": "https://me:x@${HOST}/${TOKEN}/mcp?key=${TOKEN}"},
            {"name": "demo", "url": "https://${HOST}/${TOKEN}/mcp"},
        ),
        ({"serverUrl": "https://example.com/${TOKEN}"}, {"name": "demo", "url": "https://example.com/${TOKEN}"}),
        ({"url": "http://[${NONE:-::1}]/"}, {"name": "demo", "url": ""}),
        (
            {"url": "https://example.com/mcp", "headers": {"X": "${TOKEN}"}},
            {"name": "demo", "url": "https://example.com/mcp"},
        ),
    ],
)
def test_a_server_is_shown_as_it_is_written_and_not_with_the_values(
    path: Path, entry: dict[str, Any], shown: dict[str, str]
) -> None:
    config = server(path, **entry)
    assert config.public() == shown
    assert SECRET not in f"{config!r} {config}"


def test_the_same_file_read_again_has_the_same_servers(path: Path) -> None:
    entry = {"command": "a", "args": ["${TOKEN}"]}
    assert server(path, **entry) == server(path, **entry)
    assert server(path, **entry) != server(path, command="a", args=["${HOST}"])
