"""What a call needs to go on elsewhere, to JSON and back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from emceepee.client import Question, Resumption
from emceepee.client.resumption import InputRound, OpenInput, ResultRequest, UnansweredRequest
from emceepee.core.questions import Belonging
from emceepee.errors import PeerError

pytestmark = pytest.mark.anyio

REQUEST: dict[str, Any] = {"method": "elicitation/create", "params": {"message": "Name?"}}


def question() -> Question:
    return Question("elicitation", REQUEST["params"], arrival="task_input", belongs_to=Belonging(None, "exact"))


def copied(resumption: Resumption) -> Resumption:
    return Resumption.from_json(json.loads(json.dumps(resumption.as_json())))


async def test_answers_given_so_far_come_along() -> None:
    open_, answered, rejected = question(), question(), question()
    await answered.accept({"name": "Ada"})
    await rejected.reject()
    inputs = {"open": open_, "answered": answered, "rejected": rejected}
    resumption = Resumption(inputs={key: OpenInput.of(REQUEST) for key in inputs})
    for key, asked in inputs.items():
        resumption.inputs[key].question = asked
    resumption.inputs["answered"].is_delivered = True
    again = copied(resumption)
    answers = {key: (entry.answer, entry.is_delivered) for key, entry in again.inputs.items()}
    given = {"action": "accept", "content": {"name": "Ada"}}
    assert answers == {"open": (None, False), "answered": (given, True), "rejected": (None, False)}
    assert (again.inputs["open"].method, again.inputs["open"].params) == ("elicitation/create", {"message": "Name?"})
    assert copied(again) == again


@pytest.mark.parametrize("state", [{}, {"requestState": "s"}, {"requestState": None}])
def test_the_state_of_a_round_goes_back_as_it_came(state: dict[str, Any]) -> None:
    result = {"resultType": "input_required", "inputRequests": {"q": REQUEST}, **state}
    again = copied(Resumption(round=InputRound.of(result)))
    assert again.is_possible
    assert again.round is not None
    assert (again.round.state, list(again.round.inputs)) == (state, ["q"])


def test_a_request_that_was_left_open_is_known() -> None:
    left = ResultRequest("session-1", 7)
    assert copied(Resumption(result_request=left)).result_request == left
    assert not Resumption(result_request=left).is_possible


def test_an_entry_is_found_by_how_its_question_came() -> None:
    of_task, of_round = OpenInput.of(1), OpenInput.of(2)
    resumption = Resumption(inputs={"q": of_task}, round=InputRound({"q": of_round}, {}))
    assert resumption.input("task_input", "q") is of_task
    assert resumption.input("input_required", "q") is of_round
    assert resumption.input("input_required", "other") is None
    assert resumption.input("input_required", None) is None
    assert Resumption().input("input_required", "q") is None


@pytest.mark.parametrize("request_", [None, 1, [], {"method": 1}, {"params": []}])
def test_a_request_that_is_none_asks_nothing(request_: object) -> None:
    entry = OpenInput.of(request_)
    assert (entry.method, entry.params) == (None, {})


def test_requests_that_are_no_object_are_the_servers_error() -> None:
    with pytest.raises(PeerError):
        InputRound.of({"inputRequests": [1]})


def test_what_the_server_waits_for_is_known() -> None:
    left = [UnansweredRequest("session-1", 7), UnansweredRequest("session-1", "ask-1")]
    assert copied(Resumption(unanswered=left)).unanswered == left
    before = Resumption().as_json()
    del before["unanswered"]
    assert Resumption.from_json(before) == Resumption(), "as earlier versions wrote it"
