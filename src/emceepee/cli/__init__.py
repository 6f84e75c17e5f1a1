"""The command line: `emceepee serve`, `emceepee stdio`, `emceepee demo-server`."""

from emceepee.cli.main import main

__all__ = ["main"]
