"""The cells of the matrix: one function each, which drives an agent and says what was seen.

A cell that returns has passed, or says that the agent has no such thing. Whatever it raises is what went
wrong; the table of agents knows which of that is the agent's own fault.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypedDict

from agents import Agent
from coupler import Policy, connect
from coupler.client.prompt import Prompt
from coupler.client.remote import RemoteAgent
from coupler.client.session import RemoteSession
from coupler.events import Text
from coupler.providers.catalogue import ENTRIES, provider
from labs.scripted_model import INPUT_TOKENS, OUTPUT_TOKENS, Server

GREETING = "Hello from the scripted model."
TURN_SECONDS = 60.0
"""Seconds that all turns of one cell may take; agents are heavy, and machines are busy."""
START_SECONDS = 90.0
CHECK_SECONDS = 1500.0
DOCTOR_SECONDS = 300.0

Verdict = Literal["pass", "none", "fault", "fail"]


class Seen(NamedTuple):
    """The verdict on a cell, and its proof."""

    verdict: Verdict
    proof: str
    """The line of proof."""
    failed: Mapping[str, str] = MappingProxyType({})
    """Of `check`: the assertions that failed, and what was seen of each."""


class CellError(Exception):
    """Something was not as it should be; the message says what was seen."""


@dataclass
class Subject:
    """An agent that is ready to be driven: how it is started, and where it works."""

    agent: Agent
    command: list[str]
    env: dict[str, str]
    root: Path
    model: Server
    shared: RemoteAgent = field(init=False)
    """A running one, for cells that want nothing but a session."""
    opened: list[RemoteSession] = field(default_factory=list)
    directories: int = 0

    async def session(self, directory: Path | None = None, **options: Any) -> RemoteSession:
        """A new session of the running one; it is closed when its cell is over."""
        self.opened.append(await self.shared.new(cwd=directory or self.directory(), **options))
        return self.opened[-1]

    async def close_sessions(self) -> None:
        while self.opened:
            await self.opened.pop().close()

    def directory(self) -> Path:
        """A new directory for a session."""
        self.directories += 1
        made = self.root / f"session-{self.directories}"
        made.mkdir()
        return made

    def connect(self, command: list[str] | None = None, **options: Any) -> RemoteAgent:
        """Another process of the agent, with what is particular about this cell."""
        start = {"cwd": self.root, "startup_timeout": START_SECONDS}
        if self.agent.is_native:
            # It has our environment unless it is told otherwise.
            env = {**dict.fromkeys(os.environ), **self.env}
            native = provider(self.agent.name.partition(":")[0])
            return connect(native(program=self.command[0], env=env), **start, **options)
        settings: dict[str, Any] = {"files": self.agent.files, **options}
        return connect(command or self.command, env=self.env, **start, **settings)

    @property
    def served(self) -> list[str]:
        """The command by which Coupler serves a native agent."""
        home = ENTRIES[self.agent.name.partition(":")[0]].home
        return [sys.executable, "-m", "coupler", "serve", f"coupler.providers.{home}"]

    def writes(self, directory: Path) -> str:
        """The prompt that makes it write a note."""
        return self.agent.order(self.agent.write, directory / "note.txt")


async def prompt(subject: Subject) -> Seen:
    session = await subject.session()
    reply = await session.prompt("Good morning")
    expect(reply.text.strip() == GREETING, f"the text is {reply.text!r}")
    expect(reply.stop_reason == "end_turn", f"it stopped with {reply.stop_reason}")
    return passed(f"“{reply.text.strip()}”, {reply.stop_reason}")


async def tool(subject: Subject) -> Seen:
    directory = subject.directory()
    session = await subject.session(directory, permissions=Policy.allow_all())
    reply = await session.prompt(subject.writes(directory))
    calls = [f"{call.kind}, {call.status}" for call in reply.tool_calls]
    expect(len(calls) == 1, f"{len(calls)} calls are reported: {calls}")
    expect(reply.tool_calls[0].status == "completed", f"the call is {calls[0]}")
    expect("The tool has answered" in reply.text, f"the text after the call is lost: {reply.text!r}")
    return passed(f"one call ({calls[0]}), and the text behind it")


async def allow(subject: Subject) -> Seen:
    directory = subject.directory()
    session = await subject.session(directory, permissions=Policy.allow_all())
    reply = await session.prompt(subject.writes(directory))
    note = directory / "note.txt"
    expect(note.exists(), "the tool was allowed and did nothing")
    expect(note.read_text().strip() == "written", f"the file holds {note.read_text()!r}")
    if subject.agent.is_native:
        return passed("the mode is `allow_all`, and the file is there")
    if not reply.permissions:
        return Seen("none", "it asks nobody")
    kinds = ", ".join(decision.tool_call.kind or "no kind" for decision in reply.permissions)
    return passed(f"it asked ({kinds}), was allowed, and the file is there")


async def deny(subject: Subject) -> Seen:
    directory = subject.directory()
    session = await subject.session(directory, permissions=Policy.deny_all())
    reply = await session.prompt(subject.writes(directory))
    if not reply.permissions and not subject.agent.is_native:
        return Seen("none", "it asks nobody")
    expect(not (directory / "note.txt").exists(), "the tool was denied and has written")
    expect(bool(reply.denied) or subject.agent.is_native, "the denial is not in the reply")
    statuses = sorted({str(call.status) for call in reply.tool_calls})
    expect(set(statuses) <= {"failed"}, f"the denied call is {', '.join(statuses)}")
    shown = "reported as failed" if statuses else "not reported"
    mode = "the mode is `read_only`, " if subject.agent.is_native else ""
    return passed(f"{mode}nothing was written, the call is {shown}, {reply.stop_reason}")


async def cancel(subject: Subject) -> Seen:
    session = await subject.session()
    subject.model.is_slow.clear()
    async with session.prompt("Be slow") as running:
        if subject.agent.is_native:
            # Some command lines show a text only when it is whole.
            await asyncio.to_thread(subject.model.is_slow.wait, TURN_SECONDS)
        else:
            await first_text(running)
        await running.cancel()
        stop = (await running).stop_reason
    expect(stop == "cancelled", f"it stopped with {stop}")
    text = (await session.prompt("Good morning")).text.strip()
    expect(text == GREETING, f"the next prompt is answered with {text!r}")
    return passed("cancelled, and the next prompt is answered")


async def first_text(running: Prompt) -> None:
    async for event in running:
        if isinstance(event, Text):
            break


async def load(subject: Subject) -> Seen:
    """Two processes: what was said in the first is there in the second."""
    directory = subject.directory()
    if subject.agent.is_native:
        return await resumed(subject, directory)
    async with subject.connect() as first:
        if not (first.offers("loadSession") or first.offers("sessionCapabilities.resume")):
            return Seen("none", "neither load nor resume is advertised")
        before = await first.new(cwd=directory)
        await before.prompt("Remember the word pumpernickel")
    async with subject.connect() as second:
        if not second.offers("loadSession"):
            session = await second.resume(before.id, cwd=directory)
            return passed(f"resumed; {await recalled(session)}")
        session = await second.load(before.id, cwd=directory)
        said = "".join(str(each) for each in session.record)
        recalls = await recalled(session)
    expect("pumpernickel" in said, f"{recalls}, but the user's words are not replayed")
    expect("Hello from" in said, f"{recalls}, but the agent's words are not replayed")
    return passed(f"both sides are replayed, {recalls}")


async def resumed(subject: Subject, directory: Path) -> Seen:
    """Two runs of `coupler exec` with one session, which Coupler and the program keep."""
    words = ["exec", subject.agent.name, "--cwd", str(directory), "--session", "kept", "--format", "quiet"]
    await run(subject, TURN_SECONDS, *words, "Remember the word pumpernickel", codes=(0,))
    text = await run(subject, TURN_SECONDS, *words, "Please recall", codes=(0,))
    expect("pumpernickel" in text, f"the model has forgotten: {text.strip()!r}")
    return passed("`coupler exec --session` goes on with it, the model knows the earlier prompt")


async def recalled(session: RemoteSession) -> str:
    """Ask the model what was said before."""
    text = (await session.prompt("Please recall")).text
    expect("pumpernickel" in text, f"the model has forgotten: {text.strip()!r}")
    return "the model knows the earlier prompt"


async def tools(subject: Subject) -> Seen:
    async with subject.connect() as agent:
        question = await called(subject, agent, "lookup_price")
    return passed(f"the function was called, {question}, and the model has its result")


async def second(subject: Subject) -> Seen:
    """Two sessions of one process, each with a function of its own."""
    async with subject.connect() as agent:
        await called(subject, agent, "lookup_price")
        await called(subject, agent, "lookup_stock")
    return passed("each session has its own function")


async def called(subject: Subject, agent: RemoteAgent, name: str) -> str:
    """Have the model of a new session call a function; return whether the agent asked about it."""
    asked: list[str] = []

    def lookup(item: str) -> str:
        """What the shop says about an item."""
        asked.append(item)
        return f"{item} by {name}"

    lookup.__name__ = name
    session = await agent.new(cwd=subject.directory(), tools=[lookup])
    server = session.given_tools.own_server
    reply = await session.prompt(subject.agent.order_bridged(server, name, {"item": "tea"}))
    await session.close()
    expect(asked == ["tea"], f"`{name}` was called with {asked}; {reply.text.strip()!r}")
    expect(f"tea by {name}" in reply.text, f"the model does not see its result: {reply.text.strip()!r}")
    return "asked and allowed" if reply.permissions else "not asked about"


class Review(TypedDict):
    """The findings of a review."""

    findings: list[str]
    is_good: bool


async def output(subject: Subject) -> Seen:
    wanted: Review = {"findings": ["too long"], "is_good": False}
    async with subject.connect() as agent:
        session = await agent.new(cwd=subject.directory(), output=Review)
        order = subject.agent.order_bridged(session.given_tools.own_server, "structured_output", wanted)
        reply = await session.prompt(order, output=Review)
    expect(reply.output == wanted, f"the output is {reply.output!r}")
    return passed(f"a value of the type, by {reply.output_way}")


async def usage(subject: Subject) -> Seen:
    """Two turns, each with one request to the model, which always takes the same."""
    session = await subject.session()
    turns = [(await session.prompt("Good morning")).usage for _ in range(2)]
    if turns[0].is_estimated:
        return Seen("none", "it reports no tokens")
    told = " and ".join(f"input {used.input}, output {used.output}" for used in turns)
    expect(
        all((used.input, used.output) == (INPUT_TOKENS, OUTPUT_TOKENS) for used in turns),
        f"two turns: {told}",
    )
    context = "" if turns[1].context_size is None else ", and the context"
    return passed(f"{told.partition(' and ')[0]} a turn{context}")


async def files(subject: Subject) -> Seen:
    """Reads and writes through the client; a written file is looked at on the disk."""
    directory = subject.directory()
    (directory / "given.txt").write_text("from the disk\n")
    record = subject.root / "files.ndjson"
    async with subject.connect(files="write", record=record) as agent:
        session = await agent.new(cwd=directory, permissions=Policy.allow_all())
        if subject.agent.read:
            await session.prompt(subject.agent.order(subject.agent.read, directory / "given.txt"))
        await session.prompt(subject.writes(directory))
    heard = record.read_text()
    used = [method for method in ("fs/read_text_file", "fs/write_text_file") if f'"{method}"' in heard]
    if not used:
        return Seen("none", "it uses the disk itself")
    expect((directory / "note.txt").exists(), f"it used {', '.join(used)}, and nothing was written")
    return passed(", ".join(used))


async def relay(subject: Subject) -> Seen:
    """`coupler serve -- agent` in between: a prompt, a tool, a cancel, and a load after a restart."""
    directory = subject.directory()
    store = subject.root / "relay.db"
    serve = [sys.executable, "-m", "coupler", "serve", "--store", str(store), "--", subject.agent.name]
    async with subject.connect(serve) as agent:
        session = await agent.new(cwd=directory, permissions=Policy.allow_all())
        text = (await session.prompt("Remember the word pumpernickel")).text.strip()
        expect(text == GREETING, f"the text is {text!r}")
        reply = await session.prompt(subject.writes(directory))
        expect((directory / "note.txt").exists(), f"nothing was written: {reply.text.strip()!r}")
        async with session.prompt("Be slow") as running:
            await first_text(running)
            await running.cancel()
            stop = (await running).stop_reason
        expect(stop == "cancelled", f"a cancelled turn stopped with {stop}")
    async with subject.connect(serve) as agent:
        again = await agent.load(session.id, cwd=directory)
        said = "".join(str(each) for each in again.record)
        expect("pumpernickel" in said and "Hello from" in said, "the history is not replayed")
        await recalled(again)
    return passed("prompt, tool, cancel; loaded after a restart, and the model knows the earlier prompt")


async def check(subject: Subject) -> Seen:
    options = ["--prompt", subject.agent.order(subject.agent.shell or subject.agent.write, Path("note.txt"))]
    options += ["--timeout", "20"]
    if subject.agent.has_slow_turns:
        options += ["--slow-prompt", "Be slow"]
    report = subject.root / "check.json"
    await run(subject, CHECK_SECONDS, "check", "--json", str(report), *options, "--", *subject.command)
    if not report.exists():
        raise CellError("there is no report")
    found = json.loads(report.read_text())
    counts = ", ".join(f"{number} {word}" for word, number in found["counts"].items())
    failed = {each["id"]: each["message"] for each in found["results"] if each["outcome"] == "failed"}
    if failed:
        return Seen("fail", f"{counts}: {', '.join(failed)}", failed)
    return passed(counts)


async def doctor(subject: Subject) -> Seen:
    # A native agent is examined as an editor would get it.
    agent = shlex.join(subject.served) if subject.agent.is_native else subject.agent.name
    found = json.loads(await run(subject, DOCTOR_SECONDS, "agents", "doctor", agent, "--json"))
    problems = [
        f"{each['about']}: {each['sentence']}" for each in found["findings"] if each["level"] == "problem"
    ]
    expect(not problems, "; ".join(problems))
    return passed(f"{len(found['findings'])} findings, no problem")


async def run(subject: Subject, seconds: float, *words: str, codes: Container[int] = (0, 1)) -> str:
    """Run a command of Coupler's, which ends with one of these exit codes; return what it wrote."""
    directory = subject.directory()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "coupler", *words,
        cwd=directory, env=subject.env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(seconds):
            out, error = await process.communicate()
    except TimeoutError:
        process.terminate()
        await process.wait()
        raise CellError(f"`coupler {words[0]}` was not done after {seconds:.0f} s") from None
    if process.returncode not in codes:
        raise CellError(f"exit code {process.returncode}: {error.decode().strip()[-300:]}")
    return out.decode()


def expect(holds: bool, seen: str) -> None:
    if not holds:
        raise CellError(seen)


def passed(proof: str) -> Seen:
    return Seen("pass", proof)


CELLS: dict[str, Callable[[Subject], Awaitable[Seen]]] = {
    cell.__name__: cell
    for cell in (
        prompt,
        tool,
        allow,
        deny,
        cancel,
        load,
        tools,
        second,
        output,
        usage,
        files,
        relay,
        doctor,
        check,
    )
}
"""All cells by name, in the order in which they are tried."""
LIMITS = {"check": CHECK_SECONDS, "doctor": DOCTOR_SECONDS, "relay": 2 * TURN_SECONDS}
"""Seconds that a cell may take; all others have `TURN_SECONDS` and a start."""
