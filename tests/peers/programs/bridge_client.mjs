// A client on the npm SDK 1.x with as many connections as it is told to open, driven over pipes.
//
// The same lines as bridge_client.py:
//   {"id": 1, "op": "open", "name": "hub", "target": ["http://..."], "asks": true}
//   {"id": 2, "op": "call", "on": "hub", "tool": "echo", "arguments": {"text": "hi"}, "progress": true}
//   {"id": 3, "op": "task", "on": "hub", "tool": "work", "arguments": {}}
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

// Modules resolve from the program's own folder, and the SDK is installed elsewhere.
const require = createRequire(new URL("../../../.peers/node/package.json", import.meta.url));
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
const types = require("@modelcontextprotocol/sdk/types.js");

const CLOSE_LIMIT_MS = 3000; // a server that does not answer the farewell must not hold the program
const HANG_MS = 170_000; // only a hang meets this; the tests give up later still
const TASK_TTL_MS = 60_000;

const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const connections = new Map();

async function open({ name, target, asks }) {
  const asked = [];
  const capabilities = asks ? { elicitation: { form: {}, url: {} }, sampling: {} } : {};
  const client = new Client({ name: "bridge-client", version: "1.0.0" }, { capabilities });
  if (asks) {
    client.setRequestHandler(types.ElicitRequestSchema, ({ params }) => {
      asked.push(params.message);
      if (params.mode === "url") return { action: "accept" };
      return { action: "accept", content: { name: params.message.replace(/\?$/, "") } };
    });
    client.setRequestHandler(types.CreateMessageRequestSchema, ({ params }) => {
      asked.push([params.messages[0].content].flat()[0].text);
      return { role: "assistant", content: { type: "text", text: "word" }, model: "m", stopReason: "endTurn" };
    });
  }
  const isUrl = target[0].startsWith("http://");
  const transport = isUrl
    ? new StreamableHTTPClientTransport(new URL(target[0]))
    : new StdioClientTransport({ command: target[0], args: target.slice(1), env: process.env });
  await client.connect(transport, { timeout: HANG_MS });
  connections.set(name, { client, asked, transport, isUrl });
  return {};
}

async function perform(request) {
  if (request.op === "open") return open(request);
  const { client, asked } = connections.get(request.on);
  const params = { name: request.tool, arguments: request.arguments };
  if (request.op === "call") {
    const options = { timeout: HANG_MS };
    if (request.progress) options.onprogress = (progress) => say({ id: request.id, progress });
    return { result: await client.callTool(params, undefined, options), asked };
  }
  const options = { timeout: HANG_MS, task: { ttl: TASK_TTL_MS } };
  const updates = client.experimental.tasks.callToolStream(params, undefined, options);
  for await (const update of updates) {
    if (update.type === "taskCreated") say({ id: request.id, progress: { task: update.task.taskId } });
    if (update.type === "error") throw update.error;
    if (update.type === "result") return { result: update.result, asked };
  }
  throw new Error("the stream ended without an outcome");
}

async function answer(request) {
  try {
    say({ id: request.id, result: await perform(request) });
  } catch (error) {
    const { code = null, message = String(error), data = null } = error ?? {};
    say({ id: request.id, error: { code: typeof code === "number" ? code : null, message, data } });
  }
}

async function close({ client, transport, isUrl }) {
  if (isUrl) await transport.terminateSession();
  await client.close();
}

say({ ready: {} });
for await (const line of createInterface({ input: process.stdin })) {
  void answer(JSON.parse(line));
}
const closed = Promise.allSettled([...connections.values()].map(close));
await Promise.race([closed, new Promise((done) => setTimeout(done, CLOSE_LIMIT_MS))]);
process.exit(0);
