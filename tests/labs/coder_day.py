"""A scripted day of a coding agent: one session over ACP in which everything goes wrong once.

    day = Day(coder(home, model.url, "openai"), project, model, prompts=50, steps=20)
    await day.run()
    assert not day.problems

The model's server follows a plan and has faults, the agent is killed in the middle of turns, turns are taken
back, images come and are refused. Every prompt is to be answered in the end, and nothing that was answered
may be lost.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from coupler import AgentError, Reply, connect
from coupler.client.remote import RemoteAgent
from coupler.client.session import RemoteSession
from coupler.events import Content, Text, ToolCall
from coupler.events.events import OPEN_STATUSES
from coupler.schema.v1 import ImageContent, McpServerStdio, TextContent
from labs.scripted_model import Call
from labs.strict_model import Move, StrictModel

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
"""An image of one pixel."""

CLERK = Path(__file__).parents[1] / "agent" / "servers" / "clerk.py"
"""An MCP server whose tool `show` returns an image among other blocks."""

LINE = "x = compute_something(argument_number_one, argument_number_two)  # explained in a comment, {:06}\n"
"""A line of 100 characters."""

FILE_LINES = 4_000
LINES_READ = 60

TRIES = 5
"""Prompts after which one that is still unanswered is given up."""

PROMPT_SECONDS = 120.0
KEY = "sk-of-the-scripted-day"

EVENTS: tuple[str, ...] = (
    "busy",
    "busy, and says until when",
    "failing",
    "image in a prompt",
    "overloaded",
    "image of a tool",
    "dropped before the first word",
    "dropped in the middle",
    "undone and redone",
    "dropped behind a call",
    "without an end",
    "killed while it speaks",
    "without anything",
    "killed while a command runs",
    "refuses a result",
    "undone",
    "refuses images",
)
"""What happens in the day, in this order, spread evenly over its prompts."""

FAULTS = frozenset(EVENTS) - {"image in a prompt", "image of a tool", "undone and redone", "undone"}


@dataclass(frozen=True)
class Toolset:
    """The calls by which an agent does what all can do."""

    read: Callable[[str, int, int], Call]
    edit: Callable[[str, str, str], Call]
    run: Callable[[str], Call]
    search: Callable[[str], Call]
    todos: Callable[[list[dict[str, str]]], Call]
    of_server: str = "{}"
    """The name of a tool of the MCP server."""


CODER_TOOLS = Toolset(
    read=lambda path, first, lines: Call("read_file", {"path": path, "offset": first, "limit": lines}),
    edit=lambda path, old, new: Call(
        "edit_file", {"path": path, "edits": [{"old_text": old, "new_text": new}]}
    ),
    run=lambda line: Call("run_command", {"command": line}),
    search=lambda pattern: Call("search", {"pattern": pattern, "glob": "big.py"}),
    todos=lambda todos: Call("write_todos", {"todos": todos}),
)


@dataclass(frozen=True)
class Driven:
    """An agent, and how it is driven through the day."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str]
    tools: Toolset
    mode: str | None = None
    store: Path | None = None
    """The database of its sessions, if what it keeps is measured."""
    has_undo: bool = False
    reports_running: bool = True
    """False if it does not report that a command runs, but only that it will."""


MODELS = {
    "openai": "openai:scripted",
    "anthropic": "anthropic:claude-sonnet-5-5",
    "gemini": "google_genai:gemini-3-pro",
}


def coder(home: Path, url: str, wire: str, window: int, program: Sequence[str] = ("coupler",)) -> Driven:
    """Return the served coder, with a home of its own and a model behind this address."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "coupler.toml").write_text(f"[coder]\ncontext_window = {window}\n")
    env = {
        "COUPLER_HOME": str(home),
        "HOME": str(home),
        "COUPLER_MODEL": MODELS[wire],
        "COUPLER_BASE_URL": f"{url}/v1" if wire == "openai" else url,
        "COUPLER_API_KEY": KEY,
    }
    command = [*program, "serve"]
    return Driven(
        f"Coupler, {wire}", command, env, CODER_TOOLS, "agentic", home / "coupler.db", has_undo=True
    )


@dataclass
class Life:
    """What one process of the agent has used."""

    cpu: float
    """Seconds of processor time, with what it has started and waited for."""
    peak: int
    """Bytes of resident memory at most."""


@dataclass
class Day:
    """The day of one agent; `problems` has what should not have happened."""

    agent: Driven
    project: Path
    model: StrictModel
    prompts: int
    steps: int
    """Model calls of each prompt."""
    problems: list[str] = field(default_factory=list)
    survived: list[str] = field(default_factory=list)
    """The faults after which the prompt was answered in the same session."""
    answered: int = 0
    lives: list[Life] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    """Bytes that the store has after each prompt."""
    seconds_to_leave: float = 0.0
    lost: int = 0
    """Sessions that could not go on, so that another one was opened."""

    def __post_init__(self) -> None:
        self._said: list[str] = []
        """Prompts and answers that were acknowledged, in order."""
        self._entries: list[str] = []
        self._commands: list[str] = []
        """What commands have written."""
        self._step = 0
        self._number = 0
        self._connection: RemoteAgent
        self._session: RemoteSession
        self._servers: tuple[McpServerStdio, ...] = (
            McpServerStdio("clerk", sys.executable, [str(CLERK)], []),
        )

    async def run(self) -> None:
        """Live through the day."""
        (self.project / "big.py").write_text("".join(LINE.format(each) for each in range(FILE_LINES)))
        (self.project / "ledger.txt").write_text("END\n")
        await self._start()
        self._session = await self._connection.new(**self._opening())
        self.model.summary_faults = ["failing"]
        every = self.prompts / (len(EVENTS) + 1)
        events = {round((at + 1) * every): event for at, event in enumerate(EVENTS)}
        for number in range(self.prompts):
            self._number = number
            await self._lived(events.get(number))
            self._measure_store()
        await self._leave()
        await self._start()
        await self._load()
        await self._leave(is_measured=False)
        self._check_files()

    @property
    def failures(self) -> list[str]:
        """Everything that should not have happened."""
        ledger = self.model.ledger
        return [*self.problems, *ledger.malformed, *ledger.surprises]

    # --- the prompts of the day ---

    async def _lived(self, event: str | None) -> None:
        plan = [*self._moves()]
        middle = len(plan) // 2
        prompt: Any = self._task()
        match event:
            case None:
                pass
            case "image in a prompt":
                prompt = self._with_image(prompt)
            case "image of a tool":
                name = self.agent.tools.of_server.format
                calls = Call(name("show"), {"text": DOT}), Call(name("read_memo"), {"text": "memo"})
                plan[middle : middle + 1] = Move(*calls), Move(*plan[middle].pieces, expects="some words")
            case "dropped in the middle" | "without an end":
                plan.insert(middle, Move("These are some words before the end of it all.", fault=event))
            case "dropped behind a call":
                plan.insert(middle, Move(self.agent.tools.run("echo lost"), fault=event))
            case "without anything":
                plan.insert(middle, Move(fault=event))
            case "killed while it speaks":
                plan.insert(middle, Move("So far it goes well, and now comes the rest of it.", waits=True))
                await self._killed(prompt, plan, lambda seen: isinstance(seen, Text) and "far" in seen.text)
                return
            case "killed while a command runs":
                plan.insert(middle, Move(self.agent.tools.run("sleep 61")))
                self._servers = ()
                self.model.strictness.knows_all_tools = False
                statuses = {"in_progress"} if self.agent.reports_running else OPEN_STATUSES
                await self._killed(prompt, plan, lambda seen: _is_sleeping(seen, statuses))
                return
            case "refuses a result":
                self.model.strictness.refuses_result = self._commands[-3]
            case "refuses images":
                self.model.strictness.takes_images = False
                prompt = self._with_image(prompt)
            case "undone" | "undone and redone":
                await self._undone(prompt, plan, is_redone="redone" in event)
                return
            case _:
                plan.insert(middle, Move(fault=event))
        await self._asked(prompt, plan, event)

    def _task(self) -> str:
        return f"Task {self._number:03}: work on it."

    def _answer(self) -> str:
        return f"Task {self._number:03} is done."

    def _with_image(self, prompt: str) -> list[Any]:
        return [TextContent(prompt), ImageContent(DOT, "image/png")]

    def _moves(self) -> list[Move]:
        """Return the moves of a prompt: it reads, edits, runs, searches and plans, and answers."""
        tools = self.agent.tools
        moves = [Move(self._look())]
        expected = "END"
        for at in range(self.steps - 2):
            self._step += 1
            number = self._step
            match at % 5:
                case 0:
                    first = number * LINES_READ % (FILE_LINES - LINES_READ) + 1
                    call, expects = tools.read("big.py", first, LINES_READ), f"comment, {first:06}"
                case 1:
                    entry = f"entry {number}"
                    self._entries.append(entry)
                    call, expects = tools.edit("ledger.txt", "END", f"{entry}\nEND"), ""
                case 2:
                    self._commands.append(f"step {number:05}")
                    call, expects = tools.run(f"echo step {number:05}"), f"step {number:05}"
                case 3:
                    call, expects = tools.search(f"comment, {number:06}"), f"{number:06}"
                case _:
                    call, expects = tools.todos(_todos(number)), ""
            more = (tools.run("echo besides"),) if number % 7 == 0 else ()
            moves.append(Move(f"I do step {number}.", call, *more, expects=expected))
            expected = expects
        moves.append(Move(self._answer(), expects=expected))
        return moves

    def _look(self) -> Call:
        """Read the ledger before it is changed."""
        return self.agent.tools.read("ledger.txt", 1, 2_000)

    async def _asked(self, prompt: Any, plan: list[Move], event: str | None = None) -> None:
        """Prompt, and again until there is an answer."""
        self.model.begin(plan, self._task())
        told: list[str] = []
        for attempt in range(TRIES):
            told.append(_text_of(prompt))
            try:
                reply: Reply | None = await self._session.prompt(prompt, timeout=PROMPT_SECONDS)
            except AgentError as error:
                reply = None
                reason = str(error)
                if not self._connection.is_running:
                    await self._again()
            else:
                reason = f"it ended with {reply.stop_reason} and {reply.text[-200:]!r}"
            if reply is not None and self._answer() in reply.text:
                self._done([*told, self._answer()], event)
                return
            prompt = f"Go on with task {self._number:03}, please ({attempt + 1})."
        self.problems.append(f"{self._task()} {event or 'nothing special'}: never answered: {reason}")
        await self._give_up()

    def _done(self, told: list[str], event: str | None) -> None:
        if self.model.left:
            self.problems.append(f"{self._task()} {self.model.left} moves were not asked for")
        self._said += [told[0], told[-1]]
        self.answered += 1
        if event in FAULTS:
            self.survived.append(str(event))

    async def _killed(self, prompt: str, plan: list[Move], is_time: Callable[[object], bool]) -> None:
        """Kill the agent in the middle of this prompt; start it again, load the session and go on."""
        event = "killed"
        self.model.begin(plan, self._task())
        process = self.model.process
        assert process is not None
        with contextlib.suppress(AgentError):
            async with self._session.prompt(prompt, timeout=PROMPT_SECONDS) as asked:
                async for seen in asked:
                    if process is not None and is_time(seen):
                        self._measure_life()
                        os.kill(process, signal.SIGKILL)
                        process = None
        if process is not None:
            self.problems.append(f"{self._task()} was over before the agent was killed")
            return
        rest = plan[len(plan) - self.model.left :]
        # What was called when it was killed has no result; a file has to be read again before a change.
        rest = [Move(self._look()), Move(*rest[0].pieces, expects="END"), *rest[1:]]
        self.model.release()
        with contextlib.suppress(AgentError):
            await self._connection.close()
        await self._start()
        lost = self.lost
        await self._load()
        await self._asked(f"Go on with task {self._number:03}, you were killed.", rest)
        if self.lost == lost:
            self.survived.append(event)

    async def _undone(self, prompt: str, plan: list[Move], *, is_redone: bool) -> None:
        """Take the turn back, look at the files, and give it back."""
        before, said = self._files(), len(self._said)
        await self._asked(prompt, plan)
        if not self.agent.has_undo or not self._said:
            return
        after = self._files()
        for command, expected in (("/undo", before), ("/redo", after))[: 1 + is_redone]:
            reply = await self._session.prompt(command, timeout=PROMPT_SECONDS, commands=True)
            if self._files() != expected:
                self.problems.append(f"after {command} the files are not as they were: {reply.text}")
        if not is_redone:
            del self._said[said:]
            self._entries = before["ledger.txt"].splitlines()[:-1]

    # --- the agent's process ---

    def _opening(self) -> dict[str, Any]:
        mode = {} if self.agent.mode is None else {"mode": self.agent.mode}
        return {
            "cwd": self.project,
            "mcp_servers": self._servers,
            "permissions": "allow-all",
            **mode,
        }

    async def _start(self) -> None:
        others = {each.pid for each in psutil.Process().children()}
        self._connection = connect(
            [*self.agent.command],
            cwd=self.project,
            env=dict(self.agent.env),
            startup_timeout=PROMPT_SECONDS,
            files="none",
        )
        await self._connection.__aenter__()
        [self.model.process] = [
            each.pid
            for each in psutil.Process().children()
            # Beside it there is the client's guard.
            if each.pid not in others and each.cmdline()[-1:] == [*self.agent.command[-1:]]
        ]

    async def _again(self) -> None:
        """Start an agent that has died, and load the session."""
        self.problems.append(f"{self._task()} the agent died")
        with contextlib.suppress(AgentError):
            await self._connection.close()
        await self._start()
        await self._load()

    async def _load(self) -> None:
        """Load the session, and look whether all that was acknowledged is replayed once, in order."""
        try:
            self._session = await self._connection.load(self._session.id, **self._opening())
        except AgentError as error:
            self.problems.append(f"the session cannot be loaded: {error}")
            await self._give_up()
            return
        replayed = _replayed(self._session)
        at = 0
        for text in self._said:
            if replayed.count(text) != 1:
                self.problems.append(f"{text!r} is replayed {replayed.count(text)} times")
            elif (found := replayed.find(text, at)) < 0:
                self.problems.append(f"{text!r} is replayed too early")
            else:
                at = found

    async def _give_up(self) -> None:
        """Open another session, in which the day goes on."""
        self.lost += 1
        self._said = []
        self._session = await self._connection.new(**self._opening())

    async def _leave(self, *, is_measured: bool = True) -> None:
        self._measure_life()
        began = time.perf_counter()
        with contextlib.suppress(AgentError):
            await self._connection.close()
        if is_measured:
            self.seconds_to_leave = time.perf_counter() - began

    def _measure_life(self) -> None:
        assert self.model.process is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.model.process)
            family = [process, *process.children(recursive=True)]
            times = [each.cpu_times() for each in family]
            cpu = sum(each.user + each.system + each.children_user + each.children_system for each in times)
            self.lives.append(Life(cpu, _peak(process.pid)))

    def _measure_store(self) -> None:
        if self.agent.store is not None:
            with contextlib.closing(sqlite3.connect(f"file:{self.agent.store}?mode=ro", uri=True)) as store:
                [(pages, size, free)] = store.execute(
                    "SELECT page_count, page_size, freelist_count"
                    " FROM pragma_page_count, pragma_page_size, pragma_freelist_count"
                )
            self.kept.append((pages - free) * size)

    def _files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted(self.project.glob("*.txt"))}

    def _check_files(self) -> None:
        expected = "".join(f"{line}\n" for line in [*self._entries, "END"])
        found = (self.project / "ledger.txt").read_text()
        if found != expected:
            self.problems.append(f"the ledger has {len(found)} characters, and should have {len(expected)}")


def processor_time(process: int) -> float:
    """Seconds of processor time of a process alone."""
    try:
        times = psutil.Process(process).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def _peak(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def _is_sleeping(seen: object, statuses: Container[str]) -> bool:
    return isinstance(seen, ToolCall) and seen.status in statuses and "sleep 61" in str(seen)


def _todos(number: int) -> list[dict[str, str]]:
    return [
        {"content": f"Step {number}", "status": "in_progress"},
        {"content": f"Step {number + 1}", "status": "pending"},
    ]


def _text_of(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else str(prompt[0].text)


def _replayed(session: RemoteSession) -> str:
    """Return what was said, prompts and answers, as a client shows it."""
    said: list[str] = []
    for received in session.record:
        match received.event:
            case Text(text):
                said.append(text)
            case Content(block=TextContent(text=text), role="user"):
                said.append(f"\n> {text}\n")
    return "".join(said)
