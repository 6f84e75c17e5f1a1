"""The hub as a program, driven by a client that we did not write, with tasks of servers that we did not write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from emceepee.client import Http
from tests.peers.drive import LineClient
from tests.peers.locate import program
from tests.process.hub_process import config_file, json_blocks, open_questions, own_json, proxy_task, serving
from tests.tasks.asking import LIMIT_S
from tests.tasks.cases import CASES, Case, answer_to
from tests.tasks.hubs import PATIENCE_MS
from tests.tasks.peers import Servers, Transport

pytestmark = pytest.mark.anyio

STORIES: list[tuple[str, Transport]] = [
    ("python-elicit_inside_as_task", "stdio"),
    ("npm-sample_inside", "stdio"),
    ("everything-trigger-elicitation-request-async", "HTTP"),
    ("fastmcp-ask_several", "HTTP"),
]
"""One for each peer: questions of every kind of task, on both transports."""


@pytest.mark.parametrize(("name", "transport"), STORIES, ids=[name for name, _ in STORIES])
async def test_a_call_that_asks_is_answered_and_fetched(
    name: str, transport: Transport, servers: Servers, tmp_path: Path
) -> None:
    (case,) = [case for case in CASES if str(case) == name]
    flags = config_file(tmp_path, {"peer": entry(servers, case, transport)})
    with anyio.fail_after(LIMIT_S), serving(*flags) as (url, _):
        async with LineClient(program("story_client.py"), url) as client:
            arguments = {"server": "peer", "tool": case.tool, "args": dict(case.args), "timeout_ms": PATIENCE_MS}
            promoted = await client.call("execute_tool", arguments)
            task_id = proxy_task(promoted)["task_id"]
            answered = 0
            told = promoted
            while answered < len(case.questions):
                for question in [*open_questions(told, "elicitations"), *open_questions(told, "sampling_requests")]:
                    assert question["task_id"] == task_id
                    await answer(client, question)
                    answered += 1
                told = await client.call("await_activity")
            result = await client.call("get_task_result", {"task_id": task_id})
            while any("questions" in block for block in json_blocks(result)):
                result = await client.call("get_task_result", {"task_id": task_id})
            listed = own_json(await client.call("list_tasks", {"include_completed": True}))["tasks"]
    assert result["content"][0]["text"].startswith(case.text)
    assert result.get("isError", False) is False
    assert [(task["task_id"], task["status"], task["origin"]) for task in listed] == [
        (task_id, "completed", "native" if case.is_native else "promoted")
    ]


async def answer(client: LineClient, question: dict[str, Any]) -> None:
    given = answer_to(question["kind"], question["params"])
    if question["kind"] == "elicitation":
        told = await client.call("respond_to_elicitation", {"request_id": question["request_id"], **given})
    else:
        facts = {"request_id": question["request_id"], "content": given["content"], "model": given["model"]}
        told = await client.call("respond_to_sampling", facts)
    assert own_json(told)["success"] is True


def entry(servers: Servers, case: Case, transport: Transport) -> dict[str, Any]:
    target = servers.target(case.peer, transport)
    if isinstance(target, Http):
        return {"url": target.url}
    return {"command": target.command, "args": list(target.args), "env": dict(target.env)}
