"""Call a tool that asks back, and answer its questions on the terminal. With `scripts/serve --demo` running:

    .venv/bin/python examples/answer_questions.py http://127.0.0.1:8080/mcp/server/demo book_table '{"guests": 2}'

With `receiver_tasks` a server may ask without waiting: it gets a task at once, and comes back for the answer. The code
below does not notice, because a question is answered in the same way however it arrived.
"""

import json
import sys

import anyio

from emceepee.client import ClientOptions, Question, ServerConnection, connect


async def ask(prompt: str) -> str:
    print(prompt, end=" ", flush=True)
    line: str = await anyio.to_thread.run_sync(sys.stdin.readline)
    return line.strip()


async def answer(question: Question) -> None:
    if question.kind == "sampling":
        for message in question.params["messages"]:
            print(f"[{message['role']}] {message['content']['text']}")
        content = {"type": "text", "text": await ask("What would a model say?")}
        await question.respond({"role": "assistant", "content": content, "model": "a person"})
    else:
        print(question.message)
        fields = question.params["requestedSchema"]["properties"]
        filled = {name: text for name in fields if (text := await ask(f"{name}:"))}
        await (question.accept(filled) if filled else question.decline())


async def answer_all(server: ServerConnection) -> None:
    async for question in server.questions():
        await answer(question)


async def main(url: str, tool: str, arguments: str) -> None:
    options = ClientOptions(receiver_tasks=True)
    async with connect(url, options=options) as server, anyio.create_task_group() as tasks:
        tasks.start_soon(answer_all, server)
        await server.list_tools()
        result = await server.call_tool_task(tool, json.loads(arguments))
        print(result["content"][0]["text"])
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    target, tool, arguments = (*sys.argv[1:], "{}")[:3]
    anyio.run(main, target, tool, arguments)
