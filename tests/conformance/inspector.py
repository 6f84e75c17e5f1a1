"""Asking a server with the inspector's command line, and what of an answer is not the server's own doing.

The inspector picks the era by `--protocol-era`: `legacy` is the handshake, `modern` insists on 2026-07-28.
"""

import base64
import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.peers.locate import node_script

__all__ = ["Answer", "Question", "ask_all", "in_every_era", "in_every_run"]

ASK_LIMIT_S = 180
"""The slowest answer takes five seconds, on purpose."""

AT_A_TIME = 3
"""Most of a question's time is Node's start, on a core of its own."""

CLOCK = re.compile(r"\d{1,2}:\d\d:\d\d\s[AP]M")
RELATED_TASK = "io.modelcontextprotocol/related-task"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"

Json = Any


@dataclass(frozen=True)
class Question:
    """A method of the inspector's, and the flags that go with it."""

    method: str
    flags: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.method, *self.flags))


@dataclass(frozen=True)
class Answer:
    """How the inspector ended, and what it had to say: a result, an error, or, for an error result, both."""

    status: int
    result: Json
    error: Json


def ask_all(url: str, era: str, questions: Sequence[Question], home: Path) -> Mapping[Question, Answer]:
    """Every answer; each question has a connection of its own. The inspector keeps its files in `home`."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        answers = pool.map(lambda question: _ask(url, era, question, home), questions)
        return dict(zip(questions, answers, strict=True))


def _ask(url: str, era: str, question: Question, home: Path) -> Answer:
    options = ["--cli", "--format", "json", "--transport", "http", "--server-url", url, "--protocol-era", era]
    command = [*node_script("mcp-inspector"), *options, "--method", question.method, *question.flags]
    environment = {**os.environ, "HOME": str(home)}
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=ASK_LIMIT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return Answer(done.returncode, _json(done.stdout, "result"), _json(done.stderr, "error"))


def _json(said: str, key: str) -> Json:
    """What is under `key` in the last line, or all the words where there is no such line."""
    last = said.strip().splitlines()[-1:]
    try:
        return json.loads(last[0])[key] if last else None
    except (ValueError, KeyError):
        return said


def in_every_run(value: Json) -> Json:
    """An answer without what two runs against the same server give differently.

    That is: the time of day in the texts and blobs of resources that are made when they are read, and a task's id.
    """
    match value:
        case Answer(status, result, error):
            return Answer(status, in_every_run(result), in_every_run(error))
        case {"blob": str(blob), **rest}:
            decoded = base64.b64decode(blob).decode("utf-8", "replace")
            plain = base64.b64encode(CLOCK.sub("<time>", decoded).encode()).decode() if CLOCK.search(decoded) else blob
            return {"blob": plain, **in_every_run(rest)}
        case dict():
            return {key: "<task>" if key == "taskId" else in_every_run(item) for key, item in value.items()}
        case list():
            return [in_every_run(item) for item in value]
        case str():
            return CLOCK.sub("<time>", value)
    return value


def in_every_era(answer: Answer) -> Answer:
    """An answer without what belongs to one era alone, and is therefore never the same over the bridge.

    That is: the revision; tasks as a capability and as an extension; what the modern era adds to each result and the
    handshake era to a task's; and `execution` of a tool, which the inspector does not show in the modern era.
    """
    if not isinstance(answer.result, dict):
        return answer
    result = {key: item for key, item in answer.result.items() if key not in OF_ONE_ERA}
    if meta := {key: item for key, item in answer.result.get("_meta", {}).items() if key not in META_OF_ONE_ERA}:
        result["_meta"] = meta
    if "capabilities" in result:
        result["capabilities"] = _without(result["capabilities"], "tasks", "extensions")
    if "tools" in result:
        result["tools"] = [_without(tool, "execution") for tool in result["tools"]]
    return Answer(answer.status, result, answer.error)


OF_ONE_ERA = {"_meta", "resultType", "ttlMs", "cacheScope", "protocolVersion"}
META_OF_ONE_ERA = {SERVER_INFO, RELATED_TASK}


def _without(value: dict[str, Json], *keys: str) -> dict[str, Json]:
    return {key: item for key, item in value.items() if key not in keys}
