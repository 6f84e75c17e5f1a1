"""What a server's configuration is to the library."""

from __future__ import annotations

from emceepee.client import Http, ServerAuth, Sse, Stdio, Target
from emceepee.config import ServerConfig

__all__ = ["target_of"]


def target_of(config: ServerConfig, auth: ServerAuth | None = None) -> Target:
    if config.command is not None:
        return Stdio(config.command, config.args, config.env, config.cwd)
    url = config.url or ""
    if config.transport == "sse":
        return Sse(url, config.headers, auth)
    return Http(url, config.headers, fallback=config.transport == "auto", auth=auth)
