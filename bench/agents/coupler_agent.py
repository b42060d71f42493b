"""The benchmark agent on Coupler: a prompt "N" streams N text chunks."""

from coupler import Turn, serve


async def agent(turn: Turn) -> None:
    for i in range(int(turn.text)):
        await turn.say(f"hello token {i}")


if __name__ == "__main__":
    serve(agent)
