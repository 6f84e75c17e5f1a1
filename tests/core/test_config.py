"""Server configurations as clients write them, and settings that are wrong."""

from __future__ import annotations

import json
from pathlib import Path
from traceback import format_exception
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from emceepee.config import OAuthConfig, ServerConfig, load_servers, problems_of
from emceepee.config.file import read_file
from emceepee.config.problems import printable
from emceepee.errors import SettingsError, exit_code
from tests.core.clockwork import EXAMPLES

SECRET = "hunter2"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "servers.json"


def load(path: Path, document: object) -> list[ServerConfig]:
    path.write_text(json.dumps(document), encoding="utf-8")
    return load_servers(path)


def load_one(path: Path, entry: object) -> ServerConfig:
    (config,) = load(path, {"mcpServers": {"demo": entry}})
    return config


def refusal(path: Path, document: object) -> SettingsError:
    with pytest.raises(SettingsError) as refused:
        load(path, document)
    return refused.value


# What clients write


def test_a_program_is_read_with_its_args_environment_and_folder(path: Path) -> None:
    entry = {"command": "npx", "args": ["-y", "server"], "env": {"TOKEN": SECRET}, "cwd": "/srv"}
    config = load_one(path, entry)
    assert config == ServerConfig(
        name="demo", command="npx", args=("-y", "server"), env={"TOKEN": SECRET}, cwd="/srv", transport="auto"
    )
    assert config.is_program


def test_a_url_is_read_with_its_headers(path: Path) -> None:
    entry = {"url": "https://example.com/mcp", "headers": {"Authorization": f"Bearer {SECRET}"}}
    config = load_one(path, entry)
    assert config == ServerConfig(
        name="demo", url="https://example.com/mcp", headers={"Authorization": f"Bearer {SECRET}"}
    )
    assert not config.is_program


@pytest.mark.parametrize("key", ["type", "transport"])
@pytest.mark.parametrize(
    ("word", "transport"),
    [
        ("http", "http"),
        ("streamable-http", "http"),
        ("streamable_http", "http"),
        ("streamableHttp", "http"),
        ("Streamable-HTTP", "http"),
        ("sse", "sse"),
        ("SSE", "sse"),
        ("auto", "auto"),
    ],
)
def test_a_transport_is_known_by_the_words_that_clients_use(path: Path, key: str, word: str, transport: str) -> None:
    assert load_one(path, {"url": "http://127.0.0.1:1/mcp", key: word}).transport == transport


@pytest.mark.parametrize("key", ["url", "httpUrl", "serverUrl"])
def test_a_url_is_known_by_the_words_that_clients_use(path: Path, key: str) -> None:
    assert load_one(path, {key: "http://127.0.0.1:1/mcp"}) == ServerConfig(name="demo", url="http://127.0.0.1:1/mcp")


def test_stdio_is_the_transport_of_a_program(path: Path) -> None:
    assert load_one(path, {"type": "stdio", "command": "server"}).transport == "stdio"


def test_the_servers_come_in_the_order_of_the_file(path: Path) -> None:
    entries = {name: {"command": name} for name in ("zeta", "alpha", "mid.dle", "0_-9")}
    assert [config.name for config in load(path, {"mcpServers": entries})] == list(entries)


def test_disabled_servers_are_left_out_even_if_wrong(path: Path) -> None:
    entries = {
        "off": {"command": "a", "disabled": True},
        "on": {"command": "b", "disabled": False},
        "broken": {"disabled": True},
    }
    assert load(path, {"mcpServers": entries}) == [ServerConfig(name="on", command="b")]


def test_keys_that_only_other_clients_know_are_kept_out(path: Path) -> None:
    entry = {"command": "a", "autoApprove": ["x"], "alwaysAllow": [], "timeout": 60, "name": "another", "icon": SECRET}
    config = load_one(path, entry)
    assert config == ServerConfig(name="demo", command="a")
    assert set(config.model_dump()) == set(ServerConfig.model_fields)


def test_a_key_that_looks_like_a_slip_is_named_with_the_one_that_was_meant(path: Path) -> None:
    entries = {
        "demo": {"command": "a", "arg": ["x"], "Env": {"KEY": SECRET}, "autoApprove": [], "timeout": 5, "mine": 1},
        "off": {"commnad": "a", "disabled": True},
    }
    path.write_text(json.dumps({"mcpServers": entries}))
    found = read_file(path, {})
    assert found.servers == (ServerConfig(name="demo", command="a"),)
    assert found.ignored == {"mcpServers.demo.arg": "args", "mcpServers.demo.Env": "env"}


def test_a_server_that_is_refused_for_a_slip_is_refused_with_the_key_that_was_meant(path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load_one(path, {"commnad": "a"})
    assert caught.value.expected == (
        "expected either a url, or a command with its args; commnad is not known; did you mean command?"
    )


def test_other_settings_beside_the_servers_are_no_business_of_ours(path: Path) -> None:
    assert load(path, {"mcpServers": {"a": {"command": "a"}}, "theme": "dark"}) == [ServerConfig(name="a", command="a")]


def test_a_file_without_servers_has_none(path: Path) -> None:
    assert load(path, {"mcpServers": {}}) == []


def test_a_file_that_begins_with_a_byte_order_mark_is_read(path: Path) -> None:
    path.write_text('{"mcpServers": {"a": {"command": "a"}}}', encoding="utf-8-sig")
    assert load_servers(path) == [ServerConfig(name="a", command="a")]


AS_VS_CODE_WRITES_IT = r"""
// The servers of this workspace.
{
    "inputs": [{"type": "promptString", "id": "key", "password": true,}],
    "servers": {
        /* one // more */
        "files": {"type": "stdio", "command": "npx", "args": ["-y", "a//b", "/*c*/", "d,]", "\\",],}, // why not
        "web": {"type": "http", "url": "https://example.com/mcp" /* , */ , /* } */ },
    },
}
"""


def test_the_file_of_vs_code_is_read_with_its_comments_and_commas(path: Path) -> None:
    path.write_text(AS_VS_CODE_WRITES_IT)
    assert load_servers(path) == [
        ServerConfig(name="files", command="npx", args=("-y", "a//b", "/*c*/", "d,]", "\\"), transport="stdio"),
        ServerConfig(name="web", url="https://example.com/mcp", transport="http"),
    ]


def test_beside_mcpservers_another_clients_servers_are_no_business_of_ours(path: Path) -> None:
    document = {"mcpServers": {"a": {"command": "a"}}, "servers": [{"host": "x"}]}
    assert load(path, document) == [ServerConfig(name="a", command="a")]
    assert read_file(path, {}).ignored == {"servers": "mcpServers"}


@pytest.mark.parametrize("servers", [[], None, "x"])
def test_servers_that_are_none_are_refused_with_their_key(path: Path, servers: object) -> None:
    assert refusal(path, {"servers": servers}).key == f"{path}: servers"


@pytest.mark.parametrize("text", ['{"mcpServers": {},,}', '{"a": 1 /* }', '{"mcpServers" // {}}'])
def test_what_is_no_json_even_without_comments_is_refused(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(SettingsError) as refused:
        load_servers(path)
    assert refused.value.key == str(path)


def test_the_place_of_a_mistake_is_that_in_the_file(path: Path) -> None:
    path.write_text('{ // one\n  /* two\n */ "mcpServers": x }')
    with pytest.raises(SettingsError, match=r"line 3 column 19"):
        load_servers(path)


def test_a_configuration_cannot_be_changed() -> None:
    config = ServerConfig(name="demo", command="a")
    with pytest.raises(ValidationError):
        config.name = "other"


# What is wrong, by its key


@pytest.mark.parametrize(
    ("entry", "keys"),
    [
        ({"command": 7}, ["command"]),
        ({"command": ""}, ["command"]),
        ({"command": "a", "args": "-y"}, ["args"]),
        ({"command": "a", "args": ["-p", 8080]}, ["args.1"]),
        ({"command": "a", "env": ["A=1"]}, ["env"]),
        ({"command": "a", "env": {"PORT": 8080}}, ["env.PORT"]),
        ({"command": "a", "cwd": 1}, ["cwd"]),
        ({"url": "example.com/mcp"}, ["url"]),
        ({"url": "ws://example.com"}, ["url"]),
        ({"url": ""}, ["url"]),
        ({"url": 1}, ["url"]),
        ({"url": "http://a", "headers": {"X": 1}}, ["headers.X"]),
        ({"url": "http://a", "headers": "X: 1"}, ["headers"]),
        ({"url": "http://a", "type": "carrier-pigeon"}, ["type"]),
        ({"url": "http://a", "transport": 3}, ["transport"]),
        ({"url": "http://a", "era": "stone"}, ["era"]),
        ({"command": 1, "env": {"A": 1}, "args": [None]}, ["args.0", "command", "env.A"]),
    ],
)
def test_every_wrong_value_is_named_with_its_key(path: Path, entry: dict[str, Any], keys: list[str]) -> None:
    refused = refusal(path, {"mcpServers": {"good": {"command": "a"}, "bad": entry}})
    assert refused.key == f"{path}: mcpServers.bad"
    assert sorted(problem.partition(":")[0] for problem in refused.expected.split("; ")) == keys


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"args": ["-y"]},
        {"command": "a", "url": "http://a"},
        {"command": "a", "type": "http"},
        {"command": "a", "type": "sse"},
        {"url": "http://a", "type": "stdio"},
        [],
        "npx server",
        None,
    ],
)
def test_an_entry_that_does_not_say_how_to_reach_its_server_is_named(path: Path, entry: object) -> None:
    refused = refusal(path, {"mcpServers": {"bad": entry}})
    assert refused.key == f"{path}: mcpServers.bad"
    assert "command" in refused.expected or "url" in refused.expected


def test_all_wrong_entries_are_named_at_once(path: Path) -> None:
    refused = refusal(path, {"mcpServers": {"one": {}, "good": {"command": "a"}, "two": {"command": 7}}})
    assert f"{path}: mcpServers.one: " in str(refused)
    assert f"{path}: mcpServers.two: command: " in str(refused)
    assert "good" not in str(refused)


@pytest.mark.parametrize("name", ["", "..", "/", "搜索", "x" * 101])
def test_a_name_that_cannot_be_made_to_fit_is_refused(path: Path, name: str) -> None:
    refused = refusal(path, {"mcpServers": {name: {"command": "a"}}})
    assert refused.expected.startswith("name: ")


def test_names_of_other_clients_are_made_to_fit(path: Path) -> None:
    names = {"io.github.owner/repo": "io.github.owner-repo", " My (own) server": "My-own-server", "ün\n": "n"}
    document = {"mcpServers": {"fits": {"command": "a"}} | {name: {"command": name} for name in names}}
    path.write_text(json.dumps(document), encoding="utf-8")
    found = read_file(path, {})
    assert [config.name for config in found.servers] == ["fits", *names.values()]
    assert found.renamed == {printable(name): known_as for name, known_as in names.items()}


def test_two_names_that_become_one_are_refused(path: Path) -> None:
    refused = refusal(path, {"mcpServers": {"a-b": {"command": "a"}, "a/b": {"command": "a"}}})
    assert (refused.key, refused.expected) == (
        f"{path}: mcpServers.a/b",
        "expected another name: there is a server a-b already",
    )


@pytest.mark.parametrize("name", ["", " demo", "de mo", "de/mo", "démo", ".", "de\nmo", "x" * 101])
def test_a_name_that_does_not_fit_into_urls_and_names_of_tools_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValidationError) as refused:
        ServerConfig(name=name, command="a")
    assert all(problem.startswith("name: ") for problem in problems_of(refused.value))
    toml = tmp_path / "emceepee.toml"
    toml.write_text(f"[servers.{json.dumps(name)}]\ncommand = 'a'", encoding="utf-8")
    with pytest.raises(SettingsError, match="name: "):
        load_servers(toml)


@pytest.mark.parametrize("document", [[], {}, {"tools": {}}, {"mcpServers": []}, {"mcpServers": None}, None, 3])
def test_a_document_without_mcpservers_is_refused_with_that_key(path: Path, document: object) -> None:
    assert refusal(path, document).key == f"{path}: mcpServers"


@pytest.mark.parametrize("text", ["", "{", f'{{"env": "{SECRET}"', "\udcff"])
def test_a_file_that_is_no_json_is_named_and_not_quoted(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(SettingsError) as refused:
        load_servers(path)
    assert refused.value.key == str(path)
    assert SECRET not in str(refused.value)


def test_a_file_that_is_not_there_is_named(path: Path) -> None:
    with pytest.raises(SettingsError) as refused:
        load_servers(path)
    assert (refused.value.key, exit_code(refused.value)) == (str(path), 2)


@pytest.mark.parametrize("url", ["http://", "https:///mcp", "http://?x=1", "http://[::1", "http://a:port/"])
def test_a_url_without_a_host_to_connect_to_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        ServerConfig(name="demo", url=url)


def test_the_scheme_of_a_url_may_be_written_in_capitals() -> None:
    assert ServerConfig(name="demo", url="HTTPS://example.com/mcp").url is not None


# Secrets

WITH_SECRETS = [
    {"command": "a", "env": {"TOKEN": SECRET}},
    {"url": "https://example.com/mcp", "headers": {"Authorization": f"Bearer {SECRET}"}},
]


@pytest.mark.parametrize("entry", WITH_SECRETS)
def test_headers_and_environment_are_in_no_text_and_in_no_public_view(entry: dict[str, Any]) -> None:
    config = ServerConfig(name="demo", **entry)
    assert SECRET not in f"{config!r} {config} {config.public()}"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://example.com/mcp", "https://example.com/mcp"),
        (f"https://ada:{SECRET}@example.com:8443/mcp", "https://example.com:8443/mcp"),
        (f"https://example.com/mcp?token={SECRET}", "https://example.com/mcp"),
        (f"https://example.com/mcp?token={SECRET}#top", "https://example.com/mcp"),
        (f"https://example.com?token={SECRET}", "https://example.com"),
        (f"https://example.com/mcp#{SECRET}", "https://example.com/mcp"),
        (f"http://ada:{SECRET}@[::1]:8080/mcp", "http://[::1]:8080/mcp"),
        ("http://example.com/users/ada@home", "http://example.com/users/ada@home"),
    ],
)
def test_a_url_is_shown_without_user_info_query_and_fragment(url: str, shown: str) -> None:
    assert ServerConfig(name="demo", url=url).public() == {"name": "demo", "url": shown}


@pytest.mark.parametrize(
    "url",
    [
        f"https://example.com?token=abc/{SECRET}",
        f"https://example.com?token=abc@{SECRET}",
        f"https://example.com#abc/{SECRET}",
    ],
)
def test_a_query_right_after_the_host_is_not_shown(url: str) -> None:
    assert ServerConfig(name="demo", url=url).public() == {"name": "demo", "url": "https://example.com"}


@pytest.mark.parametrize("url", [f"https://ada:{SECRET}@example.com/mcp", f"https://example.com/mcp?token={SECRET}"])
def test_the_secrets_of_a_url_are_in_no_repr(url: str) -> None:
    assert SECRET not in repr(ServerConfig(name="demo", url=url))


def test_a_program_is_shown_with_its_arguments() -> None:
    config = ServerConfig(name="demo", command="npx", args=("-y", "server"))
    assert config.public() == {"name": "demo", "command": "npx -y server"}


WRONG_WITH_SECRETS: list[dict[str, Any]] = [
    {"env": {"TOKEN": SECRET}},
    {"command": "a", "env": {"TOKEN": [SECRET]}},
    {"command": "a", "env": SECRET},
    {"command": "a", "args": SECRET},
    {"command": "a", "url": f"https://ada:{SECRET}@example.com"},
    {"url": "http://a", "headers": {"Authorization": {"Bearer": SECRET}}},
    {"url": "http://a", "headers": f"Authorization: {SECRET}"},
    {"url": f"wss://ada:{SECRET}@example.com"},
    {"url": "http://a", "type": SECRET},
    {"command": [SECRET]},
]


@pytest.mark.parametrize("entry", WRONG_WITH_SECRETS)
def test_a_wrong_entry_is_refused_without_quoting_it(path: Path, entry: dict[str, Any]) -> None:
    refused = refusal(path, {"mcpServers": {"demo": entry}})
    assert SECRET not in f"{refused} {refused!r} {refused.key} {refused.expected}"
    assert SECRET not in "".join(format_exception(refused))


@pytest.mark.parametrize("entry", WRONG_WITH_SECRETS)
def test_the_problems_of_an_entry_do_not_quote_it(entry: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refused:
        ServerConfig.model_validate({"name": "demo", **entry})
    problems = problems_of(refused.value)
    assert problems
    assert SECRET not in " ".join(problems)


@pytest.mark.parametrize("entry", WRONG_WITH_SECRETS)
def test_the_validation_error_itself_does_not_quote_the_entry(entry: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refused:
        ServerConfig.model_validate({"name": "demo", **entry})
    assert SECRET not in f"{refused.value} {refused.value!r}"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["command", "args", "env", "cwd", "url", "headers", "type", "transport", "era", "disabled"])


@EXAMPLES
@given(entry=st.dictionaries(KEYS, JSON, max_size=5))
def test_any_entry_is_either_a_server_or_refused_with_its_key(
    tmp_path_factory: pytest.TempPathFactory, entry: dict[str, Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    refused, names = None, []
    try:
        names = [config.name for config in load(path, {"mcpServers": {"demo": entry}})]
    except SettingsError as error:
        refused = error.key
    if entry.get("disabled") is True:
        assert (refused, names) == (None, [])
    else:
        assert (refused, names) in [(None, ["demo"]), (f"{path}: mcpServers.demo", [])]


# Authorisation


def test_a_server_with_credentials_of_its_own_needs_no_others() -> None:
    url = "https://server.example/mcp"
    assert ServerConfig(name="a", url=url).may_use_oauth
    assert not ServerConfig(name="a", url=url, headers={"authorization": "Bearer x"}).may_use_oauth
    assert not ServerConfig(name="a", url="https://user:x@server.example/mcp").may_use_oauth
    assert not ServerConfig(name="a", url=url, auth="none").may_use_oauth
    assert ServerConfig(name="a", url=url, auth="oauth", headers={"Authorization": "x"}).may_use_oauth
    assert not ServerConfig(name="a", command="a", auth="oauth").may_use_oauth


@pytest.mark.parametrize(
    "entry",
    [
        {"oauth": {"client_id": "c", "client_secret": "hunter2", "scopes": ["s"], "callback_port": 7777}},
        {"oauth": {"clientId": "c", "clientSecret": "hunter2", "scopes": ["s"], "callbackPort": 7777, "more": 1}},
        {"auth": {"CLIENT_ID": "c", "CLIENT_SECRET": "hunter2", "scopes": ["s"], "callback_port": 7777}},
    ],
)
def test_what_is_arranged_with_an_issuer_is_read_as_clients_write_it(entry: dict[str, object]) -> None:
    config = ServerConfig.model_validate({"name": "a", "url": "https://server.example/mcp", **entry})
    assert config.oauth == OAuthConfig(client_id="c", client_secret="hunter2", scopes=("s",), callback_port=7777)
    assert "hunter2" not in f"{config!r} {config.public()}"
    assert ServerConfig.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    "oauth",
    [
        {"grant": "client_credentials", "client_id": "c", "client_secret": "s"},
        {"grant": "client_credentials", "issuer": "https://issuer.example"},
        {"grant": "password"},
        {"callback_port": 0},
        "yes",
    ],
)
def test_an_arrangement_that_lacks_something_is_refused(oauth: object) -> None:
    with pytest.raises(ValidationError):
        ServerConfig.model_validate({"name": "a", "url": "https://server.example/mcp", "oauth": oauth})


def test_a_program_is_looked_for_where_it_would_be_started_from(path: Path, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "server"
    program.parent.mkdir()
    program.touch(mode=0o755)
    assert load_one(path, {"url": "http://localhost/mcp"}).missing_program is None
    assert load_one(path, {"command": "server"}).missing_program == "server"
    assert load_one(path, {"command": "server", "env": {"PATH": str(program.parent)}}).missing_program is None
    assert load_one(path, {"command": "bin/server"}).missing_program == "bin/server"
    assert load_one(path, {"command": "bin/server", "cwd": str(tmp_path)}).missing_program is None


def test_a_missing_program_is_named_as_it_is_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", SECRET)
    assert load_one(path, {"command": "${PLACE}/server"}).missing_program == "${PLACE}/server"
