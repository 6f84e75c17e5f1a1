"""Settings: what each source may say, which one wins, and how a wrong one is refused."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emceepee.cli.flags import add_flags, given_flags
from emceepee.config import (
    AccessSettings,
    Changes,
    Configuration,
    Fingerprint,
    HttpSettings,
    HubSettings,
    OAuthSettings,
    ServerConfig,
    Settings,
    Sources,
    Stillness,
    WrongSettings,
    changes,
    fingerprint,
)
from emceepee.config.settings import SERVE_ONLY, SETTING_NAMES, described
from emceepee.config.sources import DEFAULT_FILE, misspelt, variable_of
from emceepee.core.state import SessionLimits
from emceepee.core.tasks import TaskLimits
from emceepee.errors import SettingsError, exit_code
from tests.core.clockwork import EXAMPLES
from tests.requirements import requirement

SECRET = "hunter2"


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "emceepee.toml"


def configured(
    path: Path | None = None,
    text: str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str | bool] | None = None,
) -> Configuration:
    if path is not None and text is not None:
        path.write_text(text, encoding="utf-8")
    return Sources(path, environment or {}, flags or {}).read()


def refusal(path: Path | None = None, text: str | None = None, **sources: Any) -> dict[str, str]:
    """What was expected, by key."""
    with pytest.raises(WrongSettings) as refused:
        configured(path, text, **sources)
    assert exit_code(refused.value) == 2
    assert str(refused.value).splitlines() == [str(problem) for problem in refused.value.problems]
    return {problem.key: problem.expected for problem in refused.value.problems}


# The table


def test_without_any_source_the_defaults_hold() -> None:
    settings = configured().settings
    assert settings == Settings()
    assert (settings.hub, settings.http) == (HubSettings(), HttpSettings())


@requirement("T000-defaults")
def test_the_defaults_are_those_of_the_design() -> None:
    assert Settings().model_dump() == {
        "host": "127.0.0.1",
        "port": 8080,
        "allow_spawn": False,
        "token": "",
        "token_file": "",
        "tokens": {},
        "allowed_hosts": (),
        "oauth_issuer": "",
        "oauth_resource": "",
        "oauth_audience": "",
        "oauth_scopes": (),
        "oauth_introspection_url": "",
        "oauth_client_id": "",
        "oauth_client_secret": "",
        "max_body_bytes": 4 * 1024 * 1024,
        "max_sessions": 1000,
        "session_idle_ms": 30 * 60_000,
        "call_timeout_ms": 120_000,
        "task_ttl_ms": 5 * 60_000,
        "max_task_ttl_ms": 30 * 60_000,
        "task_retention_ms": 5 * 60_000,
        "max_tasks": 100,
        "question_timeout_ms": 10 * 60_000,
        "max_events": 1000,
        "max_notifications": 100,
        "max_logs": 500,
        "roots": "",
        "data": "",
        "demo": False,
        "log_level": "info",
        "log_format": "json",
    }


@requirement("T000-settings")
def test_every_setting_reaches_the_part_of_the_program_that_it_is_for() -> None:
    settings = Settings(
        host="localhost",
        port=1,
        allow_spawn=True,
        token="t",
        token_file="f",
        tokens={"alice": "a"},
        allowed_hosts=("hub.example",),
        oauth_issuer="https://issuer.example",
        oauth_resource="https://hub.example/mcp",
        oauth_audience="hub",
        oauth_scopes=("use",),
        oauth_introspection_url="https://issuer.example/introspect",
        oauth_client_id="c",
        oauth_client_secret="s",
        max_body_bytes=2000,
        max_sessions=3,
        session_idle_ms=4,
        call_timeout_ms=5,
        task_ttl_ms=6,
        max_task_ttl_ms=7,
        task_retention_ms=8,
        max_tasks=9,
        question_timeout_ms=10,
        max_events=11,
        max_notifications=12,
        max_logs=13,
    )
    oauth = OAuthSettings(
        "https://issuer.example",
        "https://hub.example/mcp",
        "hub",
        ("use",),
        "https://issuer.example/introspect",
        "c",
        "s",
    )
    assert settings.http == HttpSettings(
        host="localhost",
        port=1,
        allow_spawn=True,
        max_body_bytes=2000,
        allowed_hosts=("hub.example",),
        access=AccessSettings("t", "f", {"alice": "a"}, oauth),
    )
    assert settings.hub == HubSettings(
        limits=SessionLimits(
            tasks=TaskLimits(default_ttl_ms=6, max_ttl_ms=7, retention_ms=8),
            max_tasks=9,
            max_events=11,
            question_timeout_ms=10,
            max_notifications=12,
            max_logs=13,
        ),
        max_sessions=3,
        session_idle_ms=4,
        default_timeout_ms=5,
    )


def example(name: str) -> Any:
    """Some value of a setting that is not its default."""
    row = described(name)
    if row.choices:
        return next(choice for choice in row.choices if choice != row.default)
    if row.kind == "boolean":
        return not row.default
    if row.kind in TEXTS:
        return ("a.example", "b.example") if row.kind == "array" else {"alice": "one", "bob": "two"}
    if row.kind == "integer":
        return row.default + 1
    return "https://a.example/b" if name.endswith(("_url", "_issuer", "_resource")) else "localhost"


TEXTS = {"array": "a.example, b.example", "object": "alice=one,bob=two"}
"""How variables and flags write what is a list or a table in the file."""


@pytest.mark.parametrize("name", SETTING_NAMES)
def test_every_setting_can_be_set_by_file_variable_and_flag(toml: Path, name: str) -> None:
    value = example(name)
    text = TEXTS.get(described(name).kind, str(value))
    lines = (
        [f"{name}.{key} = {json.dumps(entry)}" for key, entry in value.items()]
        if isinstance(value, dict)
        else [f"{name} = {json.dumps(value)}"]
    )
    assert getattr(configured(toml, "\n".join(lines)).settings, name) == value
    as_json = toml.with_suffix(".json")
    assert getattr(configured(as_json, json.dumps({name: value, "mcpServers": {}})).settings, name) == value
    variable = variable_of(name)
    assert getattr(configured(environment={variable: text}).settings, name) == value
    parser = argparse.ArgumentParser()
    add_flags(parser, [name])
    flag = f"--{name.replace('_', '-')}"
    arguments = [flag] if described(name).kind == "boolean" else [flag, text]
    assert getattr(configured(flags=given_flags(parser.parse_args(arguments))).settings, name) == value


def test_the_settings_of_serve_alone_are_settings() -> None:
    assert set(SETTING_NAMES) >= SERVE_ONLY


# Which source wins


def test_a_flag_wins_over_the_environment_and_the_environment_over_the_file(toml: Path) -> None:
    toml.write_text("max_tasks = 1\nmax_events = 11\nmax_logs = 21")
    settings = configured(
        toml,
        environment={"EMCEEPEE_MAX_EVENTS": "12", "EMCEEPEE_MAX_LOGS": "22"},
        flags={"max_logs": "23"},
    ).settings
    assert (settings.max_tasks, settings.max_events, settings.max_logs) == (1, 12, 23)


def test_a_switch_that_is_on_in_the_file_can_be_switched_off(toml: Path) -> None:
    toml.write_text("allow_spawn = true")
    assert configured(toml).settings.allow_spawn is True
    assert configured(toml, environment={"EMCEEPEE_ALLOW_SPAWN": "no"}).settings.allow_spawn is False
    assert configured(toml, flags={"allow_spawn": False}).settings.allow_spawn is False


def test_a_source_may_say_the_default_again_and_is_heard(toml: Path) -> None:
    assert configured(toml, "port = 9", flags={"port": "8080"}).settings.port == 8080


def test_an_empty_variable_says_nothing(toml: Path) -> None:
    assert configured(toml, "port = 9", environment={"EMCEEPEE_PORT": ""}).settings.port == 9


def test_a_wrong_setting_is_refused_even_where_another_source_overrides_it(toml: Path) -> None:
    assert list(refusal(toml, "port = -1", flags={"port": "9"})) == [f"{toml}: port"]


# Which file


def test_the_file_is_that_of_the_flag_or_of_the_variable_or_lies_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    variable = {"EMCEEPEE_CONFIG": "variable.toml"}
    assert Sources.of(None, {}, {}).path is None
    DEFAULT_FILE.touch()
    assert Sources.of(None, {}, {}).path == DEFAULT_FILE
    assert Sources.of(None, variable, {}).path == Path("variable.toml")
    assert Sources.of("flag.json", variable, {}).path == Path("flag.json")


def test_a_file_that_was_named_has_to_be_there(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    assert refusal(missing) == {str(missing): "cannot be read: No such file or directory"}


@pytest.mark.parametrize("name", ["settings", "settings.conf"])
def test_a_file_of_any_other_name_is_what_it_looks_like(tmp_path: Path, name: str) -> None:
    entry = {"mcpServers": {"a": {"command": "a"}}}
    expected = (ServerConfig(name="a", command="a"),)
    assert configured(tmp_path / name, json.dumps(entry)).servers == expected
    assert configured(tmp_path / name, '[servers.a]\ncommand = "a"').servers == expected


# TOML


def test_servers_stand_in_tables_of_either_name_in_toml(toml: Path) -> None:
    text = """
        max_tasks = 7
        [servers.files]
        command = "npx"
        args = ["-y", "server-files"]
        env = { TOKEN = "x" }
        [servers.away]
        disabled = true
        command = "a"
        [mcpServers.web]
        url = "https://example.com/mcp"
        headers.Authorization = "Bearer x"
    """
    found = configured(toml, text)
    assert found.settings.max_tasks == 7
    assert found.servers == (
        ServerConfig(name="files", command="npx", args=("-y", "server-files"), env={"TOKEN": "x"}),
        ServerConfig(name="web", url="https://example.com/mcp", headers={"Authorization": "Bearer x"}),
    )


def test_an_empty_toml_file_sets_nothing(toml: Path) -> None:
    found = configured(toml, "")
    assert (found.settings, found.servers) == (Settings(), ())


@pytest.mark.parametrize(
    ("unknown", "meant"),
    [
        ("call_timout_ms", "call_timeout_ms"),
        ("CALL_TIMEOUT_MS", "call_timeout_ms"),
        ("max_task", "max_tasks"),
        ("server", "servers"),
        ("mcp_servers", "mcpServers"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(toml: Path, unknown: str, meant: str) -> None:
    ((key, expected),) = refusal(toml, f"{unknown} = {{}}").items()
    assert key == f"{toml}: {unknown}"
    assert expected.endswith(f"did you mean {meant}?")


def test_an_unknown_key_that_is_near_nothing_is_refused_with_all_that_are_known(toml: Path) -> None:
    ((_, expected),) = refusal(toml, "xyz = 1").items()
    assert all(name in expected for name in ("servers", *SETTING_NAMES))


def test_an_unknown_key_of_a_server_is_refused_in_toml(toml: Path) -> None:
    ((key, expected),) = refusal(toml, '[servers.a]\nurl = "http://a"\nheader = {}').items()
    assert key == f"{toml}: servers.a.header"
    assert expected.endswith("did you mean headers?")


def test_a_setting_below_a_table_is_told_where_it_belongs(toml: Path) -> None:
    ((key, expected),) = refusal(toml, '[servers.a]\nurl = "http://a"\nport = 9').items()
    assert key == f"{toml}: servers.a.port"
    assert "above the first [table]" in expected


def test_a_name_in_both_tables_is_refused(toml: Path) -> None:
    text = '[servers.a]\ncommand = "a"\n[mcpServers.a]\ncommand = "a"'
    assert list(refusal(toml, text)) == [f"{toml}: mcpServers.a"]


@pytest.mark.parametrize("text", ["servers = 3", "servers = []", "[[servers]]"])
def test_servers_that_are_no_tables_are_refused(toml: Path, text: str) -> None:
    assert list(refusal(toml, text)) == [f"{toml}: servers"]


@pytest.mark.parametrize("text", ["port =", f'token = "{SECRET}', f"[servers.{SECRET}", "a = 1\na = 2"])
def test_text_that_is_no_toml_is_refused_and_not_quoted(toml: Path, text: str) -> None:
    ((key, expected),) = refusal(toml, text).items()
    assert key == str(toml)
    assert expected.startswith("is not TOML: ")
    assert SECRET not in expected


# JSON


def test_the_json_of_another_client_is_read_as_it_is(tmp_path: Path) -> None:
    document = {
        "mcpServers": {
            "files": {"command": "npx", "args": ["-y"], "autoApprove": ["read"], "timeout": 60},
            "one": {"httpUrl": "https://one.example/mcp"},
            "two": {"serverUrl": "https://two.example/sse"},
        },
        "globalShortcut": "Ctrl+Space",
        "$schema": "https://example.com/schema.json",
    }
    assert configured(tmp_path / "client.json", json.dumps(document)).servers == (
        ServerConfig(name="files", command="npx", args=("-y",)),
        ServerConfig(name="one", url="https://one.example/mcp"),
        ServerConfig(name="two", url="https://two.example/sse"),
    )


def test_settings_may_stand_beside_the_servers_in_json_and_then_unknown_keys_are_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "ours.json"
    document = {"$schema": "x", "max_tasks": 5, "mcpServers": {"a": {"command": "a"}}}
    found = configured(path, json.dumps(document))
    assert (found.settings.max_tasks, len(found.servers)) == (5, 1)
    assert list(refusal(path, json.dumps({**document, "max_event": 20}))) == [f"{path}: max_event"]


def test_json_with_settings_alone_needs_no_servers(tmp_path: Path) -> None:
    assert configured(tmp_path / "ours.json", '{"max_tasks": 5}').settings.max_tasks == 5


def test_json_nested_beyond_reason_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    assert list(refusal(path, '{"mcpServers":' * 100_000)) == [str(path)]


# What is wrong, by its key


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", -1),
        ("port", 65_536),
        ("port", "8080"),
        ("port", 80.5),
        ("port", True),
        ("host", ""),
        ("host", 5),
        ("allow_spawn", "yes"),
        ("allow_spawn", 1),
        ("call_timeout_ms", -1),
        ("task_ttl_ms", 0),
        ("max_events", 9),
        ("max_body_bytes", 0),
        ("log_level", "loud"),
        ("log_format", ["json"]),
    ],
)
def test_a_wrong_value_in_the_file_is_refused_with_key_and_expectation(toml: Path, name: str, value: object) -> None:
    assert refusal(toml, f"{name} = {json.dumps(value)}") == {f"{toml}: {name}": described(name).expected}


def test_the_level_of_the_logs_may_be_written_in_capitals(toml: Path) -> None:
    toml.write_text('log_level = "WARNING"')
    assert Sources(toml, {}, {}).read().settings.log_level == "warning"
    assert Sources(None, {"EMCEEPEE_LOG_LEVEL": "Debug"}, {}).read().settings.log_level == "debug"
    assert Sources(None, {}, {"log_level": "INFO"}).read().settings.log_level == "info"


@pytest.mark.parametrize(
    ("name", "text"),
    [("port", "x"), ("port", "-1"), ("allow_spawn", "perhaps"), ("log_level", "loud"), ("max_logs", "9" * 5000)],
)
def test_a_wrong_text_is_refused_with_the_variable_or_the_flag_and_what_was_expected(name: str, text: str) -> None:
    expected = described(name).expected
    assert refusal(environment={variable_of(name): text}) == {variable_of(name): expected}
    assert refusal(flags={name: text}) == {f"--{name.replace('_', '-')}": expected}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("token", "two words"),
        ("token", "ümlaut"),
        ("tokens", {"alice": ""}),
        ("tokens", {"alice": "same", "bob": "same"}),
        ("tokens", {"": "one"}),
        ("tokens", ["one"]),
        ("allowed_hosts", ["https://hub.example"]),
        ("allowed_hosts", ["*"]),
        ("allowed_hosts", ["hub.example/mcp"]),
        ("oauth_issuer", "issuer.example"),
        ("oauth_issuer", "https://issuer.example/?a=b"),
        ("oauth_scopes", [1]),
    ],
)
def test_a_wrong_list_table_url_or_token_is_refused(tmp_path: Path, name: str, value: object) -> None:
    path = tmp_path / "ours.json"
    assert refusal(path, json.dumps({name: value})) == {f"{path}: {name}": described(name).expected}


def test_tokens_in_one_line_need_names() -> None:
    assert list(refusal(flags={"tokens": "one,two"})) == ["--tokens"]


def test_a_token_stands_in_one_place_only(toml: Path) -> None:
    told = refusal(toml, 'token_file = "secret.txt"', environment={"EMCEEPEE_TOKEN": SECRET})
    assert told == {f"{toml}: token_file": "expected only one of it and EMCEEPEE_TOKEN"}


def test_no_secret_is_in_the_repr_of_the_settings() -> None:
    settings = Settings(token=SECRET, tokens={"alice": SECRET}, oauth_issuer="https://a", oauth_client_secret=SECRET)
    assert SECRET not in f"{settings!r} {settings} {settings.http!r}"


def test_the_token_of_a_file_is_all_that_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f" {SECRET}\n")
    assert AccessSettings(token_file=str(path)).read_token() == SECRET
    for wrong in ("", "two words", "two\nlines", "\x00"):
        path.write_text(wrong)
        with pytest.raises(SettingsError, match="expected a token and nothing else"):
            AccessSettings(token_file=str(path)).read_token()


def test_a_token_file_that_is_not_there_is_named_as_it_was_given(toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toml.write_text('token_file = "none"')
    monkeypatch.chdir(toml.parent)
    for found, key in [
        (configured(toml), f"{toml}: token_file"),
        (configured(toml, environment={"EMCEEPEE_TOKEN_FILE": "none"}), "EMCEEPEE_TOKEN_FILE"),
        (configured(toml, flags={"token_file": "none"}), "--token-file"),
    ]:
        with pytest.raises(SettingsError) as refused:
            found.http.access.read_token()
        expected = f"{toml.parent / 'none'} cannot be read: No such file or directory"
        assert (refused.value.key, refused.value.expected) == (key, expected)


def test_roots_that_are_no_directories_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    roots = [str(tmp_path), "", str(tmp_path / "none"), "file:///none", str(tmp_path / "file")]
    missing = Settings(roots=", ".join(roots)).missing_roots
    assert missing == [str(tmp_path / "none"), str(tmp_path / "file")]


def test_what_is_expected_is_said_in_words() -> None:
    assert described("port").expected == "expected a whole number from 0 to 65535"
    assert described("allow_spawn").expected == "expected true or false"
    assert described("log_format").expected == "expected one of json, console"


def test_all_problems_of_all_sources_are_told_at_once(toml: Path) -> None:
    text = 'prot = 1\nmax_logs = 0\n[servers.a]\n[servers.b]\nurl = "ws://b"\n[servers."c\\nd"]\nurl = 1'
    problems = refusal(toml, text, environment={"EMCEEPEE_PORT": "x"}, flags={"max_tasks": "0"})
    assert sorted(problems) == sorted(
        [
            f"{toml}: prot",
            f"{toml}: max_logs",
            f"{toml}: servers.a",
            f"{toml}: servers.b",
            f"{toml}: servers.'c\\nd'",
            "EMCEEPEE_PORT",
            "--max-tasks",
        ]
    )


@pytest.mark.parametrize("name", SETTING_NAMES)
def test_no_refusal_quotes_what_was_given(toml: Path, name: str) -> None:
    planted = json.dumps({"x": [SECRET]}).replace(":", "=").replace('"x"', "x")
    told = refusal(toml, f"{name} = {planted}", environment={variable_of("port"): SECRET}, flags={"max_logs": SECRET})
    assert len(told) == 3
    assert SECRET not in str(told)


def test_a_task_ttl_above_the_highest_one_is_refused_where_it_was_set(toml: Path) -> None:
    toml.write_text("task_ttl_ms = 5000")
    expected = "expected at most max_task_ttl_ms, which is 4000"
    assert refusal(toml, flags={"max_task_ttl_ms": "4000"}) == {f"{toml}: task_ttl_ms": expected}
    told = refusal(toml, environment={"EMCEEPEE_TASK_TTL_MS": "4001"}, flags={"max_task_ttl_ms": "4000"})
    assert told == {"EMCEEPEE_TASK_TTL_MS": expected}


def test_a_highest_ttl_below_the_default_one_caps_it() -> None:
    limits = configured(flags={"max_task_ttl_ms": "4000"}).settings.hub.limits.tasks
    assert limits.ttl_ms(None) == 4000


def test_a_variable_that_is_nearly_one_of_ours_is_noticed_and_others_are_not() -> None:
    environment = {
        "EMCEEPEE_CALL_TIMEOUT": "1",
        "EMCEEPEE_CONFGI": "x",
        "EMCEEPEE_PORT": "1",
        "EMCEEPEE_REQUIRE_PEERS": "1",
        "PORT": "1",
    }
    assert misspelt(environment) == {
        "EMCEEPEE_CALL_TIMEOUT": "EMCEEPEE_CALL_TIMEOUT_MS",
        "EMCEEPEE_CONFGI": "EMCEEPEE_CONFIG",
    }
    assert configured(environment={"EMCEEPEE_CALL_TIMEOUT": "x"}).settings == Settings()


# What changed


def server(name: str, command: str = "a") -> ServerConfig:
    return ServerConfig(name=name, command=command)


def test_changes_are_what_came_what_differs_and_what_went() -> None:
    before = [server("same"), server("old"), server("other", "x")]
    after = [server("other", "y"), server("new"), server("same")]
    assert changes(before, after) == Changes(
        added=(server("new"),), updated=((server("other", "x"), server("other", "y")),), removed=(server("old"),)
    )


def test_an_entry_that_spells_out_a_default_is_the_same_server() -> None:
    spelled = ServerConfig.model_validate({"name": "a", "command": "a", "type": "auto", "args": []})
    assert changes([server("a")], [spelled]) == Changes()


SERVERS = st.dictionaries(st.sampled_from("abcde"), st.sampled_from(["x", "y"])).map(
    lambda found: [server(name, command) for name, command in found.items()]
)


@EXAMPLES
@given(before=SERVERS, after=SERVERS)
def test_applying_the_changes_leads_from_one_to_the_other(
    before: list[ServerConfig], after: list[ServerConfig]
) -> None:
    news = changes(before, after)
    result = {each.name: each for each in before}
    for gone in news.removed:
        assert result.pop(gone.name) == gone
    for was, now in news.updated:
        assert (result[now.name], was == now) == (was, False)
        result[now.name] = now
    for new in news.added:
        assert new.name not in result
        result[new.name] = new
    assert result == {each.name: each for each in after}


# When to read again


def looks(number: int) -> Fingerprint:
    return Fingerprint(number, number, number, number)


def test_a_file_is_read_again_once_it_has_changed_and_stands_still() -> None:
    file = Stillness(looks(1))
    seen = [looks(1), looks(2), looks(3), looks(3), looks(3), None, None, None, looks(3), looks(3), looks(3)]
    assert [file.is_worth_reading(each) for each in seen] == [
        False,  # as it was
        False,  # being written
        False,  # still being written
        True,
        False,  # read already
        False,  # gone, perhaps to be replaced
        True,  # gone
        False,
        False,  # back
        True,
        False,
    ]


def test_a_fingerprint_differs_after_a_write_and_after_a_replacement(toml: Path) -> None:
    assert fingerprint(toml) is None
    seen = set()
    toml.write_text("a")
    seen.add(fingerprint(toml))
    toml.write_text("bc")
    seen.add(fingerprint(toml))
    other = toml.with_name("other")
    other.write_text("de")
    other.replace(toml)
    seen.add(fingerprint(toml))
    assert len(seen) == 3
    assert fingerprint(toml) == fingerprint(toml)
