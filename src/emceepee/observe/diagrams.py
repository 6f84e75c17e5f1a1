"""Mermaid diagrams of what the hub does with calls and questions: the resource `emceepee://diagrams`.

The state diagrams are drawn from the transition tables that the code runs on, so that they cannot lie; only the words
on the arrows are written here, and a transition without words cannot be drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from emceepee.core import questions, tasks

__all__ = ["diagrams"]

_TASK_WORDS: Final[Mapping[tuple[str, str], str]] = {
    ("working", "completed"): "the server returns a result",
    ("working", "failed"): "the server returns an error or disconnects",
    ("working", "cancelled"): "cancel_task",
    ("working", "expired"): "the TTL is over",
    ("working", "input_required"): "a native task asks",
    ("input_required", "working"): "its question is answered",
    ("input_required", "completed"): "the server returns a result",
    ("input_required", "failed"): "the server returns an error or disconnects",
    ("input_required", "cancelled"): "cancel_task",
    ("input_required", "expired"): "the TTL is over",
}
_QUESTION_WORDS: Final[Mapping[tuple[str, str], str]] = {
    ("pending", "accepted"): "respond_to_elicitation(accept)",
    ("pending", "declined"): "respond_to_elicitation(decline)",
    ("pending", "cancelled"): "respond_to_elicitation(cancel)",
    ("pending", "completed"): "respond_to_sampling",
    ("pending", "rejected"): "rejected, or the server disconnects",
    ("pending", "expired"): "nobody answers in time",
    ("pending", "withdrawn"): "the server takes it back, or its call ends",
}
_LIFECYCLE: Final = """\
stateDiagram-v2
    [*] --> in_flight : execute_tool
    in_flight --> returned_result : completes within timeout_ms
    in_flight --> promoted_to_task : timeout_ms is over
    in_flight --> promoted_to_task : a question belongs to the call
    in_flight --> promoted_to_task : the client stops waiting
    in_flight --> cancelled_at_server : the client cancels
    returned_result --> [*] : no task is created
    cancelled_at_server --> [*]
    state promoted_to_task {
        [*] --> task_working
        task_working --> task_ended : result, error, cancel_task or TTL
    }
    promoted_to_task --> [*] : get_task_result"""
_ENTITIES: Final = """\
flowchart TB
    client[Client] -->|execute_tool, read_resource, get_prompt| calls[Calls]
    calls -->|promoted| tasks[(Tasks)]
    client -->|get_task_result, cancel_task| tasks
    client -->|respond_to_elicitation, respond_to_sampling| questions[(Questions)]
    client -->|await_activity| events[(Event log)]
    client -->|get_notifications, get_logs| buffers[(Buffers)]
    tasks & questions --> events
    calls --> link[Link, one per session and server]
    link --> server[MCP server]
    server -->|elicitation, sampling| questions
    server -->|notifications| buffers & events
    server -->|logs, stderr| buffers"""


def diagrams() -> list[dict[str, str]]:
    """Name, description and mermaid source of each."""
    return [
        _entry("proxy_task_states", "The states of a task.", _task_states()),
        _entry("pending_elicitation_states", "The states of an elicitation.", _question_states("elicitation")),
        _entry("pending_sampling_states", "The states of a sampling request.", _question_states("sampling")),
        _entry("tool_call_lifecycle", "How a call returns its result or becomes a task.", _LIFECYCLE),
        _entry("entity_relationships", "What the hub holds, and who reaches it how.", _ENTITIES),
    ]


def _entry(name: str, description: str, mermaid: str) -> dict[str, str]:
    return {"name": name, "description": description, "mermaid": mermaid}


def _task_states() -> str:
    arrows = [(state, target) for state, targets in tasks.TRANSITIONS.items() for target in sorted(targets)]
    return _state_diagram("working", "a call is promoted", arrows, _TASK_WORDS, "kept for the retention time")


def _question_states(kind: questions.QuestionKind) -> str:
    arrows = [("pending", target) for target in sorted(questions.TRANSITIONS[kind])]
    return _state_diagram("pending", "a server asks", arrows, _QUESTION_WORDS, "the server is told")


def _state_diagram(
    first: str, birth: str, arrows: Iterable[tuple[Any, Any]], words: Mapping[tuple[str, str], str], end: str
) -> str:
    arrows = list(arrows)
    sources = {source for source, _ in arrows}
    finals = sorted({target for _, target in arrows} - sources)
    return "\n".join(
        [
            "stateDiagram-v2",
            f"    [*] --> {first} : {birth}",
            *(f"    {source} --> {target} : {words[source, target]}" for source, target in arrows),
            *(f"    {final} --> [*] : {end}" for final in finals),
        ]
    )
