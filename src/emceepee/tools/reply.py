"""What a response looks like: the tool's own result, then what is new and what waits for the client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from emceepee.core.events import Delivery
from emceepee.core.questions import Question
from emceepee.errors import ToolError
from emceepee.jsontext import dumps
from emceepee.protocol import RELATED_TASK_META_KEY, SERVER_INFO_META_KEY, without_meta
from emceepee.tools.caller import Caller

__all__ = [
    "Reply",
    "complete",
    "error_reply",
    "for_clients",
    "json_reply",
    "listed",
    "pending_client",
    "text_block",
]

JsonObject: TypeAlias = dict[str, Any]

NOT_FOR_CLIENTS = frozenset({SERVER_INFO_META_KEY, RELATED_TASK_META_KEY})
"""Keys in a result's `_meta`: one is of the modern era only, the other holds a server's own task id."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A result that a tool gives: its own blocks, or a server's result that passes through."""

    content: list[JsonObject] = field(default_factory=list)
    is_error: bool = False
    passed_through: Mapping[str, Any] | None = None
    tells_events: bool = False
    """The events are in it already, so no blocks are added."""
    task_id: str | None = None
    """The task that the work goes on as, for clients that can be told of it in their protocol's own way."""


def text_block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def json_reply(value: object) -> Reply:
    return Reply([text_block(dumps(value))])


def listed(key: str, gathered: tuple[Mapping[str, list[JsonObject]], Mapping[str, str]]) -> Reply:
    """A list over several servers: each entry says whose it is, and `errors` which servers are missing in it."""
    found, failures = gathered
    answer: JsonObject = {key: [{"server": server, **entry} for server, items in found.items() for entry in items]}
    if failures:
        answer["errors"] = [{"server": server, "message": message} for server, message in failures.items()]
    return json_reply(answer)


def error_reply(error: ToolError) -> Reply:
    facts = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
    return Reply([text_block(dumps(facts))], is_error=True)


def pending_client(questions: Iterable[Question]) -> JsonObject:
    """What waits for the client, by kind."""
    found: dict[str, list[JsonObject]] = {"elicitations": [], "sampling_requests": []}
    for question in questions:
        found["elicitations" if question.kind == "elicitation" else "sampling_requests"].append(question.as_json())
    return found


def complete(reply: Reply, caller: Caller) -> JsonObject:
    """The `CallToolResult` for a reply; whatever is new is delivered by it."""
    blocks = [] if reply.tells_events else _standing_blocks(caller)
    if reply.passed_through is None:
        result: JsonObject = {"content": [*reply.content, *blocks]}
        return {**result, "isError": True} if reply.is_error else result
    return _with_blocks(reply.passed_through, blocks)


def _standing_blocks(caller: Caller) -> list[JsonObject]:
    blocks = []
    state = caller.session.state
    if state.events.has_news:
        blocks.append(text_block(dumps(_told(caller.read_new()))))
    if questions := caller.session.open_questions():
        blocks.append(text_block(dumps({"pending_client_action": pending_client(questions)})))
    return blocks


def _told(delivery: Delivery) -> JsonObject:
    told: JsonObject = {"events_since_last_response": [event.as_json() for event in delivery.events]}
    if delivery.lost:
        told["events_lost"] = delivery.lost
    return told


def _with_blocks(result: Mapping[str, Any], blocks: list[JsonObject]) -> JsonObject:
    passed = for_clients(result)
    if blocks:
        content = passed.get("content")
        passed["content"] = [*(content if isinstance(content, list) else []), *blocks]
    return passed


def for_clients(result: Mapping[str, Any]) -> JsonObject:
    """A server's own result, without what only its era has, and without its own task ids."""
    passed = without_meta(result, NOT_FOR_CLIENTS)
    passed.pop("resultType", None)
    return passed
