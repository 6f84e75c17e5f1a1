"""What is wrong with settings, all of it at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from emceepee.errors import SettingsError

__all__ = ["WrongSettings", "did_you_mean", "nearest", "printable"]


class WrongSettings(SettingsError):
    """One or more wrong settings, a line each; `key` and `expected` are those of the first."""

    def __init__(self, problems: Iterable[SettingsError]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems[0].key, self.problems[0].expected)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


def nearest(word: str, known: Sequence[str]) -> str | None:
    """The known name that was probably meant by `word`."""
    by_lower = {name.lower(): name for name in known}
    found = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.75)
    return by_lower[found[0]] if found else None


def did_you_mean(word: str, known: Sequence[str]) -> str:
    meant = nearest(word, known)
    return f"; did you mean {meant}?" if meant else f"; known are {', '.join(known)}"


def printable(key: str) -> str:
    """A key of somebody's file on one line, whatever is in it."""
    return key if key.isprintable() else repr(key)
