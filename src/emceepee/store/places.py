"""Places for hubs that keep nothing: what is left of one that was killed is found by whichever hub starts next.

A place is an empty file that its hub holds a lock on, and deletes when it ends in order. One that nobody holds belonged
to a hub that was killed, however that came about, and the programs that bear its name are nobody's.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from structlog import get_logger

__all__ = ["abandoned_places", "claimed_place"]

log = get_logger(__name__)

_SUFFIX = ".hub"


@contextmanager
def claimed_place(directory: Path) -> Iterator[str | None]:
    """A place of our own in `directory`; None if none can be made there, which is no reason not to start."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        file, unnamed = tempfile.mkstemp(dir=directory)
    except OSError as error:
        log.info("hub_has_no_place", directory=str(directory), error=str(error))
        yield None
        return
    place = Path(unnamed).with_suffix(_SUFFIX)
    try:
        # Before it has its name: nobody may find it without its lock.
        fcntl.flock(file, fcntl.LOCK_EX)
        os.rename(unnamed, place)
        yield str(place)
        place.unlink(missing_ok=True)
    finally:
        os.close(file)


@contextmanager
def abandoned_places(directory: Path) -> Iterator[list[str]]:
    """The places in `directory` whose hub was killed; once the body is through with them, they are forgotten."""
    with ExitStack() as held:
        found = [path for path in sorted(directory.glob(f"*{_SUFFIX}")) if _take_over(path, held)]
        yield [str(path) for path in found]
        for path in found:
            path.unlink(missing_ok=True)


def _take_over(path: Path, held: ExitStack) -> bool:
    """Whether nobody held the lock of `path`; we do now, until `held` is left."""
    with suppress(OSError):
        file = os.open(path, os.O_RDWR)
        held.callback(os.close, file)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
