"""An agent on Coupler that says one word and then waits to be cancelled."""

import asyncio

from coupler import Turn


async def agent(turn: Turn) -> None:
    await turn.say("started")
    await asyncio.sleep(3600)
