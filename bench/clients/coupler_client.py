"""Coupler's client, fed by the agent in argv: prints updates per second, awaited and iterated, and the
seconds of a turn of one chunk, as JSON."""

import asyncio
import json
import statistics
import sys
import time

from coupler import connect
from coupler.events import Text

TURNS = 300


async def main(chunks: int, command: list[str]) -> None:
    expected = sum(len(f"hello token {i}") for i in range(chunks))
    async with connect(command) as agent:
        session = await agent.new(cwd="/")
        started = time.perf_counter()
        reply = await session.prompt(str(chunks))
        awaited = time.perf_counter() - started
        assert len(reply.text) == expected

        received = 0
        started = time.perf_counter()
        async for event in session.prompt(str(chunks)):
            match event:
                case Text(text=text):
                    received += len(text)
        iterated = time.perf_counter() - started
        assert received == expected

        turns: list[float] = []
        for _ in range(TURNS):
            started = time.perf_counter()
            reply = await session.prompt("1")
            turns.append(time.perf_counter() - started)
            assert reply.text == "hello token 0"
    rates = {"awaited": chunks / awaited, "iterated": chunks / iterated, "turn": statistics.median(turns)}
    print(json.dumps(rates))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))
