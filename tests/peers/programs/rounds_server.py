"""A server of 2026-07-28 on the 2.x Python SDK: `rounds_server.py stdio`, or `rounds_server.py http` on a free port.

`ask` and `sample` answer `input_required` first, and their result when they are called again with the answer. `wait`
takes until `release` is called with the same `gate`.
"""

import socket
import sys
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

NAMES = ("echo", "wait", "release", "ask", "sample")
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

gates: dict[str, anyio.Event] = {}


def text(words: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=words)])


def asked(request: Any) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests={"answer": request}, request_state="asked once")


async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool(name=name, input_schema={"type": "object"}) for name in NAMES])


async def call_tool(_ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult | types.InputRequiredResult:
    arguments = params.arguments or {}
    answer = (params.input_responses or {}).get("answer")
    match params.name:
        case "echo":
            return text(str(arguments.get("text", "")))
        case "wait":
            await gates.setdefault(arguments["gate"], anyio.Event()).wait()
            return text(f"waited at {arguments['gate']}")
        case "release":
            gates.setdefault(arguments["gate"], anyio.Event()).set()
            return text("released")
        case "ask" if answer is None:
            form = types.ElicitRequestFormParams(message=arguments["question"], requested_schema=SCHEMA)
            return asked(types.ElicitRequest(params=form))
        case "ask":
            return text(f"{answer.action} {(answer.content or {}).get('name', 'nothing')}, {params.request_state}")
        case "sample" if answer is None:
            message = types.SamplingMessage(role="user", content=types.TextContent(text=arguments["question"]))
            return asked(
                types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=5))
            )
        case "sample":
            return text(f"{answer.model} said {answer.content.text}, {params.request_state}")
        case _:
            raise ValueError(f"there is no tool {params.name}")


server: Server[Any] = Server("rounds-python-2x", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


async def over_stdio() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def over_http() -> None:
    # Named as TCP, or asyncio does not turn off Nagle's algorithm and every answer takes 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(f"listening at http://127.0.0.1:{listener.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="warning", timeout_graceful_shutdown=1)
    await uvicorn.Server(config).serve([listener])


if __name__ == "__main__":
    anyio.run({"stdio": over_stdio, "http": over_http}[sys.argv[1]])
