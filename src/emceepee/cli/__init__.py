"""The command line: `emceepee serve`, `stdio`, `login`, `logout` and `demo-server`."""

from emceepee.cli.main import main

__all__ = ["main"]
