# The shortest agent. It needs nothing but Coupler: coupler serve examples/echo.py
from coupler import Turn, serve


async def agent(turn: Turn) -> None:
    await turn.say(f"You said: {turn.text}")


serve(agent)
