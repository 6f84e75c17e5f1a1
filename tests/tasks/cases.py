"""What is tried with which peer: one `Case` for each tool, from which the tests and the table in the docs are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from emceepee.core.questions import Arrival, QuestionKind
from tests.tasks.peers import PeerName

__all__ = ["CASES", "KINDS", "KNOWN_DEFECTS", "RACES", "Case", "Kind", "Via", "answer_to", "cases_of"]

Via: TypeAlias = Literal["library", "hub"]

Kind: TypeAlias = Literal[
    "blocking elicitation",
    "blocking sampling",
    "`input_required` result",
    "requestor task",
    "question inside a task",
    "receiver task",
    "receiver task inside a task",
    "extension task",
    "extension task, one input",
    "extension task, several inputs",
    "cancelled task",
    "failed task",
]

KINDS: Mapping[Kind, Arrival | None] = {
    "blocking elicitation": "request",
    "blocking sampling": "request",
    "`input_required` result": "input_required",
    "requestor task": None,
    "question inside a task": "request",
    "receiver task": "receiver_task",
    "receiver task inside a task": "receiver_task",
    "extension task": None,
    "extension task, one input": "task_input",
    "extension task, several inputs": "task_input",
    "cancelled task": None,
    "failed task": None,
}
"""The rows of the table, and how questions of each arrive."""

WITH_A_SERVERS_TASK: frozenset[Kind] = frozenset(
    {
        "requestor task",
        "question inside a task",
        "receiver task inside a task",
        "extension task",
        "extension task, one input",
        "extension task, several inputs",
        "cancelled task",
        "failed task",
    }
)


@dataclass(frozen=True, slots=True)
class Case:
    peer: PeerName
    kind: Kind
    tool: str
    text: str
    """What the result begins with, if every question is answered as `answer_to` does."""
    args: Mapping[str, Any] = field(default_factory=dict)
    questions: tuple[QuestionKind, ...] = ()

    def __str__(self) -> str:
        return f"{self.peer}-{self.tool}" + ("-ambiguous" if "ambiguous" in self.args else "")

    @property
    def is_native(self) -> bool:
        """Whether the server makes a task of it."""
        return self.kind in WITH_A_SERVERS_TASK

    @property
    def arrival(self) -> Arrival | None:
        return KINDS[self.kind]


def answer_to(kind: QuestionKind, params: Mapping[str, Any]) -> dict[str, Any]:
    """An answer that tells from which question it came: a form is filled in with the question's own words."""
    if kind == "sampling":
        return {"role": "assistant", "content": {"type": "text", "text": "word"}, "model": "m", "stopReason": "endTurn"}
    schema = params["requestedSchema"]
    words = str(params["message"]).rstrip("?")
    content = {
        name: options[0]["const"] if (options := schema["properties"][name].get("oneOf")) else words
        for name in schema["required"]
    }
    return {"action": "accept", "content": content}


def cases_of(*kinds: Kind) -> list[Case]:
    return [case for case in CASES if case.kind in kinds]


def _of_an_sdk(peer: PeerName) -> list[Case]:
    """What the programs on both 1.x SDKs have."""
    return [
        Case(peer, "blocking elicitation", "elicit", "accept Who", {"question": "Who?"}, ("elicitation",)),
        Case(peer, "blocking sampling", "sample", "m said word", {}, ("sampling",)),
        Case(peer, "requestor task", "work", "worked on bees", {"topic": "bees"}),
        Case(peer, "requestor task", "maybe", "worked on ants", {"topic": "ants"}),
        Case(peer, "question inside a task", "elicit_inside", "accept Who", {"question": "Who?"}, ("elicitation",)),
        Case(peer, "question inside a task", "sample_inside", "m said word", {}, ("sampling",)),
        Case(peer, "receiver task", "elicit_as_task", "accept Who", {"question": "Who?"}, ("elicitation",)),
        Case(peer, "receiver task", "sample_as_task", "m said word", {}, ("sampling",)),
        Case(peer, "cancelled task", "hold", ""),
        Case(peer, "failed task", "fail", "it broke"),
        Case(peer, "failed task", "refuse", "no, thank you"),
    ]


CASES: list[Case] = [
    *_of_an_sdk("python"),
    Case(
        "python",
        "receiver task inside a task",
        "elicit_inside_as_task",
        "accept Who",
        {"question": "Who?"},
        ("elicitation",),
    ),
    Case("python", "receiver task inside a task", "sample_inside_as_task", "m said word", {}, ("sampling",)),
    *_of_an_sdk("npm"),
    Case("everything", "blocking elicitation", "trigger-elicitation-request", "✅", {}, ("elicitation",)),
    Case(
        "everything", "blocking sampling", "trigger-sampling-request", "LLM sampling", {"prompt": "hi"}, ("sampling",)
    ),
    Case("everything", "requestor task", "simulate-research-query", "# Research Report: bees", {"topic": "bees"}),
    Case(
        "everything",
        "question inside a task",
        "simulate-research-query",
        "# Research Report: python (programming)",
        {"topic": "python", "ambiguous": True},
        ("elicitation",),
    ),
    Case("everything", "receiver task", "trigger-elicitation-request-async", "[COMPLETED]", {}, ("elicitation",)),
    Case(
        "everything", "receiver task", "trigger-sampling-request-async", "[COMPLETED]", {"prompt": "hi"}, ("sampling",)
    ),
    Case("fastmcp", "`input_required` result", "ask", "accept Who, asked once", {"question": "Who?"}, ("elicitation",)),
    Case("fastmcp", "extension task", "work", "worked on bees", {"topic": "bees"}),
    Case("fastmcp", "extension task", "maybe", "worked on ants", {"topic": "ants"}),
    Case("fastmcp", "extension task, one input", "ask_one", "accept Who", {"question": "Who?"}, ("elicitation",)),
    Case("fastmcp", "extension task, one input", "sample_one", "m said word", {}, ("sampling",)),
    Case(
        "fastmcp",
        "extension task, several inputs",
        "ask_several",
        "accept First, accept Second, accept Third",
        {},
        ("elicitation", "elicitation", "elicitation"),
    ),
    Case("fastmcp", "cancelled task", "hold", ""),
    Case("fastmcp", "failed task", "fail", "it broke"),
    Case("fastmcp", "failed task", "refuse", "no, thank you"),
]

KNOWN_DEFECTS: Mapping[tuple[Via, PeerName, str], str] = {}
"""What does not work yet, by way, peer and tool; its tests fail until it is taken off here."""

RACES: frozenset[tuple[Via, PeerName, str]] = frozenset()
"""Which of it fails only if one answer of the server's overtakes another; `test_bad_peers` has it without the luck."""
