"""What the design promises of clients and servers that do not speak the same protocol; see `tests/requirements.py`."""

from __future__ import annotations

__all__ = ["REQUIREMENTS"]

REQUIREMENTS = {
    "D010-bridge": "Every kind of client gets the right result from every kind of server, whatever either one speaks.",
    "D010-url-required": "A server's error that names URLs to be opened first is a question; then the call goes again.",
}
