"""A server with tasks on the 1.x Python SDK: `tasks_server.py stdio`, or `tasks_server.py http` on a free port.

Its tools have the same names and answers as those of `tasks_server.mjs`, so that one test drives both. `statuses` says
how the server itself sees the tasks of its caller, which is how a test learns that a cancellation arrived. `wait` takes
until `release` is called with the same `gate`, and so does `work` if it has one; `open_url` wants a URL opened before
it does what it is asked.
"""

import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import anyio
import uvicorn
from mcp import types
from mcp.server.experimental.task_context import ServerTaskContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import McpError, UrlElicitationRequiredError
from starlette.applications import Starlette
from starlette.routing import Mount

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
WORDS = {
    "echo": "forbidden",
    "statuses": "forbidden",
    "wait": "forbidden",
    "release": "forbidden",
    "open_url": "forbidden",
    "elicit": "forbidden",
    "sample": "forbidden",
    "elicit_as_task": "forbidden",
    "sample_as_task": "forbidden",
    "cancel_own_question": "forbidden",
    "maybe": "optional",
    "work": "required",
    "elicit_inside": "required",
    "sample_inside": "required",
    "elicit_inside_as_task": "required",
    "sample_inside_as_task": "required",
    "hold": "required",
    "fail": "required",
    "refuse": "required",
}

server: Server[Any, Any] = Server("tasks-python-1x", version="1")
support = server.experimental.enable_tasks()
gates: dict[str, anyio.Event] = {}
opened: set[str] = set()


def text(words: str) -> list[types.TextContent]:
    return [types.TextContent(type="text", text=words)]


def elicited(answer: types.ElicitResult) -> str:
    return f"{answer.action} {(answer.content or {}).get('name', 'nothing')}"


def sampled(answer: types.CreateMessageResult) -> str:
    blocks = answer.content if isinstance(answer.content, list) else [answer.content]
    return f"{answer.model} said {blocks[0].text}"


@server.list_tools()
async def list_tools() -> list[types.Tool]:
    return [
        types.Tool(name=name, inputSchema={"type": "object"}, execution=types.ToolExecution(taskSupport=mode))
        for name, mode in WORDS.items()
    ]


async def echo(arguments: dict[str, Any]) -> str:
    return str(arguments.get("text", ""))


async def statuses(_arguments: dict[str, Any]) -> str:
    tasks, _ = await support.store.list_tasks()
    return ", ".join(task.status for task in tasks)


async def wait(arguments: dict[str, Any]) -> str:
    await gates.setdefault(arguments["gate"], anyio.Event()).wait()
    return f"waited at {arguments['gate']}"


async def release(arguments: dict[str, Any]) -> str:
    gates.setdefault(arguments["gate"], anyio.Event()).set()
    return "released"


async def open_url(arguments: dict[str, Any]) -> str:
    """Refuse until whoever calls has been told of the URL once."""
    words = question(arguments)
    if words not in opened:
        opened.add(words)
        asked = types.ElicitRequestURLParams(message=words, url="https://example.invalid/", elicitationId=words)
        raise UrlElicitationRequiredError([asked])
    return f"opened {words.rstrip('?')}"


async def elicit(arguments: dict[str, Any]) -> str:
    context = server.request_context
    return elicited(await context.session.elicit(question(arguments), SCHEMA, related_request_id=context.request_id))


async def sample(arguments: dict[str, Any]) -> str:
    context = server.request_context
    asked = context.session.create_message(prompt(arguments), max_tokens=5, related_request_id=context.request_id)
    return sampled(await asked)


async def elicit_as_task(arguments: dict[str, Any]) -> str:
    return elicited(await server.request_context.session.experimental.elicit_as_task(question(arguments), SCHEMA))


async def sample_as_task(arguments: dict[str, Any]) -> str:
    session = server.request_context.session
    return sampled(await session.experimental.create_message_as_task(prompt(arguments), max_tokens=5))


async def cancel_own_question(arguments: dict[str, Any]) -> str:
    """Ask with a task, find it in the client's list, cancel it, and be refused what cannot be done twice."""
    session = server.request_context.session
    params = types.ElicitRequestFormParams(
        message=question(arguments), requestedSchema=SCHEMA, task=types.TaskMetadata(ttl=60_000)
    )
    created = await session.send_request(
        types.ServerRequest(types.ElicitRequest(params=params)), types.CreateTaskResult
    )
    task_id = created.task.taskId
    listed = await session.send_request(types.ServerRequest(types.ListTasksRequest()), types.ListTasksResult)
    cancel = types.ServerRequest(types.CancelTaskRequest(params=types.CancelTaskRequestParams(taskId=task_id)))
    ended = await session.send_request(cancel, types.CancelTaskResult)
    try:
        await session.send_request(cancel, types.CancelTaskResult)
        again = 0
    except McpError as error:
        again = error.error.code
    return f"listed {task_id in [task.taskId for task in listed.tasks]}, {ended.status}, again {again}"


async def work(task: ServerTaskContext, arguments: dict[str, Any]) -> str:
    await task.update_status("reading")
    if "gate" in arguments:
        await wait(arguments)
    await task.update_status("writing")
    return f"worked on {arguments.get('topic', 'nothing')}"


async def elicit_inside(task: ServerTaskContext, arguments: dict[str, Any]) -> str:
    return elicited(await task.elicit(question(arguments), SCHEMA))


async def sample_inside(task: ServerTaskContext, arguments: dict[str, Any]) -> str:
    return sampled(await task.create_message(prompt(arguments), max_tokens=5))


async def elicit_inside_as_task(task: ServerTaskContext, arguments: dict[str, Any]) -> str:
    return elicited(await task.elicit_as_task(question(arguments), SCHEMA))


async def sample_inside_as_task(task: ServerTaskContext, arguments: dict[str, Any]) -> str:
    return sampled(await task.create_message_as_task(prompt(arguments), max_tokens=5))


async def hold(task: ServerTaskContext, _arguments: dict[str, Any]) -> str:
    await task.update_status("holding")
    await anyio.sleep_forever()
    return "unreachable"


async def fail(_task: ServerTaskContext, _arguments: dict[str, Any]) -> str:
    raise ValueError("it broke")


def question(arguments: dict[str, Any]) -> str:
    return str(arguments.get("question", "Name?"))


def prompt(arguments: dict[str, Any]) -> list[types.SamplingMessage]:
    words = str(arguments.get("question", "Say a word"))
    return [types.SamplingMessage(role="user", content=types.TextContent(type="text", text=words))]


CALLS: dict[str, Callable[[dict[str, Any]], Awaitable[str]]] = {
    "echo": echo,
    "statuses": statuses,
    "wait": wait,
    "release": release,
    "open_url": open_url,
    "elicit": elicit,
    "sample": sample,
    "elicit_as_task": elicit_as_task,
    "sample_as_task": sample_as_task,
    "cancel_own_question": cancel_own_question,
}
TASKS: dict[str, Callable[[ServerTaskContext, dict[str, Any]], Awaitable[str]]] = {
    "maybe": work,
    "work": work,
    "elicit_inside": elicit_inside,
    "sample_inside": sample_inside,
    "elicit_inside_as_task": elicit_inside_as_task,
    "sample_inside_as_task": sample_inside_as_task,
    "hold": hold,
    "fail": fail,
}


@server.call_tool(validate_input=False)
async def call_tool(name: str, arguments: dict[str, Any]) -> Any:
    context = server.request_context.experimental
    if name in CALLS:
        return text(await CALLS[name](arguments))
    if name == "maybe" and not context.is_task:
        return text(f"worked on {arguments.get('topic', 'nothing')}")
    context.validate_task_mode(WORDS[name])

    async def run(task: ServerTaskContext) -> types.CallToolResult:
        if name == "refuse":
            return types.CallToolResult(content=text("no, thank you"), isError=True)
        return types.CallToolResult(content=text(await TASKS[name](task, arguments)))

    return await context.run_task(run, model_immediate_response=f"{name} has begun")


async def over_stdio() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def over_http() -> None:
    manager = StreamableHTTPSessionManager(server)
    run_tasks = support.run
    # Each session would end the tasks of all when it ends; here they run until the program does.
    support.run = nullcontext

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with run_tasks(), manager.run():
            yield
            support.task_group.cancel_scope.cancel()

    app = Starlette(routes=[Mount("/mcp", app=manager.handle_request)], lifespan=lifespan)
    # Named as TCP, or asyncio does not turn off Nagle's algorithm and every answer takes 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(f"listening at http://127.0.0.1:{listener.getsockname()[1]}/mcp/", file=sys.stderr, flush=True)
    await uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve([listener])


if __name__ == "__main__":
    anyio.run({"stdio": over_stdio, "http": over_http}[sys.argv[1]])
