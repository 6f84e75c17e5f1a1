"""Parses the command line and hands over to the command."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from emceepee.cli.parser import parsed
from emceepee.errors import EmceepeeError, exit_code

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    options = parsed(arguments)
    try:
        # It loads the protocol's libraries, which takes a second that neither --help nor a wrong flag should cost.
        from emceepee.cli.commands import COMMANDS  # noqa: PLC0415

        return COMMANDS[options.command](options)
    except EmceepeeError as error:
        for line in str(error).splitlines():
            print(f"emceepee: {line}", file=sys.stderr)
        return exit_code(error)
    except KeyboardInterrupt as error:
        return exit_code(error)
