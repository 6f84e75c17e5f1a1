"""What can be seen of a running hub. So far: structured logs (`logs.py`)."""

from emceepee.observe.logs import LogFormat, LogLevel, configure_logging

__all__ = ["LogFormat", "LogLevel", "configure_logging"]
