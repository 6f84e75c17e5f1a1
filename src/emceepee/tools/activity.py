"""Waiting for anything at all: `await_activity`."""

from __future__ import annotations

from typing import Any, TypeAlias

from pydantic import Field

from emceepee.core.events import Event
from emceepee.core.state import SessionState
from emceepee.jsontext import dumps
from emceepee.tools.caller import Caller
from emceepee.tools.calling import MAX_TIMEOUT_MS
from emceepee.tools.reply import Reply, pending_client, text_block
from emceepee.tools.tool import Input, Tool

__all__ = ["TOOLS"]

JsonObject: TypeAlias = dict[str, Any]


class AwaitActivity(Input):
    timeout_ms: int = Field(30_000, ge=0, le=MAX_TIMEOUT_MS, description="Longest wait.")
    last_event_id: str | None = Field(
        None, description="Tell everything after this event again; leave it out to be told only what is new."
    )


async def await_activity(caller: Caller, given: AwaitActivity) -> Reply:
    state = caller.session.state
    cursor = given.last_event_id
    has_news = state.events.has_news if cursor is None else state.events.has_after(cursor)
    wake = None if has_news else await caller.session.wait_for_event(given.timeout_ms / 1000)
    await caller.session.durable()
    delivery = caller.read_new() if cursor is None else caller.read_after(cursor)
    answer: JsonObject = {
        "triggers": _triggers(has_news, wake, delivery.events),
        "events": _by_server(delivery.events),
        "pending_server": _pending_server(state),
        "pending_client": pending_client(caller.session.open_questions()),
        "last_event_id": state.events.last_event_id,
    }
    if delivery.lost:
        answer["events_lost"] = delivery.lost
    return Reply([text_block(dumps(answer))], tells_events=True)


def _triggers(had_news: bool, wake: Event | None, events: tuple[Event, ...]) -> list[JsonObject]:
    """Why the call came back; a second waiter has the same reason as the first, though no events are left for it."""
    if had_news:
        lost = [_trigger(event) for event in events if event.type == "server_disconnected"]
        return _distinct([{"type": "immediate"}, *lost])
    if wake is None:
        return [{"type": "timeout"}]
    return _distinct([_trigger(event) for event in (wake, *events)])


def _trigger(event: Event) -> JsonObject:
    if event.type == "server_disconnected":
        return {"type": "server_disconnected", "server": event.server}
    return {"type": "event", "server": event.server, "event_type": event.type}


def _distinct(triggers: list[JsonObject]) -> list[JsonObject]:
    return [trigger for index, trigger in enumerate(triggers) if trigger not in triggers[:index]]


def _by_server(events: tuple[Event, ...]) -> list[JsonObject]:
    grouped: dict[str, list[JsonObject]] = {}
    for event in events:
        grouped.setdefault(event.server, []).append(event.as_json())
    return [{"server": server, "events": found} for server, found in grouped.items()]


def _pending_server(state: SessionState) -> list[JsonObject]:
    grouped: dict[str, list[JsonObject]] = {}
    for task in state.tasks.live():
        entry = {"task_id": task.task_id, "tool": task.tool, "status": task.status}
        grouped.setdefault(task.server, []).append(entry)
    return [{"server": server, "working_tasks": tasks} for server, tasks in grouped.items()]


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "await_activity",
        "Wait until something happens (a task ends, a server asks, connects or notifies), and return what is new, "
        "which tasks run and which questions wait for you. Answer open questions first: a task that waits for you does "
        "not move.",
        AwaitActivity,
        await_activity,
        read_only=True,
    ),
)
