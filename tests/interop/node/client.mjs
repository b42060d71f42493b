// A client on the official TypeScript SDK: node client.mjs PROMPT PERMISSION COMMAND…
// Starts the agent, prompts it once, and prints what it saw as one line of JSON. PERMISSION is the kind of
// option that it picks when asked ("allow_once", "reject_once"). The prompt "slow" is cancelled at its first chunk.
import * as acp from "@agentclientprotocol/sdk";
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";

const [prompt, permission, program, ...args] = process.argv.slice(2);
const { session: methods, initialize } = acp.methods.agent;
const chunks = [];
const updates = [];
const asked = [];

const agent = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));

const client = acp
  .client({ name: "interop" })
  .onNotification(acp.methods.client.session.update, (ctx) => {
    const { update, sessionId } = ctx.params;
    if (update.sessionUpdate !== "agent_message_chunk") return void updates.push(update);
    chunks.push(update.content.text);
    if (prompt === "slow" && chunks.length === 1) return ctx.agent.notify(methods.cancel, { sessionId });
  })
  .onRequest(acp.methods.client.session.requestPermission, (ctx) => {
    asked.push(ctx.params);
    const option = ctx.params.options.find(({ kind }) => kind === permission);
    return { outcome: { outcome: "selected", optionId: option.optionId } };
  });

const report = await client.connectWith(stream, async (ctx) => {
  const initialized = await ctx.request(initialize, { protocolVersion: 1, clientCapabilities: {} });
  const { sessionId } = await ctx.request(methods.new, { cwd: process.cwd(), mcpServers: [] });
  const started = performance.now();
  const { stopReason } = await ctx.request(methods.prompt, {
    sessionId,
    prompt: [{ type: "text", text: prompt }],
  });
  const seenAtAnswer = chunks.length;
  const seconds = (performance.now() - started) / 1000;
  return { initialized, sessionId, stopReason, seenAtAnswer, seconds, chunks, updates, asked };
});
agent.stdin.end();
console.log(JSON.stringify(report));
