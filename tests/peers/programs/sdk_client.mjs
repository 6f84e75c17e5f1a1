// A client on the npm SDK, driven over pipes: `sdk_client.mjs <http URL | stdio command...>`.
//
// The same lines as story_client.py, with the SDK's own options:
//   {"id": 1, "tool": "slow", "arguments": {...}, "timeout_ms": 60000, "reset_on_progress": true, "progress": true}
//   {"id": 2, "op": "list_tools"}
//   {"id": 3, "op": "cancel", "call": 1, "reason": "changed my mind"}
// Without timeout_ms nothing is cut short because the machine is busy, and with null a call has the SDK's default of
// 60 s; what the SDK does at a timeout is its own doing.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

// Modules resolve from the program's own folder, and the SDK is installed elsewhere.
const require = createRequire(new URL("../../../.peers/node/package.json", import.meta.url));
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");

const CLOSE_LIMIT_MS = 3000; // a server that does not answer the farewell must not hold the program
const HANG_MS = 170_000; // only a hang meets this; the tests give up later still

const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");

const target = process.argv.slice(2);
if (target.length === 0) {
  console.error("usage: sdk_client.mjs <http URL | stdio command...>");
  process.exit(2);
}

const isUrl = /^https?:\/\//.test(target[0]);
const transport = isUrl
  ? new StreamableHTTPClientTransport(new URL(target[0]))
  : new StdioClientTransport({ command: target[0], args: target.slice(1), env: process.env });
const client = new Client({ name: "sdk-client", version: "1.0.0" });
const open = new Map();

async function perform(request, signal) {
  if (request.op === "list_tools") return client.listTools(undefined, { timeout: HANG_MS });
  if (request.op === "cancel") {
    open.get(request.call)?.abort(request.reason);
    return {};
  }
  const { timeout_ms: timeout = HANG_MS } = request;
  const options = { signal, timeout: timeout ?? undefined };
  if (request.reset_on_progress) options.resetTimeoutOnProgress = true;
  if (request.progress) options.onprogress = (progress) => say({ id: request.id, progress });
  return client.callTool({ name: request.tool, arguments: request.arguments ?? {} }, undefined, options);
}

async function answer(request) {
  const abort = new AbortController();
  open.set(request.id, abort);
  try {
    say({ id: request.id, result: await perform(request, abort.signal) });
  } catch (error) {
    const { code = null, message = String(error), data = null } = error ?? {};
    say({ id: request.id, error: { code: typeof code === "number" ? code : null, message, data } });
  } finally {
    open.delete(request.id);
  }
}

async function close() {
  if (isUrl) await transport.terminateSession();
  await client.close();
}

await client.connect(transport, { timeout: HANG_MS });
say({
  ready: { serverInfo: client.getServerVersion(), capabilities: client.getServerCapabilities() },
});
for await (const line of createInterface({ input: process.stdin })) {
  void answer(JSON.parse(line));
}
await Promise.race([close().catch(() => {}), new Promise((done) => setTimeout(done, CLOSE_LIMIT_MS))]);
process.exit(0);
