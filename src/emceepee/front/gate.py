"""Who a request comes from."""

from __future__ import annotations

from typing import Protocol

from starlette.types import Scope

from emceepee.hub import LOCAL

__all__ = ["Gate", "OpenGate"]


class Gate(Protocol):
    async def principal_of(self, scope: Scope) -> str:
        """Whom the credentials of a request stand for.

        Raises:
            Refused: they stand for nobody.
        """
        ...


class OpenGate:
    """For a hub that only its own user can reach."""

    async def principal_of(self, scope: Scope) -> str:
        return LOCAL
