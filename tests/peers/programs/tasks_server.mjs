// A server with tasks on the npm SDK 1.x: `tasks_server.mjs stdio`, or `tasks_server.mjs http` on a free port.
//
// Its tools have the same names and answers as those of tasks_server.py, so that one test drives both. Over HTTP each
// session has a server of its own; `statuses` says how that server sees its tasks. `wait` takes until `release` is called
// with the same `gate`, and so does `work` if it has one; `open_url` wants a URL opened before it does what it is asked.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";

// Modules resolve from the program's own folder, and the SDK is installed elsewhere.
const require = createRequire(new URL("../../../.peers/node/package.json", import.meta.url));
const { McpServer } = require("@modelcontextprotocol/sdk/server/mcp.js");
const { StdioServerTransport } = require("@modelcontextprotocol/sdk/server/stdio.js");
const { StreamableHTTPServerTransport } = require("@modelcontextprotocol/sdk/server/streamableHttp.js");
const types = require("@modelcontextprotocol/sdk/types.js");
const { InMemoryTaskMessageQueue, InMemoryTaskStore } = require("@modelcontextprotocol/sdk/experimental/tasks");
const { z } = require("zod");

const POLL_MS = 100;
const SCHEMA = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };

const text = (words, extra = {}) => ({ content: [{ type: "text", text: words }], ...extra });
const elicited = (answer) => `${answer.action} ${answer.content?.name ?? "nothing"}`;
const sampled = (answer) => `${answer.model} said ${[answer.content].flat()[0].text}`;
const question = (args) => args.question ?? "Name?";
const prompt = (args) => ({
  messages: [{ role: "user", content: { type: "text", text: args.question ?? "Say a word" } }],
  maxTokens: 5,
});
const form = (args) => ({ mode: "form", message: question(args), requestedSchema: SCHEMA });

const gates = new Map();
const opened = new Set();

// A promise for all who wait at a gate, and what keeps it.
function gate(name) {
  if (!gates.has(name)) {
    let release;
    const released = new Promise((resolve) => (release = resolve));
    gates.set(name, { released, release });
  }
  return gates.get(name);
}

// Refuse until whoever calls has been told of the URL once.
function openUrl(args) {
  const words = question(args);
  if (!opened.has(words)) {
    opened.add(words);
    const asked = { mode: "url", message: words, url: "https://example.invalid/", elicitationId: words };
    throw new types.UrlElicitationRequiredError([asked]);
  }
  return `opened ${words.replace(/\?$/, "")}`;
}

// The last word of a stream of updates.
async function outcome(stream) {
  for await (const update of stream) {
    if (update.type === "error") throw update.error;
    if (update.type === "result") return update.result;
  }
  throw new Error("the stream ended without an outcome");
}

function makeServer() {
  const taskStore = new InMemoryTaskStore();
  const mcp = new McpServer(
    { name: "tasks-npm-1x", version: "1" },
    {
      capabilities: { tools: {}, tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } },
      taskStore,
      taskMessageQueue: new InMemoryTaskMessageQueue(),
      defaultTaskPollInterval: POLL_MS,
    },
  );
  const asking = mcp.server.experimental.tasks;
  const inputSchema = z.looseObject({});

  const plain = (name, run) =>
    mcp.registerTool(name, { inputSchema }, async (args, extra) => text(await run(args, extra)));

  // `run` does the work of a task after its caller has been answered; what it returns is the task's result.
  const tasked = (name, taskSupport, run) =>
    mcp.experimental.tasks.registerToolTask(
      name,
      { inputSchema, execution: { taskSupport } },
      {
        async createTask(args, extra) {
          const task = await extra.taskStore.createTask({ ttl: extra.taskRequestedTtl, pollInterval: POLL_MS });
          setImmediate(async () => {
            try {
              const result = await run(args, extra, task.taskId);
              await extra.taskStore.storeTaskResult(task.taskId, "completed", result);
            } catch (error) {
              await extra.taskStore.updateTaskStatus(task.taskId, "failed", error.message).catch(() => {});
            }
          });
          return { task, _meta: { "io.modelcontextprotocol/model-immediate-response": `${name} has begun` } };
        },
        getTask: (_args, extra) => extra.taskStore.getTask(extra.taskId),
        getTaskResult: (_args, extra) => extra.taskStore.getTaskResult(extra.taskId),
      },
    );

  const work = async (args, extra, taskId) => {
    await extra.taskStore.updateTaskStatus(taskId, "working", "reading");
    if (args.gate) await gate(args.gate).released;
    await extra.taskStore.updateTaskStatus(taskId, "working", "writing");
    return text(`worked on ${args.topic ?? "nothing"}`);
  };

  // A question inside a task is queued, and travels on the stream of `tasks/result`.
  const askInside = async (extra, taskId, method, params, schema) => {
    const answer = await extra.sendRequest({ method, params }, schema, { relatedTask: { taskId } });
    await extra.taskStore.updateTaskStatus(taskId, "working", "answered");
    return answer;
  };

  plain("echo", async (args) => args.text ?? "");
  plain("statuses", async () => taskStore.getAllTasks().map((task) => task.status).join(", "));
  plain("wait", async (args) => {
    await gate(args.gate).released;
    return `waited at ${args.gate}`;
  });
  plain("release", async (args) => {
    gate(args.gate).release();
    return "released";
  });
  plain("open_url", async (args) => openUrl(args));
  plain("elicit", async (args, extra) =>
    elicited(await extra.sendRequest({ method: "elicitation/create", params: form(args) }, types.ElicitResultSchema)),
  );
  plain("sample", async (args, extra) =>
    sampled(
      await extra.sendRequest(
        { method: "sampling/createMessage", params: prompt(args) },
        types.CreateMessageResultSchema,
      ),
    ),
  );
  plain("elicit_as_task", async (args, extra) =>
    elicited(
      await outcome(
        asking.elicitInputStream(form(args), { task: { ttl: 60_000 }, relatedRequestId: extra.requestId }),
      ),
    ),
  );
  plain("sample_as_task", async (args, extra) =>
    sampled(
      await outcome(
        asking.createMessageStream(prompt(args), { task: { ttl: 60_000 }, relatedRequestId: extra.requestId }),
      ),
    ),
  );

  tasked("maybe", "optional", work);
  tasked("work", "required", work);
  tasked("elicit_inside", "required", async (args, extra, taskId) =>
    text(elicited(await askInside(extra, taskId, "elicitation/create", form(args), types.ElicitResultSchema))),
  );
  tasked("sample_inside", "required", async (args, extra, taskId) =>
    text(
      sampled(await askInside(extra, taskId, "sampling/createMessage", prompt(args), types.CreateMessageResultSchema)),
    ),
  );
  tasked("hold", "required", async (_args, extra, taskId) => {
    await extra.taskStore.updateTaskStatus(taskId, "working", "holding");
    return new Promise(() => {});
  });
  tasked("fail", "required", async () => {
    throw new Error("it broke");
  });
  tasked("refuse", "required", async () => text("no, thank you", { isError: true }));
  return mcp;
}

async function readJson(request) {
  let body = "";
  for await (const chunk of request) body += chunk;
  return body ? JSON.parse(body) : undefined;
}

const transports = new Map();

async function answer(request, response) {
  const body = request.method === "POST" ? await readJson(request) : undefined;
  let transport = transports.get(request.headers["mcp-session-id"]);
  if (transport === undefined) {
    if (body?.method !== "initialize") {
      const refused = { jsonrpc: "2.0", id: body?.id ?? null, error: { code: -32000, message: "No session" } };
      response.writeHead(400, { "content-type": "application/json" }).end(JSON.stringify(refused));
      return;
    }
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => transports.set(id, transport),
    });
    await makeServer().connect(transport);
  }
  await transport.handleRequest(request, response, body);
}

if (process.argv[2] === "stdio") {
  await makeServer().connect(new StdioServerTransport());
} else {
  const listener = createServer((request, response) => {
    answer(request, response).catch((error) => {
      console.error(error);
      if (!response.headersSent) response.writeHead(500);
      response.end();
    });
  });
  listener.listen(0, "127.0.0.1", () => {
    console.error(`listening at http://127.0.0.1:${listener.address().port}/mcp`);
  });
}
