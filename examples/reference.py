"""The reference agent: every feature of the protocol in one turn, as far as the editor offers it.

It needs no model and no key. It keeps notes of what it was told in `notes.txt` of the session's directory; a
prompt with the word "slow" makes it talk until it is cancelled. `coupler check` finds no fault in it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from coupler import Agent, Choice, Command, EditorError, Group, Mode, Select, Session, Toggle, Turn, serve
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

CAREFUL = Mode("careful", "Asks before it changes a file")
SWIFT = Mode("swift", "Changes files without asking")


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
            text = await read_text(turn, notes)
            await call.output("There are no notes yet." if text is None else text)
            await call.result({"characters": len(text or "")})
        await turn.say(v1.ResourceLink(name=notes.name, uri=notes.as_uri()))

    async def extend_notes(self, turn: Turn) -> None:
        """Keep what was asked for."""
        await self.add_note(turn, turn.text)

    async def add_note(self, turn: Turn, note: str) -> None:
        """A tool call that changes something: the user sees the change first, and may refuse it."""
        notes = notes_of(turn.session)
        old = await read_text(turn, notes)
        new = f"{old or ''}{note[:80]!r}\n"
        async with turn.tool("Add a line to the notes", kind="edit", path=str(notes)) as call:
            await call.diff(str(notes), old=old, new=new)
            if turn.session.mode == SWIFT.id or await call.permitted():
                await write_text(turn, notes, new)

    async def run_command(self, turn: Turn) -> None:
        """A command in one of the editor's terminals, or without one; a cancel ends it either way."""
        async with turn.tool("Print the directory", kind="execute", input={"command": "pwd"}) as call:
            if not turn.editor.offers("terminal"):
                finished = await turn.terminal.run("pwd")  # the call shows what it prints
                await call.result({"exit_code": finished.exit_code})
                return
            async with terminal(turn, "pwd") as terminal_id:
                end = await turn.call_editor(v1.WaitForTerminalExitRequest(turn.session.id, terminal_id))
                shown = await turn.call_editor(v1.TerminalOutputRequest(turn.session.id, terminal_id))
            await call.output(shown.output)
            await call.result({"exit_code": end.exit_code})

    async def list_tools(self, turn: Turn) -> None:
        """The tools of the editor's MCP servers. One that is broken fails its call, not the turn."""
        servers = [each for each in turn.session.mcp_servers if isinstance(each, v1.McpServerStdio)]
        for server in servers:
            with suppress(OSError, ValueError, LookupError):
                async with turn.tool(f"List the tools of {server.name}", kind="search") as call:
                    await call.output(", ".join(await tools_of(server, turn.session)) or "no tools")

    async def ask_user(self, turn: Turn) -> None:
        """A form to fill in, and a page to open. Users need not answer, and editors may fail to ask."""
        if turn.editor.offers("elicitation.form"):
            await turn.say("Thanks. " if await accepted(turn, form_for(turn.session)) else "Never mind. ")
        if turn.editor.offers("elicitation.url"):
            await accepted(turn, page_for(turn.session))


def notes_of(session: Session) -> Path:
    """Sessions have directories of their own; that of the process does not matter."""
    return Path(session.cwd, "notes.txt")


async def read_text(turn: Turn, file: Path) -> str | None:
    """What is in a file, by the editor if possible: it knows what is not saved yet."""
    try:
        if turn.editor.offers("fs.readTextFile"):
            answer = await turn.call_editor(v1.ReadTextFileRequest(turn.session.id, str(file)))
            return str(answer.content)
        return await asyncio.to_thread(file.read_text, errors="replace")
    except (EditorError, OSError):
        return None


async def write_text(turn: Turn, file: Path, text: str) -> None:
    """Write a file, by the editor if possible."""
    if turn.editor.offers("fs.writeTextFile"):
        await turn.call_editor(v1.WriteTextFileRequest(turn.session.id, str(file), text))
    else:
        await asyncio.to_thread(file.write_text, text)


@asynccontextmanager
async def terminal(turn: Turn, command: str, *args: str) -> AsyncIterator[str]:
    """A terminal that is released whatever happens, also when the turn is cancelled."""
    request = v1.CreateTerminalRequest(turn.session.id, command, args, cwd=turn.session.cwd)
    creation = asyncio.ensure_future(turn.call_editor(request))
    try:
        # Shielded: a terminal whose id is not waited for could not be released.
        await asyncio.shield(creation)
        yield creation.result().terminal_id
    finally:
        created = await creation
        await turn.call_editor(v1.ReleaseTerminalRequest(turn.session.id, created.terminal_id))


async def tools_of(server: v1.McpServerStdio, session: Session) -> list[str]:
    """Start an MCP server, ask it for its tools, and end it."""
    env = session.env | {variable.name: variable.value for variable in server.env}
    command = (server.command, *server.args)
    process = await create_subprocess_exec(*command, cwd=session.cwd, env=env, stdin=PIPE, stdout=PIPE)
    try:
        async with asyncio.timeout(10):
            info = {"name": "reference", "version": "1.0"}
            hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
            await exchange(process, {"id": 1, "method": "initialize", "params": hello})
            await exchange(process, {"method": "notifications/initialized"})
            listed = await exchange(process, {"id": 2, "method": "tools/list"})
            return [tool["name"] for tool in listed["result"]["tools"]]
    finally:
        with suppress(ProcessLookupError):
            process.kill()


async def exchange(process: Process, message: dict[str, Any]) -> dict[str, Any]:
    """Send an MCP message; if it is a request, wait for its answer."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    while "id" in message:
        answer: dict[str, Any] = json.loads(await process.stdout.readline())
        if answer.get("id") == message["id"] and "method" not in answer:
            return answer
    return {}


async def accepted(turn: Turn, question: object) -> bool:
    """Whether the user has done what they were asked for."""
    try:
        return isinstance(await turn.call_editor(question), v1.AcceptElicitationResponse)
    except EditorError:
        return False


def form_for(session: Session) -> v1.CreateFormElicitationRequest:
    """Flat, and without anything secret in it."""
    tone = v1.StringPropertySchema(title="Tone", enum=("plain", "warm"), default="plain")
    length = v1.IntegerPropertySchema(title="Length", minimum=1, maximum=9)
    schema = v1.ElicitationSchema(properties={"tone": tone, "length": length}, required=("tone",))
    return v1.CreateFormElicitationRequest("How shall I write?", schema, session_id=session.id)


def page_for(session: Session) -> v1.CreateUrlElicitationRequest:
    """What must not pass through the editor is done in a browser."""
    page = "https://example.com/"
    return v1.CreateUrlElicitationRequest("Please look.", uuid4().hex, page, session_id=session.id)


if __name__ == "__main__":
    serve(Reference)
