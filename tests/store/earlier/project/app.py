"""An agent with everything that a session can store: text, thoughts, a plan, a tool call, state, modes."""

from coupler import Agent, Mode, Turn, serve


class Notes(Agent):
    """Numbers its prompts and writes each into a note."""

    modes = (Mode("read", "Read only"), Mode("write", "Write"))

    async def prompt(self, turn: Turn) -> None:
        count = (turn.session.state or {"count": 0})["count"] + 1
        turn.session.state = {"count": count}
        await turn.think("counting")
        await turn.plan("write the note")
        async with turn.tool(f"Write note {count}", kind="edit", path="note.txt") as call:
            if not await call.permitted():
                return
            await call.diff("note.txt", "", f"note {count}: {turn.text}\n")
        await turn.say(f"{count}: {turn.text}")


if __name__ == "__main__":
    serve(Notes())
