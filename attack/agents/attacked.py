"""The agent that is attacked: repeats prompts, asks the client, waits, floods or writes logs when told to.

A prompt is an order, then words: `sentinel 7` is repeated; `ask`, `read` and `run` use the client's side;
`wait` goes on until it is cancelled, `chunks 50 10240` says so many pieces of so many bytes.
"""

import asyncio
import logging
import os
import sys

from coupler import Agent, Turn


class Attacked(Agent):
    async def prompt(self, turn: Turn) -> None:
        order, _, rest = turn.text.partition(" ")
        match order:
            case "ask":
                async with turn.tool("ask", kind="execute") as call:
                    await call.permitted()
            case "read":
                await turn.files.read("some.txt")
            case "wait":
                await turn.say("waiting")
                await asyncio.Event().wait()
            case "steps":
                for number in range(int(rest)):
                    async with turn.tool(f"step {number}") as call:
                        await call.output(f"{number}")
                    await turn.say(f" {number}")
                    await asyncio.sleep(0.001)
            case "chunks":
                count, size = map(int, rest.split())
                for _ in range(count):
                    await turn.say("x" * size)
            case "log":
                for number in range(int(rest)):
                    logging.getLogger("attacked").warning("line %d %s", number, "x" * 200)
                    if number % 100 == 0:
                        await asyncio.sleep(0)
            case "stderr":
                for _ in range(int(rest)):
                    os.write(sys.stderr.fileno(), b"x" * 10_000 + b"\n")
                    await asyncio.sleep(0)
        await turn.say(turn.text[:1000])


agent = Attacked()
