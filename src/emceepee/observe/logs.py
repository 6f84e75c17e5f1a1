"""Log lines on stderr: JSON for machines, a console format for people.

Stdout belongs to the protocol on stdio. Event names and their facts are snake_case; secrets and the content of
questions are never given to a logger in the first place.
"""

from __future__ import annotations

import io
import logging
import sys
from contextlib import suppress
from typing import TextIO, cast

import structlog

from emceepee.config.settings import LogFormat, LogLevel

__all__ = ["configure_logging"]

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _Stderr(io.TextIOBase):
    """Standard error as long as there is somebody at the other end: a terminal that was closed must not end the hub."""

    def __init__(self) -> None:
        self._stream = sys.stderr

    def write(self, text: str, /) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


def configure_logging(level: LogLevel = "info", log_format: LogFormat = "json") -> None:
    """Set up this process's logs, those of the libraries included (from `warning` upwards)."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="timestamp"),
    ]
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        if log_format == "console"
        else structlog.processors.JSONRenderer()
    )
    errors: list[structlog.typing.Processor] = [] if log_format == "console" else [structlog.processors.format_exc_info]
    structlog.configure(
        processors=[*shared, *errors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Stderr())),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *errors, renderer],
        )
    )
    # The SDK logs failures of its OAuth flows with what the issuer sent, in which there may be tokens.
    logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL + 1)
    # The wire and the client library log like any library; whoever debugs the hub wants to see all of it.
    logging.getLogger("emceepee").setLevel(logging.DEBUG if level == "debug" else logging.NOTSET)
    logging.basicConfig(handlers=[handler], level=max(_LEVELS[level], logging.WARNING), force=True)
