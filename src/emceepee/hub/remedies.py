"""What to do about a server that never was connected: nothing of it is lost, but something has to be put right."""

from __future__ import annotations

from emceepee.config import ServerConfig

__all__ = ["remedy_for"]


def remedy_for(config: ServerConfig) -> str:
    """The hint for whoever needed the server."""
    if config.command is None:
        return "Nothing was sent. Start the server, or correct its url; then call again."
    hint = (
        "Nothing was sent. Install the program, or correct its command, args or env; then use reconnect_server. "
        "See get_logs for what it wrote."
    )
    if len(config.command.split()) > 1 and not config.args:
        hint += " Its command holds blanks: put the arguments into args."
    return hint
