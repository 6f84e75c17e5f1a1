"""Call a tool that may take long, and hear of everything on the way to its result. With `scripts/serve --demo` running:

    .venv/bin/python examples/follow_a_task.py http://127.0.0.1:8080/mcp/server/demo slow '{"seconds": 5}'

Or with a program, here one that makes tasks:

    server="npx -y @modelcontextprotocol/server-everything"
    .venv/bin/python examples/follow_a_task.py "$server" simulate-research-query '{"topic": "bees"}'

Whether the tool runs as a task is between the server and the library: a tool that does not gives its result at once.
"""

import json
import shlex
import sys

import anyio

from emceepee.client import Error, Progress, Result, Stdio, Target, TaskCreated, TaskStatus, connect


def target_of(text: str) -> Target:
    """A URL, or the command that starts a server."""
    if text.startswith(("http://", "https://")):
        return text
    command, *args = shlex.split(text)
    return Stdio(command, args)


async def main(target: str, tool: str, arguments: str) -> None:
    async with connect(target_of(target)) as server:
        await server.list_tools()  # says which tools may, or must, be called as tasks
        async for update in server.call_tool_stream(tool, json.loads(arguments)):
            match update:
                case TaskCreated(task):
                    print(f"The server made a task of it: {task.task_id}")
                case TaskStatus(task):
                    print(f"It is {task.status}: {task.status_message or '-'}")
                case Progress(progress, total):
                    print(f"Progress: {progress} of {total}")
                case Result(result):
                    print(result["content"][0]["text"])
                case Error(error):
                    sys.exit(f"It failed: {error}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    target, tool, arguments = (*sys.argv[1:], "{}")[:3]
    anyio.run(main, target, tool, arguments)
