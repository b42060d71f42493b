"""The official Python SDK's client, fed by the agent in argv: prints updates per second and the seconds of a
turn of one chunk, as JSON."""

import asyncio
import json
import statistics
import sys
import time
from typing import Any

from acp import Client, spawn_agent_process, text_block

TURNS = 300


class Counter(Client):
    seen = 0

    async def session_update(self, **_: Any) -> None:
        self.seen += 1


async def main(chunks: int, command: list[str]) -> None:
    counter = Counter()
    async with spawn_agent_process(counter, *command) as (agent, _process):
        await agent.initialize(protocol_version=1)
        session = await agent.new_session(cwd="/", mcp_servers=[])
        started = time.perf_counter()
        await agent.prompt(session_id=session.session_id, prompt=[text_block(str(chunks))])
        while counter.seen < chunks:
            await asyncio.sleep(0.001)
        seconds = time.perf_counter() - started

        turns: list[float] = []
        for _ in range(TURNS):
            started = time.perf_counter()
            await agent.prompt(session_id=session.session_id, prompt=[text_block("1")])
            turns.append(time.perf_counter() - started)
    print(json.dumps({"awaited": chunks / seconds, "turn": statistics.median(turns)}))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))
