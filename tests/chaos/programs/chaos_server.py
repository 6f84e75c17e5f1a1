"""A server to be killed: `chaos_server.py stdio NAME LEDGER [stubborn]`, or `http NAME LEDGER`, which says its port.

Plain JSON-RPC on threads and the standard library alone, so that it starts in a few hundredths of a second. What it
does is written to LEDGER, a line of JSON each: which is how a test learns what reached a server that is dead by then.

    echo {tag, size?}   answers with the tag, made as long as is wished
    work {tag, ms}      the same after a while
    note {tag, count}   sends that many notifications first
    ask {tag}           asks for a name, and answers with the tag and what it was told
    job {tag, ms}       as `work`, but a task of the 2025-11-25 protocol, which lives until the process dies

A `stubborn` one stays when its input ends, as servers do that have not been written with care.
"""

import json
import os
import signal
import socket
import sys
import threading
from itertools import count
from typing import Any

JsonObject = dict[str, Any]

MODE, NAME, LEDGER = sys.argv[1:4]
STUBBORN = "stubborn" in sys.argv[4:]
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "work", "note", "ask")]
TOOLS.append({"name": "job", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}})
INITIALIZED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}, "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}},
    "serverInfo": {"name": NAME, "version": "1"},
}

ledger = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
numbers = count(1)
sessions: set[str] = set()
waiting: dict[str, tuple[threading.Event, list[JsonObject]]] = {}
jobs: dict[str, "Job"] = {}


def note(what: str, **facts: Any) -> None:
    os.write(ledger, (json.dumps({"what": what, "server": NAME, "pid": os.getpid(), **facts}) + "\n").encode())


def text(words: str) -> JsonObject:
    return {"content": [{"type": "text", "text": words}]}


class Job:
    def __init__(self, tag: str, ms: int) -> None:
        self.id = f"{os.getpid()}-{next(numbers)}"
        self.tag = tag
        self.status = "working"
        self.done = threading.Event()
        timer = threading.Timer(ms / 1000, self.end, ["completed"])
        timer.daemon = True
        timer.start()

    def end(self, status: str) -> None:
        if self.status == "working":
            self.status = status
            self.done.set()

    def wire(self) -> JsonObject:
        at = "2026-01-01T00:00:00Z"
        return {
            "taskId": self.id,
            "status": self.status,
            "createdAt": at,
            "lastUpdatedAt": at,
            "ttl": 600_000,
            "pollInterval": 100,
        }


class Caller:
    """Where the messages that come before an answer go; one for each request over HTTP, one for all on stdio."""

    def send(self, message: JsonObject) -> None:
        raise NotImplementedError

    def request(self, method: str, params: JsonObject) -> JsonObject:
        key = f"{os.getpid()}-{next(numbers)}"
        done, answer = threading.Event(), list[JsonObject]()
        waiting[key] = (done, answer)
        self.send({"jsonrpc": "2.0", "id": key, "method": method, "params": params})
        done.wait()
        return answer[0]


def take_answer(message: JsonObject) -> None:
    if (slot := waiting.pop(str(message.get("id")), None)) is not None:
        slot[1].append(message)
        slot[0].set()


def answer(method: str, params: JsonObject, caller: Caller) -> JsonObject:
    """`{"result": …}` or `{"error": …}`."""
    if method == "initialize":
        return {"result": INITIALIZED}
    if method == "tools/list":
        return {"result": {"tools": TOOLS}}
    if method == "ping":
        return {"result": {}}
    if method == "tools/call":
        return {"result": call(params["name"], params.get("arguments") or {}, params, caller)}
    if method.startswith("tasks/"):
        return about_task(method, params)
    return {"error": {"code": -32601, "message": f"Method not found: {method}"}}


def call(tool: str, args: JsonObject, params: JsonObject, caller: Caller) -> JsonObject:
    tag = args["tag"]
    note("called", tool=tool, tag=tag)
    if tool == "work":
        threading.Event().wait(args["ms"] / 1000)
    elif tool == "note":
        for n in range(args["count"]):
            told = {"tag": tag, "n": n}
            caller.send({"jsonrpc": "2.0", "method": "notifications/chaos/note", "params": told})
    elif tool == "ask":
        asked = {"message": tag, "requestedSchema": SCHEMA}
        reply = caller.request("elicitation/create", asked)
        note("answered", tag=tag, reply=reply.get("result", reply.get("error")))
        result = reply.get("result", {})
        return text(f"{tag} {result.get('action', 'refused')} {(result.get('content') or {}).get('name')}")
    elif tool == "job" and "task" in params:
        job = Job(tag, args["ms"])
        jobs[job.id] = job
        return {"task": job.wire()}
    return text(tag.ljust(args.get("size", 0), "."))


def about_task(method: str, params: JsonObject) -> JsonObject:
    if method == "tasks/list":
        return {"result": {"tasks": [job.wire() for job in jobs.values()]}}
    if (job := jobs.get(params.get("taskId", ""))) is None:
        return {"error": {"code": -32602, "message": "Task not found"}}
    if method == "tasks/cancel":
        if job.status != "working":
            return {"error": {"code": -32602, "message": "The task has ended"}}
        job.end("cancelled")
        return {"result": job.wire()}
    if method == "tasks/result":
        job.done.wait()
        if job.status == "cancelled":
            return {"error": {"code": -32603, "message": "The task was cancelled"}}
        related = {"io.modelcontextprotocol/related-task": {"taskId": job.id}}
        return {"result": {**text(job.tag), "_meta": related}}
    return {"result": job.wire()}


# Stdio


class Pipe(Caller):
    def __init__(self) -> None:
        self._lock = threading.Lock()

    def send(self, message: JsonObject) -> None:
        with self._lock:
            os.write(1, (json.dumps(message) + "\n").encode())

    def serve(self, message: JsonObject) -> None:
        answered = answer(message["method"], message.get("params") or {}, self)
        self.send({"jsonrpc": "2.0", "id": message["id"], **answered})


def over_stdio() -> None:
    pipe = Pipe()
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "method" not in message:
            take_answer(message)
        elif "id" in message:
            threading.Thread(target=pipe.serve, args=[message], daemon=True).start()
    while STUBBORN:
        signal.pause()
    os._exit(0)


# HTTP


class Exchange(Caller):
    """One POST; the first message that comes before the answer makes an SSE stream of the response."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.is_stream = False

    def send(self, message: JsonObject) -> None:
        if not self.is_stream:
            self.is_stream = True
            self._connection.sendall(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            )
        self._chunk(b"data: " + json.dumps(message).encode() + b"\n\n")

    def finish(self, message: JsonObject, headers: str = "") -> None:
        if self.is_stream:
            self.send(message)
            self._chunk(b"")
        else:
            respond(self._connection, 200, json.dumps(message).encode(), headers)

    def _chunk(self, data: bytes) -> None:
        self._connection.sendall(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def respond(connection: socket.socket, status: int, body: bytes = b"", headers: str = "") -> None:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{headers}content-length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)


def serve_connection(connection: socket.socket) -> None:
    try:
        with connection, connection.makefile("rb") as reader:
            while line := reader.readline():
                serve_request(connection, reader, line.split()[0])
    except (OSError, ValueError):
        pass  # whoever it was is gone


def serve_request(connection: socket.socket, reader: Any, verb: bytes) -> None:
    headers: dict[bytes, bytes] = {}
    while (line := reader.readline()) not in (b"\r\n", b""):
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip()
    body = reader.read(int(headers.get(b"content-length", b"0")))
    session = headers.get(b"mcp-session-id", b"").decode()
    if verb == b"GET":
        if session not in sessions:
            respond(connection, 404)
            return
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        reader.read()
        raise OSError
    if verb == b"DELETE":
        sessions.discard(session)
        respond(connection, 200)
        return
    message = json.loads(body)
    method = message.get("method")
    if method not in ("initialize", "server/discover") and session not in sessions:
        respond(connection, 404)
    elif method is None:
        take_answer(message)
        respond(connection, 202)
    elif "id" not in message:
        respond(connection, 202)
    else:
        exchange, extra = Exchange(connection), ""
        if method == "initialize":
            session = f"{os.getpid()}-{next(numbers)}"
            sessions.add(session)
            extra = f"mcp-session-id: {session}\r\n"
        answered = answer(method, message.get("params") or {}, exchange)
        exchange.finish({"jsonrpc": "2.0", "id": message["id"], **answered}, extra)


def over_http() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(listener.getsockname()[1], flush=True)
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=serve_connection, args=[connection], daemon=True).start()


if __name__ == "__main__":
    note("started")
    {"stdio": over_stdio, "http": over_http}[MODE]()
