"""Who a request comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from starlette.types import Scope

from emceepee.hub import LOCAL

__all__ = ["Gate", "OpenGate"]


class Gate(Protocol):
    @property
    def documents(self) -> Mapping[str, Mapping[str, Any]]:
        """What anybody may read, by its path, to learn how to get in."""
        ...

    async def principal_of(self, scope: Scope) -> str:
        """Whom the credentials of a request stand for.

        Raises:
            Refused: they stand for nobody.
        """
        ...


class OpenGate:
    """For a hub that only its own user can reach."""

    documents: Mapping[str, Mapping[str, Any]] = {}

    async def principal_of(self, scope: Scope) -> str:
        return LOCAL
