"""The agent that the official SDKs' clients drive. What it does is what the prompt says:

"N" streams N text chunks, "slow" waits to be cancelled, "ask" asks for permission to delete a file.
"""

import asyncio

from coupler import Turn


async def agent(turn: Turn) -> None:
    match turn.text:
        case "slow":
            await turn.say("started")
            await asyncio.sleep(60)
        case "ask":
            async with turn.tool("Delete notes.txt", kind="delete") as call:
                allowed = await call.permitted()
            await turn.say("allowed" if allowed else "rejected")
        case count:
            for i in range(int(count)):
                await turn.say(f"{i} ")
