"""An MCP server that behaves oddly on purpose: `odd_server.py <oddity>`. Nothing but the standard library.

    none             an ordinary server of the handshake era
    garbage          prints lines that are no messages between its messages
    silent           reads, and never says a word
    dies             exits with status 7 when it is asked to initialize
    floods           sends notifications without a pause from the first `tools/call` on
    chatters         writes to stderr without a pause from the first `tools/call` on
    deaf             answers the first `tools/call`, and reads and says nothing any more
    no-output        closes its output when `tools/call` comes, and lives on
    stubborn         ignores the end of its input and SIGTERM, and has a child that does so too
    METHOD=JSON      answers METHOD with `"result": JSON`

Its tools: `hello` says hello, `pids` tells its process ids, `wait` answers when the file `until` is there, or never. It
tells of each call of `wait` with `notifications/odd/waiting`, and of each cancellation that comes with
`notifications/odd/cancelled`.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from itertools import count
from typing import Any

ODDITY = sys.argv[1] if len(sys.argv) > 1 else "none"
ODD_METHOD, _, ODD_RESULT = ODDITY.partition("=")
CHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"

pids = [os.getpid()]
saying = threading.Lock()


def say(message: dict[str, Any]) -> None:
    if ODDITY == "silent":
        return
    if ODDITY == "garbage":
        print("loading plugins... done", "{not json", "[1, 2", '{"hello": "world"}', "\x00\xff", sep="\n", flush=True)
    with saying:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}}


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request; None if there is none to come."""
    if method == "initialize":
        info = {"name": "odd", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [tool("hello"), tool("pids"), tool("wait")]}
    called = params.get("name")
    if called == "wait":
        say({"method": "notifications/odd/waiting"})
    return {"hello": text("hello"), "pids": text(json.dumps(pids)), "wait": None}[str(called)]


def answer_when_there(key: Any, path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.02)
    say({"id": key, "result": text("it is there")})


def answer(request: dict[str, Any]) -> None:
    method, key = request["method"], request["id"]
    if method == ODD_METHOD and ODD_RESULT:
        say({"id": key, "result": json.loads(ODD_RESULT)})
    elif method == "initialize" and ODDITY == "dies":
        sys.exit(7)
    elif method == "tools/call" and ODDITY == "no-output":
        os.close(1)
    elif method not in ("initialize", "tools/list", "tools/call"):
        say({"id": key, "error": {"code": -32601, "message": "Method not found"}})
    elif (result := result_of(method, request.get("params", {}))) is not None:
        say({"id": key, "result": result})
    elif path := request["params"].get("arguments", {}).get("until"):
        threading.Thread(target=answer_when_there, args=(key, path), daemon=True).start()


def flood() -> None:
    for number in count():
        say({"method": "notifications/odd/tick", "params": {"n": number}})


def chatter() -> None:
    while True:
        print("x" * 99, file=sys.stderr)


def turn_bad() -> None:
    if ODDITY in ("floods", "chatters"):
        threading.Thread(target={"floods": flood, "chatters": chatter}[ODDITY], daemon=True).start()
    elif ODDITY == "deaf":
        time.sleep(600)


def main() -> None:
    if ODDITY == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        pids.append(child.pid)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            answer(message)
            if message["method"] == "tools/call":
                turn_bad()
        elif message.get("method") == "notifications/cancelled":
            say({"method": "notifications/odd/cancelled", "params": message["params"]})
    while ODDITY in ("stubborn", "no-output"):
        time.sleep(600)


if __name__ == "__main__":
    main()
