"""The inspector's command line gets the same answers from a server that others wrote, directly and through the hub.

`server-everything` speaks the handshake era alone. A modern inspector is bridged by the hub, so its answers are
compared with those that a handshake inspector gets directly, but for what belongs to one era.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.endpoint import through
from tests.conformance.inspector import Answer, Question, ask_all, in_every_era, in_every_run
from tests.peers.locate import node_script
from tests.process.everything import everything_over_http
from tests.process.hub_process import config_file, serving

LEGACY, MODERN = "legacy", "modern"


def tool(name: str, /, **arguments: Any) -> Question:
    return Question("tools/call", ("--tool-name", name, "--tool-args-json", json.dumps(arguments)))


def read(uri: str) -> Question:
    return Question("resources/read", ("--uri", uri))


def prompt(name: str, *arguments: str) -> Question:
    given = ("--prompt-args", *arguments) if arguments else ()
    return Question("prompts/get", ("--prompt-name", name, *given))


# One of each kind, for each costs the start of a Node: results with every kind of content, error results and errors,
# progress, roots, a native task. What asks the user is not offered to the inspector: a command line cannot ask.
QUESTIONS = (
    Question("initialize"),
    Question("tools/list"),
    Question("resources/list"),
    Question("resources/templates/list"),
    Question("prompts/list"),
    tool("echo", message="line one\nline two, ünï"),
    tool("get-annotated-message", messageType="error", includeImage=True),
    tool("get-resource-reference", resourceType="Blob", resourceId=2),
    tool("get-structured-content", location="Chicago"),
    tool("get-sum", a=1),
    tool("gzip-file-as-resource", name="a.gz", data="data:text/plain,hello", outputType="resource"),
    tool("trigger-long-running-operation", duration=0.2, steps=2),
    tool("get-roots-list"),
    tool("simulate-research-query", topic="bridges"),
    read("demo://resource/dynamic/text/1"),
    read("demo://resource/static/document/features.md"),
    read("demo://nothing"),
    prompt("args-prompt", "city=Paris", "state=Texas"),
    prompt("args-prompt"),
    prompt("resource-prompt", "resourceType=Text", "resourceId=1"),
)

IN_THE_HANDSHAKE_ERA = (*QUESTIONS, Question("logging/setLevel", ("--log-level", "debug")))
"""The modern era has a log level with each request instead, and the inspector no such method."""

Answers = Mapping[Question, Answer]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def everything() -> Iterator[str]:
    node_script("mcp-inspector")
    with everything_over_http() as url:
        yield url


@pytest.fixture(scope="module")
def at_the_hub(everything: str, home: Path) -> Iterator[str]:
    with serving(*config_file(home, {"everything": {"url": everything}})) as (hub, _):
        yield through(hub, "everything")


@pytest.fixture(scope="module")
def direct(everything: str, home: Path) -> Answers:
    return ask_all(everything, LEGACY, IN_THE_HANDSHAKE_ERA, home)


@pytest.fixture(scope="module")
def legacy(at_the_hub: str, home: Path) -> Answers:
    return ask_all(at_the_hub, LEGACY, IN_THE_HANDSHAKE_ERA, home)


@pytest.fixture(scope="module")
def modern(at_the_hub: str, home: Path) -> Answers:
    return ask_all(at_the_hub, MODERN, QUESTIONS, home)


def test_the_server_answers_directly(direct: Answers) -> None:
    """What is compared below is something: results, error results and errors, as many of each as were asked for."""
    statuses = [answer.status for answer in direct.values()]
    assert {status: statuses.count(status) for status in set(statuses)} == {0: 18, 5: 1, 1: 2}
    assert direct[Question("initialize")].result["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize("question", IN_THE_HANDSHAKE_ERA, ids=str)
def test_the_answer_is_the_same_through_the_hub(direct: Answers, legacy: Answers, question: Question) -> None:
    assert in_every_run(legacy[question]) == in_every_run(direct[question])


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_a_modern_client_gets_the_same_answer_over_the_bridge(
    direct: Answers, modern: Answers, question: Question
) -> None:
    assert in_every_era(in_every_run(modern[question])) == in_every_era(in_every_run(direct[question]))


# What is left out, and that it is nothing else


def test_only_times_and_tasks_differ_between_runs() -> None:
    def answer(time: str, task: str) -> Answer:
        words = f"made at {time}"
        contents = [{"text": words}, {"blob": base64.b64encode(words.encode()).decode()}]
        return Answer(0, {"contents": contents, "_meta": {"related": {"taskId": task}}}, None)

    one, other = answer("9:51:44 AM", "1"), answer("11:51:45 PM", "2")
    assert one != other
    assert in_every_run(one) == in_every_run(other)


@pytest.mark.parametrize(
    "other",
    [
        Answer(1, {"text": "a"}, None),
        Answer(0, {"text": "b"}, None),
        Answer(0, {"text": "a", "more": 1}, None),
        Answer(0, {"text": "a"}, {"message": "no"}),
        Answer(0, {}, None),
    ],
)
def test_any_other_difference_is_one(other: Answer) -> None:
    assert in_every_era(in_every_run(other)) != in_every_era(in_every_run(Answer(0, {"text": "a"}, None)))


def test_a_blob_that_tells_no_time_is_compared_byte_by_byte() -> None:
    assert in_every_run({"blob": "AAEC"}) == {"blob": "AAEC"}
    assert in_every_run({"blob": "AAEC"}) != in_every_run({"blob": "AAED"})


def test_what_belongs_to_one_era_is_left_out() -> None:
    info = {"io.modelcontextprotocol/serverInfo": {"name": "a", "version": "1"}}
    modern = {"contents": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private", "_meta": info}
    assert in_every_era(Answer(0, modern, None)) == Answer(0, {"contents": []}, None)
    kept = {"contents": [], "_meta": {"theirs": 1}}
    assert in_every_era(Answer(0, kept, None)) == Answer(0, kept, None)
