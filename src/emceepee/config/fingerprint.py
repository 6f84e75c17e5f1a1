"""Whether a file has changed, and whether its writer is done."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

__all__ = ["Fingerprint", "Stillness", "fingerprint"]


class Fingerprint(NamedTuple):
    """What differs after a file was written, replaced or made readable."""

    modified_ns: int
    changed_ns: int
    size: int
    inode: int


def fingerprint(path: Path) -> Fingerprint | None:
    """None for a file that is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return Fingerprint(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


class Stillness:
    """Says when a changed file is worth reading: once it looks the same twice, because half a file may be a valid one.

    `read` is how it looked when it was read last.
    """

    def __init__(self, read: Fingerprint | None) -> None:
        self._read = read
        self._seen = read

    def is_worth_reading(self, seen: Fingerprint | None) -> bool:
        """To be asked at each look; a yes counts as read."""
        stood_still, self._seen = seen == self._seen, seen
        if not stood_still or seen == self._read:
            return False
        self._read = seen
        return True
