"""Answering a server's question: what an answer must look like, and how it becomes the protocol's own result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Literal, TypeAlias

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from emceepee.core.questions import Question, QuestionState
from emceepee.errors import InvalidArguments

__all__ = ["STATE_OF_ACTION", "ElicitationAction", "elicitation_result", "sampling_result"]

JsonObject: TypeAlias = dict[str, Any]
ElicitationAction: TypeAlias = Literal["accept", "decline", "cancel"]

STATE_OF_ACTION: Mapping[ElicitationAction, QuestionState] = {
    "accept": "accepted",
    "decline": "declined",
    "cancel": "cancelled",
}

SHOWN_PROBLEMS = 5
"""How many violations of a schema are listed; more would not be read."""


# Regular expressions of a server's are left to the server: one that backtracks would hold up everybody.
_Validator: type[Any] = extend(  # type: ignore[no-untyped-call]  # the stubs leave it out
    Draft202012Validator, {"pattern": None, "patternProperties": None}
)


def elicitation_result(question: Question, action: ElicitationAction, content: Mapping[str, Any] | None) -> JsonObject:
    """The `ElicitResult` for an answer.

    Raises:
        InvalidArguments: the content does not fit what was asked for.
    """
    if action != "accept":
        return {"action": action}
    if question.params.get("mode") == "url":
        if content:
            raise InvalidArguments(
                ["content: the server asked to have a URL opened, and takes no content"],
                "Answer with action accept and no content once the user has agreed to open the URL.",
            )
        return {"action": "accept"}
    problems = schema_problems(question.params.get("requestedSchema"), content or {})
    if problems:
        raise InvalidArguments(problems, "Fill in content as params.requestedSchema of the elicitation says.")
    return {"action": "accept", "content": dict(content or {})}


def schema_problems(schema: object, content: Mapping[str, Any]) -> list[str]:
    """How `content` breaks `schema`, one line each; a schema that is none itself is the server's business."""
    if not isinstance(schema, Mapping):
        return []
    try:
        _Validator.check_schema(schema)
        # An empty registry: the default one would fetch whatever URL the server puts into a `$ref`.
        validator = _Validator(schema, registry=Registry(), format_checker=FormatChecker())
        errors = list(islice(validator.iter_errors(dict(content)), SHOWN_PROBLEMS))
    except (SchemaError, Unresolvable, RecursionError):
        return []
    return [
        f"content.{'.'.join(str(part) for part in error.absolute_path)}: {error.message}"
        if error.absolute_path
        else f"content: {error.message}"
        for error in errors
    ]


def sampling_result(
    role: str, content: str | Mapping[str, Any] | Sequence[Mapping[str, Any]], model: str, stop_reason: str | None
) -> JsonObject:
    """The `CreateMessageResult` for an answer; a lone block goes out bare, as servers before 2025-11-25 need it."""
    blocks: Any
    if isinstance(content, str):
        blocks = {"type": "text", "text": content}
    elif isinstance(content, Mapping):
        blocks = dict(content)
    else:
        blocks = [dict(block) for block in content]
        if len(blocks) == 1:
            blocks = blocks[0]
    result: JsonObject = {"role": role, "content": blocks, "model": model}
    if stop_reason is not None:
        result["stopReason"] = stop_reason
    return result
