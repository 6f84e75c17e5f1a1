"""A hub between any MCP client and any number of MCP servers.

Start at `docs/architecture.md`; the library for one connection to one server is `emceepee.client`.
"""

from importlib.metadata import version as _version

__all__ = ["__version__"]

__version__ = _version("emceepee")
