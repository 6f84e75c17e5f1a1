"""The client at the other end of an open call, as the hub sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emceepee.core.questions import Question, QuestionKind

__all__ = ["Attendant"]


class Attendant:
    """Who waits for a call. This one hears nothing and cannot be asked: fronts make others."""

    takes_tasks = False
    """Whether a task of the server's is to be a task of the client's at once."""

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """The server has got on."""

    def notification(self, method: str, params: Mapping[str, Any]) -> None:
        """The server said something while it worked on the call."""

    def can_ask(self, kind: QuestionKind, params: Mapping[str, Any]) -> bool:
        """Whether the client has said that it can be asked this, here and now."""
        return False

    def can_ask_back(self, kind: QuestionKind, params: Mapping[str, Any]) -> bool:
        """Whether the client can be asked this with the response, or as part of a task of its protocol."""
        return False

    def ask(self, question: Question) -> None:
        """Put a question to the client; its answer goes to the session's question desk."""

    def withdraw(self, request_id: str, reason: str) -> None:
        """The answer is not needed any more, or not from here."""

    def interrupted(self) -> None:
        """The server has let go of the stream that it answers on, and will answer on another."""
