"""Follow everything that happens to tasks and questions on a connection, as a user interface would.

With `scripts/serve --demo` running, for questions:

    .venv/bin/python examples/watch_events.py http://127.0.0.1:8080/mcp/server/demo book_table

With `PORT=3001 npx -y @modelcontextprotocol/server-everything streamableHttp` running, for tasks:

    .venv/bin/python examples/watch_events.py http://127.0.0.1:3001/mcp simulate-research-query '{"topic": "bees"}'

Events are the same whoever made the call. What was last heard of each task is in `server.tasks`; the server knows best.
"""

import json
import sys

import anyio
import anyio.abc

from emceepee.client import (
    QuestionArrivedEvent,
    QuestionSettledEvent,
    ServerConnection,
    TaskCancelledEvent,
    TaskCompletedEvent,
    TaskCreated,
    TaskFailedEvent,
    TasksListedEvent,
    TaskStatus,
    connect,
)
from emceepee.errors import PeerError

METHOD_NOT_FOUND = -32601


async def watch(server: ServerConnection, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    with server.events.subscribe() as events:
        task_status.started()
        async for event in events:
            match event:
                case TaskCreated(task):
                    print(f"+ task {task.task_id}")
                case TaskStatus(task):
                    print(f"  task {task.task_id} is {task.status}")
                case TaskCompletedEvent(task_id) | TaskFailedEvent(task_id) | TaskCancelledEvent(task_id):
                    print(f"- task {task_id}: {type(event).__name__}")
                case TasksListedEvent(tasks):
                    print(f"  the server has {len(tasks)} tasks")
                case QuestionArrivedEvent(question):
                    print(f"? {question.message or question.kind}")
                    await question.reject("This program only watches")
                case QuestionSettledEvent(question, how):
                    print(f"  {question.kind}: {how}")


async def main(url: str, tool: str, arguments: str) -> None:
    # The connection is left first, which ends the events, and with them `watch`.
    async with anyio.create_task_group() as tasks, connect(url) as server:
        await tasks.start(watch, server)
        await server.list_tools()
        try:
            await server.call_tool_task(tool, json.loads(arguments))
        except PeerError as error:
            print(f"It failed: {error.message}")
        try:
            await server.list_tasks()
        except PeerError as error:
            if error.code != METHOD_NOT_FOUND:
                raise
            print("  the server keeps no list of tasks")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    target, tool, arguments = (*sys.argv[1:], "{}")[:3]
    anyio.run(main, target, tool, arguments)
