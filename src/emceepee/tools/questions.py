"""Answering servers: the elicitation and sampling tools."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from emceepee.core.questions import Question
from emceepee.tools.caller import Caller
from emceepee.tools.reply import Reply, json_reply
from emceepee.tools.tool import Input, JsonArgument, NoInput, Tool

__all__ = ["TOOLS"]

RequestId = Annotated[str, Field(description="From pending_client_action, or the get_ tool.")]


class RespondToElicitation(Input):
    request_id: RequestId
    action: Literal["accept", "decline", "cancel"] = Field(
        description="accept with content; decline: the user said no; cancel: the user did not choose."
    )
    content: JsonArgument | None = Field(
        None, description="With accept: the fields that params.requestedSchema asks for. None in URL mode."
    )


class RespondToSampling(Input):
    request_id: RequestId
    role: Literal["assistant", "user"] = "assistant"
    content: str | dict[str, Any] | list[dict[str, Any]] | None = Field(
        None, description="Your answer: text, or MCP content blocks."
    )
    model: str = Field("unknown", description="The name of the model that answered.")
    stop_reason: str | None = Field(None, description="Such as endTurn, maxTokens, toolUse.")
    reject: str | None = Field(None, description="Instead of an answer: why there will be none.")

    @model_validator(mode="after")
    def _answer_or_reject(self) -> RespondToSampling:
        if (self.reject is None) == (self.content is None):
            raise ValueError("expected either content, or reject with a reason")
        return self


async def get_elicitations(caller: Caller, _given: NoInput) -> Reply:
    pending = caller.session.open_questions("elicitation")
    return json_reply({"elicitations": [question.as_json() for question in pending]})


async def get_sampling_requests(caller: Caller, _given: NoInput) -> Reply:
    pending = caller.session.open_questions("sampling")
    return json_reply({"sampling_requests": [question.as_json() for question in pending]})


async def respond_to_elicitation(caller: Caller, given: RespondToElicitation) -> Reply:
    with caller.session.desk_for(given.request_id, "elicitation") as desk:
        question = await desk.answer_elicitation(given.request_id, given.action, given.content)
    return _answered(question, is_own=desk is caller.session.questions)


async def respond_to_sampling(caller: Caller, given: RespondToSampling) -> Reply:
    with caller.session.desk_for(given.request_id, "sampling") as desk:
        if given.reject is not None:
            question = await desk.reject(given.request_id, given.reject)
        else:
            question = await desk.answer_sampling(
                given.request_id,
                role=given.role,
                content=given.content or "",
                model=given.model,
                stop_reason=given.stop_reason,
            )
    return _answered(question, is_own=desk is caller.session.questions)


def _answered(question: Question, *, is_own: bool) -> Reply:
    # Another session's question may belong to a task, but that is another session's as well.
    task_id = question.task_id if is_own else None
    following = (
        "Call get_task_result or await_activity to go on."
        if task_id is not None
        else "Call await_activity to see what happens next."
    )
    return json_reply(
        {
            "success": True,
            "request_id": question.request_id,
            "task_id": task_id,
            "message": f"The answer was sent to {question.server}. {following}",
        }
    )


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "get_elicitations",
        "Questions of servers that wait for the user's input. Ask the user, then use respond_to_elicitation.",
        NoInput,
        get_elicitations,
        read_only=True,
    ),
    Tool(
        "respond_to_elicitation",
        "Answer a server's question with what the user said; the tool that asked goes on.",
        RespondToElicitation,
        respond_to_elicitation,
        open_world=True,
    ),
    Tool(
        "get_sampling_requests",
        "Requests of servers for a completion by you, the model. Answer with respond_to_sampling.",
        NoInput,
        get_sampling_requests,
        read_only=True,
    ),
    Tool(
        "respond_to_sampling",
        "Answer a server's request for a completion: read params.messages, write the answer. Or reject it.",
        RespondToSampling,
        respond_to_sampling,
        open_world=True,
    ),
)
