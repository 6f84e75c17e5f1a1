"""Answering one entry of `inputRequests`, whether it came with a result or with a task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from emceepee.client.inbound import Inbound
from emceepee.client.questions import Question
from emceepee.client.resumption import OpenInput
from emceepee.core.questions import Arrival, Belonging
from emceepee.errors import PeerError

__all__ = ["answer_to"]

JsonObject: TypeAlias = dict[str, Any]


async def answer_to(
    entry: OpenInput,
    key: str,
    inbound: Inbound,
    *,
    arrival: Arrival,
    origin: object,
    wait: Callable[[Question], Awaitable[JsonObject]],
) -> JsonObject:
    """The answer that there is already, or our own, or the one that `wait` brings to the question that is asked.

    Raises:
        PeerError: nobody will answer, or the server asked for something that we do not know.
    """
    if (answer := entry.answer) is not None:
        return answer
    if entry.method == "roots/list":
        return await inbound.list_roots()
    if (kind := entry.kind) is None:
        raise PeerError(-32603, f"the server asked for input with {entry.method!r}, which we do not know")
    # Asked on an earlier connection, or before a restart, it is still the same question.
    entry.question = entry.question or inbound.ask(
        kind, entry.params, arrival=arrival, belongs_to=Belonging(origin, "exact"), input_key=key
    )
    return await wait(entry.question)
