"""Answers to a server's questions: what fits, and what the protocol makes of it."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emceepee.core.questions import TRANSITIONS, Question
from emceepee.errors import InvalidArguments
from emceepee.hub.answers import (
    SHOWN_PROBLEMS,
    STATE_OF_ACTION,
    ElicitationAction,
    elicitation_result,
    sampling_result,
)
from tests.core.clockwork import EXAMPLES, START
from tests.requirements import requirement

BOOKING = {
    "type": "object",
    "properties": {
        "guests": {"type": "integer", "minimum": 1, "maximum": 12},
        "date": {"type": "string", "format": "date"},
        "smoking": {"type": "boolean"},
        "menu": {"type": "string", "enum": ["fish", "meat"]},
        "name": {"type": "string", "minLength": 2},
    },
    "required": ["guests"],
}


def elicitation(**params: Any) -> Question:
    return Question("question-1", "elicitation", "demo", START, START + 600, params, "request", "exact")


def form(schema: object) -> Question:
    return elicitation(message="A table?", requestedSchema=schema)


def problems_with(schema: object, content: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The keys that are complained of."""
    with pytest.raises(InvalidArguments) as refused:
        elicitation_result(form(schema), "accept", content)
    assert refused.value.code == "INVALID_ARGUMENTS"
    assert refused.value.hint
    return tuple(problem.partition(":")[0] for problem in refused.value.problems)


# Forms


@pytest.mark.parametrize(
    "content",
    [
        {"guests": 2},
        {"guests": 12, "date": "2027-01-15", "smoking": False, "menu": "fish", "name": "Ada"},
        {"guests": 1, "wishes": "a window"},
    ],
)
def test_content_that_fits_its_schema_is_passed_on_untouched(content: dict[str, Any]) -> None:
    assert elicitation_result(form(BOOKING), "accept", content) == {"action": "accept", "content": content}


@requirement("T000-content-checked")
@pytest.mark.parametrize(
    ("content", "keys"),
    [
        (None, ("content",)),
        ({}, ("content",)),
        ({"guests": "two"}, ("content.guests",)),
        ({"guests": 0}, ("content.guests",)),
        ({"guests": 13}, ("content.guests",)),
        ({"guests": 2.5}, ("content.guests",)),
        ({"guests": True}, ("content.guests",)),
        ({"guests": None}, ("content.guests",)),
        ({"guests": 2, "menu": "cake"}, ("content.menu",)),
        ({"guests": 2, "smoking": "no"}, ("content.smoking",)),
        ({"guests": 2, "name": "A"}, ("content.name",)),
        ({"guests": 2, "name": "A", "menu": "cake"}, ("content.menu", "content.name")),
    ],
)
def test_content_that_does_not_fit_is_refused_with_its_keys(
    content: Mapping[str, Any] | None, keys: tuple[str, ...]
) -> None:
    assert tuple(sorted(problems_with(BOOKING, content))) == keys


def test_a_key_inside_a_list_is_named_with_its_place() -> None:
    schema = {"type": "object", "properties": {"names": {"type": "array", "items": {"type": "string"}}}}
    assert problems_with(schema, {"names": ["Ada", 1]}) == ("content.names.1",)


def test_only_the_first_few_of_many_problems_are_listed() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "string"}}
    assert len(problems_with(schema, {str(number): number for number in range(50)})) == SHOWN_PROBLEMS


def test_a_form_that_asks_for_nothing_is_accepted_empty() -> None:
    question = form({"type": "object", "properties": {}})
    assert elicitation_result(question, "accept", None) == {"action": "accept", "content": {}}


def test_the_answer_is_a_copy_of_the_content() -> None:
    content = {"guests": 2}
    result = elicitation_result(form(BOOKING), "accept", content)
    content["guests"] = 3
    assert result == {"action": "accept", "content": {"guests": 2}}


@EXAMPLES
@given(guests=st.integers())
def test_the_bounds_of_a_number_decide_whatever_the_number(guests: int) -> None:
    if 1 <= guests <= 12:
        assert elicitation_result(form(BOOKING), "accept", {"guests": guests})["content"] == {"guests": guests}
    else:
        assert problems_with(BOOKING, {"guests": guests}) == ("content.guests",)


# Decline and cancel


@pytest.mark.parametrize("action", ["decline", "cancel"])
@pytest.mark.parametrize("content", [None, {}, {"guests": "wrong"}])
@pytest.mark.parametrize("question", [form(BOOKING), form({"type": "nonsense"}), elicitation(mode="url", url="x")])
def test_declining_and_cancelling_need_no_content_and_send_none(
    question: Question, action: ElicitationAction, content: dict[str, Any] | None
) -> None:
    assert elicitation_result(question, action, content) == {"action": action}


def test_every_action_has_the_state_that_a_question_can_end_in() -> None:
    assert set(STATE_OF_ACTION) == set(get_args(ElicitationAction))
    assert set(STATE_OF_ACTION.values()) <= TRANSITIONS["elicitation"]


# URL mode


@requirement("T000-url-mode")
@pytest.mark.parametrize("content", [None, {}])
def test_a_url_question_is_accepted_without_content(content: dict[str, Any] | None) -> None:
    question = elicitation(mode="url", message="Sign in", url="https://example.com/login", elicitationId="e1")
    assert elicitation_result(question, "accept", content) == {"action": "accept"}


def test_a_url_question_takes_no_content() -> None:
    question = elicitation(mode="url", message="Sign in", url="https://example.com/login", elicitationId="e1")
    with pytest.raises(InvalidArguments) as refused:
        elicitation_result(question, "accept", {"password": "hunter2"})
    assert refused.value.code == "INVALID_ARGUMENTS"
    assert "hunter2" not in f"{refused.value} {refused.value.hint}"


@pytest.mark.parametrize("params", [{"mode": "form"}, {}])
def test_form_is_the_mode_where_none_is_named(params: dict[str, str]) -> None:
    question = elicitation(**params, message="A table?", requestedSchema=BOOKING)
    assert elicitation_result(question, "accept", {"guests": 2}) == {"action": "accept", "content": {"guests": 2}}
    with pytest.raises(InvalidArguments):
        elicitation_result(question, "accept", {"guests": 0})


# Schemas that are none


@pytest.mark.parametrize(
    "schema",
    [
        None,
        "object",
        [],
        {"type": "nonsense"},
        {"properties": {"guests": {"minimum": "one"}}},
        {"properties": {"guests": {"pattern": "("}}},
        {"required": "guests"},
        {"$ref": 1},
    ],
)
def test_a_schema_that_is_none_stands_in_nobodys_way(schema: object) -> None:
    content = {"guests": "two"}
    assert elicitation_result(form(schema), "accept", content) == {"action": "accept", "content": content}


@pytest.mark.parametrize("schema", [{"$ref": "#/nowhere"}, {"$ref": "#"}, {"$dynamicRef": "#nobody"}])
def test_a_schema_that_refers_to_nothing_stands_in_nobodys_way(schema: Mapping[str, Any]) -> None:
    assert elicitation_result(form(schema), "accept", {"a": 1}) == {"action": "accept", "content": {"a": 1}}


def test_a_schema_cannot_make_the_hub_open_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def urlopen(request: urllib.request.Request | str, *_args: object, **_options: object) -> None:
        opened.append(request if isinstance(request, str) else request.full_url)
        raise OSError

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    result = None
    try:
        result = elicitation_result(form({"$ref": "http://127.0.0.1:1/latest/meta-data"}), "accept", {"a": 1})
    finally:
        assert opened == []
    assert result == {"action": "accept", "content": {"a": 1}}


# Sampling

TEXT = {"type": "text", "text": "Paris"}
IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png", "_meta": {"unknown": True}}


@pytest.mark.parametrize(
    ("content", "sent"),
    [
        ("Paris", TEXT),
        ("", {"type": "text", "text": ""}),
        (TEXT, TEXT),
        (IMAGE, IMAGE),
        ([TEXT], TEXT),
        ([TEXT, IMAGE], [TEXT, IMAGE]),
    ],
)
def test_text_a_block_or_blocks_become_the_content_of_a_message(content: Any, sent: Any) -> None:
    assert sampling_result("assistant", content, "model-1", "endTurn") == {
        "role": "assistant",
        "content": sent,
        "model": "model-1",
        "stopReason": "endTurn",
    }


def test_a_message_without_a_stop_reason_has_none() -> None:
    assert sampling_result("user", "Hi", "m", None) == {
        "role": "user",
        "content": {"type": "text", "text": "Hi"},
        "model": "m",
    }


def test_a_message_is_a_copy_of_the_blocks_it_was_made_of() -> None:
    block = dict(TEXT)
    result = sampling_result("assistant", [block, block], "m", None)
    block["text"] = "London"
    assert result["content"] == [TEXT, TEXT]
