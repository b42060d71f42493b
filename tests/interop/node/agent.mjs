// An agent on the official TypeScript SDK. What it does is what the prompt's text says:
//   "N"        streams N text chunks "0 ", "1 ", … (with the argument "tokens": "hello token 0", …)
//   "slow"     says "started" and waits to be cancelled
//   "ask"      asks for permission to delete a file and says "allowed" or "rejected"
//   "cancels"  says how many turns were cancelled
import * as acp from "@agentclientprotocol/sdk";
import { Readable, Writable } from "node:stream";

const chunk = process.argv[2] === "tokens" ? (i) => `hello token ${i}` : (i) => `${i} `;
const { session, initialize } = acp.methods.agent;
const cancels = new Map();
let sessions = 0;
let cancelledTurns = 0;

const say = (ctx, text) =>
  ctx.client.notify(acp.methods.client.session.update, {
    sessionId: ctx.params.sessionId,
    update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text } },
  });

async function stream(ctx, count) {
  for (let i = 0; i < count; i++) await say(ctx, chunk(i));
  return { stopReason: "end_turn" };
}

async function waitForCancel(ctx) {
  const cancelled = new Promise((resolve) => cancels.set(ctx.params.sessionId, resolve));
  await say(ctx, "started");
  await cancelled;
  cancelledTurns++;
  return { stopReason: "cancelled" };
}

async function countCancels(ctx) {
  await say(ctx, String(cancelledTurns));
  return { stopReason: "end_turn" };
}

async function askPermission(ctx) {
  const { sessionId } = ctx.params;
  const call = { toolCallId: "call-1", title: "Delete notes.txt", kind: "delete" };
  const report = (update) => ctx.client.notify(acp.methods.client.session.update, { sessionId, update });
  await report({ sessionUpdate: "tool_call", status: "pending", ...call });
  const { outcome } = await ctx.client.request(acp.methods.client.session.requestPermission, {
    sessionId,
    toolCall: call,
    options: [
      { optionId: "yes", name: "Allow", kind: "allow_once" },
      { optionId: "no", name: "Reject", kind: "reject_once" },
    ],
  });
  const allowed = outcome.outcome === "selected" && outcome.optionId === "yes";
  await report({
    sessionUpdate: "tool_call_update",
    toolCallId: call.toolCallId,
    status: allowed ? "completed" : "failed",
  });
  await say(ctx, allowed ? "allowed" : "rejected");
  return { stopReason: "end_turn" };
}

acp
  .agent({ name: "interop" })
  .onRequest(initialize, () => ({ protocolVersion: 1, agentCapabilities: {} }))
  .onRequest(session.new, () => ({ sessionId: `session-${++sessions}` }))
  .onRequest(session.prompt, (ctx) => {
    const { text } = ctx.params.prompt[0];
    if (text === "slow") return waitForCancel(ctx);
    if (text === "cancels") return countCancels(ctx);
    if (text === "ask") return askPermission(ctx);
    return stream(ctx, Number(text));
  })
  .onNotification(session.cancel, (ctx) => cancels.get(ctx.params.sessionId)?.())
  .connect(acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
