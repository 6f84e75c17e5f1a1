"""A server that turns bad when it is told to: `bad_server.py [FLAG]`. Nothing but the standard library.

Its tool `begin` takes `kind` and `rate` and starts one of these; `stop` ends the first two.

    flood    `rate` notifications a second, each different
    stderr   `rate` lines of 100 bytes a second on stderr
    hang     it reads and answers no more
    crash    it exits, and does so again right after each start for as long as the file FLAG is there
"""

import json
import os
import sys
import threading
import time
from itertools import count
from typing import Any

FLAG = sys.argv[1] if len(sys.argv) > 1 else ""
TICKS_PER_S = 50
"""Bursts a second in which the rate is made up: a timer for each message would be the bench of a timer."""

writing = threading.Lock()
stopped = threading.Event()


def say(text: str) -> None:
    with writing:
        sys.stdout.write(text)
        sys.stdout.flush()


def message(**parts: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", **parts}) + "\n"


def flood(rate: int) -> None:
    numbers = count()

    def burst(many: int) -> None:
        # Made up before it is said, for whoever reads is to be kept busy and not us.
        for done in range(0, many, 100):
            ticks = (message(method="notifications/tick", params=tick(numbers)) for _ in range(min(100, many - done)))
            say("".join(ticks))
            if stopped.is_set():
                return

    _pace(rate, burst)


def tick(numbers: "count[int]") -> dict[str, Any]:
    return {"n": next(numbers), "text": "the quick brown fox jumps over the lazy dog"}


def stderr(rate: int) -> None:
    line = b"x" * 99 + b"\n"
    _pace(rate, lambda many: _write_all(2, line * many))


def _write_all(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


def _pace(rate: int, emit: Any) -> None:
    due = time.monotonic()
    while not stopped.is_set():
        emit(max(1, rate // TICKS_PER_S))
        # Time that was lost in a blocked write is not made up for.
        due = max(due + 1 / TICKS_PER_S, time.monotonic())
        stopped.wait(due - time.monotonic())


def begin(kind: str, rate: int) -> None:
    stopped.clear()
    match kind:
        case "flood" | "stderr":
            threading.Thread(target={"flood": flood, "stderr": stderr}[kind], args=[rate], daemon=True).start()
        case "hang":
            time.sleep(3600)
        case "crash":
            os._exit(1)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    params = request.get("params") or {}
    match request["method"]:
        case "initialize":
            info = {"name": "bad", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("begin", "stop")]}
        case "tools/call" if params["name"] == "begin":
            begin(**params["arguments"])
        case "tools/call":
            stopped.set()
    return {"content": [{"type": "text", "text": "as you wish"}]}


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("method") == "server/discover":
            say(message(id=request["id"], error={"code": -32601, "message": "Method not found"}))
        elif "id" in request:
            say(message(id=request["id"], result=answer(request)))
            if FLAG and os.path.exists(FLAG) and request["method"] == "tools/list":
                os._exit(1)


if __name__ == "__main__":
    main()
