"""The reference agent: every feature of the protocol in one turn, as far as the editor offers it.

    coupler serve examples/reference.py

It needs no model and no key. It keeps notes of what it was told in `notes.txt` of the session's directory; a
prompt with the word "slow" makes it talk until it is cancelled. `coupler check` finds no fault in it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from coupler import (
    Agent,
    Choice,
    Command,
    Group,
    Login,
    McpError,
    Mode,
    NotPermittedError,
    Select,
    Session,
    Toggle,
    Turn,
    serve,
)
from coupler.mcp.tools import Tool
from coupler.schema import v1

log = logging.getLogger("reference")

CONTEXT_SIZES = {"sparrow": 8_000, "eagle": 200_000}
"""Tokens that fit into the context of each model; a real agent would ask its model."""

MODEL = Select(
    "model",
    [
        Group("Small", [Choice("sparrow", "Sparrow", "Quick and forgetful")]),
        Group("Large", [Choice("eagle", "Eagle", "Slow and thorough")]),
    ],
    category="model",
)
EFFORT = Select("effort", ["low", "high"], category="thought_level")
THOUGHTS = Toggle("thoughts", default=True, description="Show what it thinks")

WANTS_LOGIN = "REFERENCE_WANTS_LOGIN" in os.environ
logged_in = asyncio.Event()

CAREFUL = Mode("careful", "Asks before it changes a file")
SWIFT = Mode("swift", "Changes files without asking")


@dataclass
class Style:
    """What a form can ask for: flat, and without anything secret in it."""

    tone: Literal["plain", "warm"]
    length: int = 3


class Reference(Agent):
    """What lasts is in `session.state`: the agent itself is made anew whenever a session is opened."""

    title = "Reference agent"
    accepts = ("image", "audio", "resource")
    modes = (CAREFUL, SWIFT)
    options = (MODEL, THOUGHTS)
    commands = (
        Command("note", "Add a line to the notes and do nothing else", hint="the line"),
        Command("title", "Give the session another title", hint="the title"),
        Command("quiet", "Show no thoughts any more"),
        Command("compact", "Summarize the conversation so far"),
    )
    logins = (
        (Login("key", "Key", check=logged_in.is_set, login=logged_in.set, logout=logged_in.clear),)
        if WANTS_LOGIN
        else ()
    )

    async def opened(self, session: Session) -> None:
        """A session begins, or goes on: then its state is what was saved with the last turn."""
        session.state = session.state or {"prompts": 0, "tokens": 0}
        await self.option_changed(session, "model")
        await self.mode_changed(session)

    async def option_changed(self, session: Session, option: str) -> None:
        """The large model has an option more, and commands can see which model it is."""
        if option == "model":
            model = str(session.options["model"])
            session.env["REFERENCE_MODEL"] = model
            session.declare(options=(MODEL, EFFORT, THOUGHTS) if model == "eagle" else self.options)

    async def mode_changed(self, session: Session) -> None:
        """Offer a command that leads to the other mode. An exception here would refuse the change."""
        other = CAREFUL if session.mode == SWIFT.id else SWIFT
        session.set_commands((*self.commands, Command(other.id, f"Another mode: {other.description}")))

    async def closed(self, session: Session) -> None:
        """The place to free what was opened for the session; its state is saved already."""
        log.info("%s is left after %d prompts", session.id, session.state["prompts"])

    async def prompt(self, turn: Turn) -> None:
        state = turn.session.state
        state["prompts"] += 1
        state["tokens"] += len(turn.text) // 4
        if turn.command is not None:
            await self.obey(turn, turn.command.name, turn.command.arguments)
        elif "slow" in turn.text.lower():
            await self.talk_until_cancelled(turn)
        else:
            await self.show_everything(turn)
        size = CONTEXT_SIZES[str(turn.session.options["model"])]
        await turn.usage(min(state["tokens"], size), size, cost=state["prompts"] / 1_000)

    async def obey(self, turn: Turn, command: str, arguments: str) -> None:
        """A prompt such as "/title Notes" comes as the name of the command and what stands behind it."""
        match command:
            case "note":
                await self.add_note(turn, arguments)
            case "title":
                turn.session.set_title(arguments or None)
            case "quiet":
                turn.session.set_option("thoughts", False)
            case CAREFUL.id | SWIFT.id:
                turn.session.set_mode(command)
                await self.mode_changed(turn.session)
            case "compact":
                await self.compact(turn)

    async def compact(self, turn: Turn) -> None:
        """The summary is what the agent goes on with. Here that is next to nothing."""
        async with turn.compaction() as compaction:
            await compaction.summarize(f"There were {turn.session.state['prompts']} prompts.")
            turn.session.state["tokens"] = 0

    async def talk_until_cancelled(self, turn: Turn) -> None:
        """A cancel arrives as `asyncio.CancelledError`; nothing needs to be done for it here."""
        while True:
            await turn.say("tick ")
            await asyncio.sleep(0.02)

    async def show_everything(self, turn: Turn) -> None:
        session = turn.session
        if session.state["prompts"] == 1:
            await turn.notice("No model is at work", "All that this agent says is written in its source.")
        if session.options["thoughts"]:
            await turn.think("Each step of the plan shows another feature.")
        await self.follow_plan(turn)
        await turn.say(f"I work in {' and '.join(session.roots)}. ")
        await turn.say(f"This was prompt {session.state['prompts']} of the session.")

    async def follow_plan(self, turn: Turn) -> None:
        """Take the steps one by one; the editor sees the plan advance."""
        steps = {
            "Read the notes": self.show_notes,
            "Add a line to them": self.extend_notes,
            "Run a command": self.run_command,
            "Look at the MCP servers": self.list_tools,
            "Ask the user": self.ask_user,
        }
        plan = await turn.plan(*steps)
        for name, step in steps.items():
            await plan.start(name)
            await step(turn)
            await plan.complete(name)

    async def show_notes(self, turn: Turn) -> None:
        """A tool call that reads: a place to follow, what went in, and what came out."""
        notes = notes_of(turn.session)
        async with turn.tool("Read the notes", kind="read", name="read", path=str(notes), line=1) as call:
            await call.input({"path": str(notes)})
            text = await read_notes(turn)
            await call.output(text or "There are no notes yet.")
            await call.result({"characters": len(text)})
        await turn.say(v1.ResourceLink(name=notes.name, uri=notes.as_uri()))

    async def extend_notes(self, turn: Turn) -> None:
        """Keep what was asked for."""
        await self.add_note(turn, turn.text)

    async def add_note(self, turn: Turn, note: str) -> None:
        """A tool call that changes something: the user sees the change first, and may refuse it."""
        notes = str(notes_of(turn.session))
        async with turn.tool("Add a line to the notes", kind="edit", path=notes) as call:
            old = await read_notes(turn)
            new = f"{old}{note[:80]!r}\n"
            await call.diff(notes, old=old or None, new=new)
            if turn.session.mode == SWIFT.id or await call.permitted():
                await turn.files.write(notes, new)

    async def run_command(self, turn: Turn) -> None:
        """A command in one of the editor's terminals, or without one; a cancel ends it either way."""
        async with turn.tool("Print the directory", kind="execute", command=["pwd"]) as call:
            finished = await turn.terminal.run("pwd")  # the call shows what it prints
            await call.result({"exit_code": finished.exit_code})

    async def list_tools(self, turn: Turn) -> None:
        """The tools of the MCP servers. One that is broken fails its call, not the turn."""
        for server in turn.mcp.servers:
            with suppress(McpError):
                async with turn.tool(f"List the tools of {server}", kind="search") as call:
                    tools = await turn.mcp.tools(server)
                    await call.output(", ".join(tool.name for tool in tools) or "no tools")
                await self.use_tool(turn, tools)

    async def use_tool(self, turn: Turn, tools: list[Tool]) -> None:
        """Use the first tool that wants no arguments, if the user lets it. Its server is not asked."""
        for tool in tools:
            if not tool.input_schema.get("required"):
                with suppress(NotPermittedError):
                    await turn.mcp.call(tool.server, tool.name)
                return

    async def ask_user(self, turn: Turn) -> None:
        """A form to fill in, and a page to open. Not to answer is an answer."""
        if turn.editor.offers("elicitation.form"):
            answer = await turn.ask("How shall I write?", Style)
            await turn.say("Thanks. " if answer.accepted else "Never mind. ")
        if turn.editor.offers("elicitation.url"):
            await turn.ask_url("Please look.", "https://example.com/")


def notes_of(session: Session) -> Path:
    """Sessions have directories of their own; that of the process does not matter."""
    return Path(session.cwd, "notes.txt")


async def read_notes(turn: Turn) -> str:
    """What is in the notes, as the editor sees them: it knows what is not saved yet."""
    try:
        return await turn.files.read(notes_of(turn.session))
    except FileNotFoundError:
        return ""


if __name__ == "__main__":
    serve(Reference)
