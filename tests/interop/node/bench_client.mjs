// The benchmark client on the official TypeScript SDK: node bench_client.mjs CHUNKS COMMAND…
// Prints how many updates per second it received, and the seconds of a turn of one chunk, as JSON.
import * as acp from "@agentclientprotocol/sdk";
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";

const [chunks, program, ...args] = process.argv.slice(2);
const { session, initialize } = acp.methods.agent;
const agent = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
let seen = 0;
let finish;
const finished = new Promise((resolve) => (finish = resolve));

const client = acp.client({ name: "bench" }).onNotification(acp.methods.client.session.update, () => {
  if (++seen === Number(chunks)) finish();
});
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
await client.connectWith(stream, async (ctx) => {
  await ctx.request(initialize, { protocolVersion: 1, clientCapabilities: {} });
  const { sessionId } = await ctx.request(session.new, { cwd: "/", mcpServers: [] });
  const started = performance.now();
  await ctx.request(session.prompt, { sessionId, prompt: [{ type: "text", text: chunks }] });
  await finished;
  const awaited = (1000 * seen) / (performance.now() - started);
  const turns = [];
  for (let i = 0; i < 300; i++) {
    const began = performance.now();
    await ctx.request(session.prompt, { sessionId, prompt: [{ type: "text", text: "1" }] });
    turns.push((performance.now() - began) / 1000);
  }
  const turn = turns.sort((one, other) => one - other)[turns.length / 2];
  console.log(JSON.stringify({ awaited, turn }));
});
agent.stdin.end();
