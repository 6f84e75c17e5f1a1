"""The table of all settings.

A field's name is its key in the file; `EMCEEPEE_` and the name in capitals is its variable, `--` and the name with
hyphens its flag. Bounds, defaults and help stand here once, for all three. A source sets some of the fields, which is a
`Layer`; `merged` lays them over each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from emceepee.config.access import AccessSettings, OAuthSettings
from emceepee.config.kinds import AnyCase, HostNames, HttpUrl, Token, Tokens, Words
from emceepee.config.problems import WrongSettings, did_you_mean, printable
from emceepee.config.values import HttpSettings, HubSettings
from emceepee.core.state import SessionLimits
from emceepee.core.tasks import TaskLimits
from emceepee.errors import SettingsError

__all__ = [
    "LOGGING",
    "SERVE_ONLY",
    "SETTING_NAMES",
    "Layer",
    "LogFormat",
    "LogLevel",
    "Settings",
    "described",
    "keys_of",
    "layer",
    "merged",
]

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
LogFormat: TypeAlias = Literal["json", "console"]

MONTH_MS = 30 * 86_400_000
"""The longest time that a setting may name: more is a slip of the keyboard."""

DAY_MS = 86_400_000
"""The longest timeout of a call, here as in the tools."""

_HUB, _HTTP = HubSettings(), HttpSettings()


def _span(default: int, at_least: int, at_most: int, text: str) -> Any:
    return Field(default, ge=at_least, le=at_most, description=text)


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field(default=_HTTP.host, min_length=1, description="the address to listen on")
    port: int = _span(_HTTP.port, 0, 65_535, "the port to listen on; 0 picks a free one")
    allow_spawn: bool = Field(default=_HTTP.allow_spawn, description="let clients start programs with add_server")
    token: Token = Field(
        default="", repr=False, description="what clients have to send as Authorization: Bearer; better in a file"
    )
    token_file: str = Field(default="", description="a file with the token and nothing else")
    tokens: Tokens = Field(
        default_factory=dict, repr=False, description="a token for each of several users, NAME=TOKEN,NAME=TOKEN"
    )
    allowed_hosts: HostNames = Field(
        default=(), description="names under which clients reach the hub, say through a proxy, separated by commas"
    )
    oauth_issuer: HttpUrl = Field(default="", description="an OAuth issuer whose access tokens let clients in")
    oauth_resource: HttpUrl = Field(
        default="", description="the URL of the hub as clients know it; default: where it listens"
    )
    oauth_audience: str = Field(default="", description="whom the tokens have to be for; default: oauth_resource")
    oauth_scopes: Words = Field(default=(), description="scopes that a token needs, separated by commas")
    oauth_introspection_url: HttpUrl = Field(
        default="", description="where to ask the issuer about tokens; default: they are JWTs, and checked here"
    )
    oauth_client_id: str = Field(default="", description="who we are at oauth_introspection_url")
    oauth_client_secret: str = Field(default="", repr=False, description="our secret at oauth_introspection_url")
    max_body_bytes: int = _span(_HTTP.max_body_bytes, 1024, 1024**3, "the largest request body")
    max_sessions: int = _span(_HUB.max_sessions, 1, 1_000_000, "sessions at a time")
    session_idle_ms: int = _span(_HUB.session_idle_ms, 1, MONTH_MS, "how long a session may be idle before it ends")
    call_timeout_ms: int = _span(
        _HUB.default_timeout_ms, 0, DAY_MS, "how long a call is waited for before it becomes a task; 0: not at all"
    )
    task_ttl_ms: int = _span(
        _HUB.limits.tasks.default_ttl_ms, 1, MONTH_MS, "how long a task may run if its call does not say"
    )
    max_task_ttl_ms: int = _span(_HUB.limits.tasks.max_ttl_ms, 1, MONTH_MS, "how long a task may run at most")
    task_retention_ms: int = _span(_HUB.limits.tasks.retention_ms, 0, MONTH_MS, "how long a finished task is kept")
    max_tasks: int = _span(_HUB.limits.max_tasks, 1, 100_000, "calls and tasks that a session may have running")
    question_timeout_ms: int = _span(
        _HUB.limits.question_timeout_ms, 1, MONTH_MS, "how long a server's question waits for an answer"
    )
    max_events: int = _span(_HUB.limits.max_events, 10, 1_000_000, "events that a session keeps")
    max_notifications: int = _span(
        _HUB.limits.max_notifications, 1, 1_000_000, "notifications that a session keeps for each server"
    )
    max_logs: int = _span(_HUB.limits.max_logs, 1, 1_000_000, "log entries that a session keeps for each server")
    roots: str = Field(default="", description="directories that servers are told of as roots, separated by commas")
    data: str = Field(
        default="",
        description="the directory for what survives a restart, or :memory: to keep nothing; default: the user's data "
        "directory for serve, :memory: for stdio",
    )
    demo: bool = Field(default=False, description="also register the demo server")
    log_level: Annotated[LogLevel, AnyCase] = Field(
        default="info", description="the least important log entries to write"
    )
    log_format: Annotated[LogFormat, AnyCase] = Field(default="json", description="how log entries look on stderr")

    @property
    def hub(self) -> HubSettings:
        tasks = TaskLimits(
            default_ttl_ms=self.task_ttl_ms, max_ttl_ms=self.max_task_ttl_ms, retention_ms=self.task_retention_ms
        )
        limits = SessionLimits(
            tasks=tasks,
            max_tasks=self.max_tasks,
            max_events=self.max_events,
            question_timeout_ms=self.question_timeout_ms,
            max_notifications=self.max_notifications,
            max_logs=self.max_logs,
        )
        return HubSettings(
            limits=limits,
            max_sessions=self.max_sessions,
            session_idle_ms=self.session_idle_ms,
            default_timeout_ms=self.call_timeout_ms,
            roots=tuple(map(_root_uri, self._root_list)),
        )

    @property
    def missing_roots(self) -> list[str]:
        """The roots that are no directories here; they may become some."""
        return [root for root in self._root_list if "://" not in root and not _root_path(root).is_dir()]

    @property
    def _root_list(self) -> list[str]:
        return [root.strip() for root in self.roots.split(",") if root.strip()]

    @property
    def http(self) -> HttpSettings:
        return HttpSettings(
            host=self.host,
            port=self.port,
            allow_spawn=self.allow_spawn,
            max_body_bytes=self.max_body_bytes,
            allowed_hosts=self.allowed_hosts,
            access=AccessSettings(self.token, self.token_file, self.tokens, self._oauth),
        )

    @property
    def _oauth(self) -> OAuthSettings | None:
        if not self.oauth_issuer:
            return None
        return OAuthSettings(
            issuer=self.oauth_issuer,
            resource=self.oauth_resource,
            audience=self.oauth_audience,
            scopes=self.oauth_scopes,
            introspection_url=self.oauth_introspection_url,
            client_id=self.oauth_client_id,
            client_secret=self.oauth_client_secret,
        )


def _root_uri(root: str) -> str:
    return root if "://" in root else _root_path(root).as_uri()


def _root_path(root: str) -> Path:
    return Path(root).expanduser().absolute()


SETTING_NAMES: tuple[str, ...] = tuple(Settings.model_fields)

SERVE_ONLY = frozenset(
    {
        "host",
        "port",
        "allow_spawn",
        "token",
        "token_file",
        "tokens",
        "allowed_hosts",
        "oauth_issuer",
        "oauth_resource",
        "oauth_audience",
        "oauth_scopes",
        "oauth_introspection_url",
        "oauth_client_id",
        "oauth_client_secret",
        "max_body_bytes",
        "max_sessions",
        "session_idle_ms",
    }
)
"""Settings without a meaning for the one client of a pipe; in a file that is shared with `serve` they do no harm."""

LOGGING = ("log_level", "log_format")
"""Settings of every command."""

_SCHEMAS: Mapping[str, Mapping[str, Any]] = Settings.model_json_schema()["properties"]


@dataclass(frozen=True, slots=True)
class Described:
    """One row of the table, for whoever shows it."""

    name: str
    help: str
    default: Any
    kind: Literal["integer", "boolean", "string", "array", "object"]
    choices: tuple[str, ...]
    expected: str


def described(name: str) -> Described:
    schema = _SCHEMAS[name]
    kind, choices = schema["type"], tuple(schema.get("enum", ()))
    if "expected" in schema:
        expected = schema["expected"]
    elif choices:
        expected = f"one of {', '.join(choices)}"
    elif kind == "integer":
        expected = f"a whole number from {schema['minimum']} to {schema['maximum']}"
    else:
        expected = "true or false" if kind == "boolean" else "a text"
    return Described(name, schema["description"], schema.get("default"), kind, choices, f"expected {expected}")


@dataclass(frozen=True, slots=True)
class Layer:
    """What one source sets: the fields of `given` that were given, and what they are called there."""

    given: Settings
    key_of: Callable[[str], str]


def layer(
    values: Mapping[str, Any], key_of: Callable[[str], str], *, strict: bool, others: Sequence[str] = ()
) -> Layer:
    """What a source says. `strict` is for sources that have types; `others` are keys that it may have besides.

    Raises:
        WrongSettings: it says something that is not in the table, or beyond the bounds.
    """
    try:
        return Layer(Settings.model_validate(values, strict=strict), key_of)
    except ValidationError as error:
        wrong = dict.fromkeys(str(problem["loc"][0]) for problem in error.errors(include_input=False))
    raise WrongSettings(SettingsError(key_of(printable(name)), _expectation(name, others)) for name in wrong)


def _expectation(name: str, others: Sequence[str]) -> str:
    if name in _SCHEMAS:
        return described(name).expected
    return f"there is no such setting{did_you_mean(name, (*others, *SETTING_NAMES))}"


def keys_of(layers: Sequence[Layer]) -> dict[str, str]:
    """What each setting that was given is called where it was given last."""
    return {name: each.key_of(name) for each in layers for name in each.given.model_fields_set}


def merged(layers: Sequence[Layer]) -> Settings:
    """The settings that hold when each layer overrides those before it.

    Raises:
        WrongSettings: two of them contradict each other.
    """
    values = {name: getattr(each.given, name) for each in layers for name in each.given.model_fields_set}
    keys = keys_of(layers)
    settings = Settings.model_validate(values)
    if "token" in values and not settings.token:
        # Most likely a variable that is not set; without a word, everybody would be let in.
        raise WrongSettings([SettingsError(keys["token"], "expected a token that is not empty")])
    if settings.token and settings.token_file:
        raise WrongSettings([SettingsError(keys["token_file"], f"expected only one of it and {keys['token']}")])
    if "task_ttl_ms" in values and settings.task_ttl_ms > settings.max_task_ttl_ms:
        expected = f"expected at most max_task_ttl_ms, which is {settings.max_task_ttl_ms}"
        raise WrongSettings([SettingsError(keys["task_ttl_ms"], expected)])
    return settings
