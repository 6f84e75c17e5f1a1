"""Where settings come from, and which of them wins: flag, environment, file, default."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from emceepee.config.file import read_file
from emceepee.config.fingerprint import Fingerprint, fingerprint
from emceepee.config.problems import WrongSettings, nearest
from emceepee.config.servers import ServerConfig
from emceepee.config.settings import SETTING_NAMES, Layer, Settings, keys_of, layer, merged
from emceepee.config.values import HttpSettings
from emceepee.errors import SettingsError

__all__ = [
    "CONFIG_VARIABLE",
    "DEFAULT_FILE",
    "Configuration",
    "Sources",
    "environment_layer",
    "flag_layer",
    "flag_of",
    "misspelt",
    "variable_of",
]

CONFIG_VARIABLE = "EMCEEPEE_CONFIG"

DEFAULT_FILE = Path("emceepee.toml")
"""Used if it is there and nobody named another."""

_PREFIX = "EMCEEPEE_"


def variable_of(name: str) -> str:
    return _PREFIX + name.upper()


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a run is told: its settings, the servers of its file, and how the file looked when it was read."""

    settings: Settings
    servers: tuple[ServerConfig, ...] = ()
    path: Path | None = None
    fingerprint: Fingerprint | None = None
    ignored: Mapping[str, str] = field(default_factory=dict)
    """Keys of servers in the file that mean nothing to us, each with the one that was probably meant."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Names of servers in the file that do not fit here, each with what the server is called instead."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """What each setting that was given is called there: a flag, a variable, a key of the file."""

    @property
    def http(self) -> HttpSettings:
        """For `serve`: what is found wrong only then is named as it was given."""
        http = self.settings.http
        named = replace(http.access, token_file_key=self.keys.get("token_file", "token_file"))
        return replace(http, access=named)


@dataclass(frozen=True, slots=True)
class Sources:
    """The file, the environment and the flags of a run; `read` can be called again when the file has changed."""

    path: Path | None
    environment: Mapping[str, str]
    flags: Mapping[str, str | bool]
    """By the setting's name, as they were given; what was not given is not in it."""

    @classmethod
    def of(
        cls,
        config: str | None,
        environment: Mapping[str, str],
        flags: Mapping[str, str | bool],
        *,
        look_here: bool = True,
    ) -> Sources:
        """The sources of a run whose `--config` is `config`; without one, `look_here` takes `DEFAULT_FILE`."""
        named = config or environment.get(CONFIG_VARIABLE)
        path = Path(named) if named else DEFAULT_FILE if look_here and DEFAULT_FILE.is_file() else None
        return cls(path, dict(environment), dict(flags))

    def read(self) -> Configuration:
        """
        Raises:
            WrongSettings: something is wrong in any of the sources; it has all of it.
        """
        # Taken first: what is written while we read is then seen as a change.
        looks = None if self.path is None else fingerprint(self.path)
        problems: list[SettingsError] = []
        layers: list[Layer] = []
        servers: tuple[ServerConfig, ...] = ()
        ignored: Mapping[str, str] = {}
        renamed: Mapping[str, str] = {}
        with _collected(problems):
            if self.path is not None:
                file = read_file(self.path, self.environment)
                layers.append(file.layer)
                servers, ignored, renamed = file.servers, file.ignored, file.renamed
        with _collected(problems):
            layers.append(environment_layer(self.environment))
        with _collected(problems):
            layers.append(flag_layer(self.flags))
        if problems:
            raise WrongSettings(problems)
        return Configuration(merged(layers), servers, self.path, looks, ignored, renamed, keys_of(layers))


@contextmanager
def _collected(problems: list[SettingsError]) -> Iterator[None]:
    """Put what is wrong into `problems`, so that the next source is heard as well."""
    try:
        yield
    except WrongSettings as error:
        problems.extend(error.problems)


def environment_layer(environment: Mapping[str, str], names: Collection[str] = SETTING_NAMES) -> Layer:
    """What the variables say; an empty one says nothing.

    Raises:
        WrongSettings: one of them is wrong.
    """
    values = {name: text for name in names if (text := environment.get(variable_of(name)))}
    return layer(values, variable_of, strict=False)


def flag_layer(flags: Mapping[str, str | bool]) -> Layer:
    """
    Raises:
        WrongSettings: one of them is wrong.
    """
    return layer(flags, flag_of, strict=False)


def misspelt(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that are not ours but look as if they were meant to be, each with the one that was probably meant.

    They are not refused: the prefix may be in use for something else around us.
    """
    known = [CONFIG_VARIABLE, *map(variable_of, SETTING_NAMES)]
    strangers = (name for name in environment if name.startswith(_PREFIX) and name not in known)
    guesses = {
        name: nearest(name.removeprefix(_PREFIX), [each.removeprefix(_PREFIX) for each in known]) for name in strangers
    }
    return {name: _PREFIX + guess for name, guess in guesses.items() if guess is not None}
