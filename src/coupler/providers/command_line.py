"""Agents that are command lines: one run of the program a turn, its own session continued by the next.

A subclass says how the program is started and how its stream is read. Its permission prompts cannot be
answered from outside, so a session's mode decides beforehand what it may do.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeAlias, cast

import msgspec
from msgspec import UNSET

from coupler.agent.agent import Agent, Choice, Mode, Select
from coupler.agent.content import json_value, whole_text
from coupler.agent.tool_call import Ledger
from coupler.agent.turn import NOTICES
from coupler.client.policy import Confinement, PolicyName
from coupler.events import Notice, Plan, Text, Thought, ToolOutput, ToolUpdate, Usage
from coupler.events.events import CHANGEABLE, OPEN_STATUSES
from coupler.mcp.servers import merged
from coupler.providers.catalogue import ENTRIES, Provider
from coupler.providers.streams import Loose, Outcome, ProviderError, Said, Tokens
from coupler.runtime.commands import Job
from coupler.runtime.environment import Environment, SpawnError
from coupler.runtime.process import APART, Child
from coupler.schema.v1 import (
    Cost,
    Diff,
    McpServer,
    McpServerHttp,
    McpServerSse,
    McpServerStdio,
    StopReason,
    ToolCallContent,
    ToolCallLocation,
)
from coupler.wire.frames import DEFAULT_LIMIT, FrameBuffer

if TYPE_CHECKING:
    from coupler.agent.turn import Turn
    from coupler.providers.streams import StreamParser


log = logging.getLogger("coupler.providers")

READ_ONLY, DENY_ASKS, ALLOW_EDITS, ALLOW_ALL = "read_only", "deny_asks", "allow_edits", "allow_all"
MODES = {
    READ_ONLY: "Look, and change nothing",
    DENY_ASKS: "What the program's own settings allow; what it would ask for is denied",
    ALLOW_EDITS: "Also change files in the session's directories",
    ALLOW_ALL: "Everything, without asking",
}
"""What a session may do, from the least on."""

LONGEST_ARGUMENT = 100_000
"""Bytes of one argument: Linux takes 128 KiB."""

SESSION_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,255}")
"""What goes on a command line as the program's own session: nothing that could be taken for an option."""

AS_CONFIGURED = "default"
"""The choice of a model that leaves it to the program."""

OptionValue = str | int | float | bool


class Order(NamedTuple):
    """What one turn wants of a program."""

    prompt: str
    resume: str | None
    """The program's own session to go on with."""
    is_briefed: bool
    """Whether that session has heard the system prompt in an earlier prompt."""
    model: str | None
    mode: str
    directories: tuple[str, ...]
    """Those that the session has besides its working directory."""
    mcp_servers: tuple[McpServer, ...]
    env: Mapping[str, str]
    scratch: Scratch


class CommandLineAgent(Agent):
    """A program with a stream of JSON lines, as an agent. Instances hold no state of a session."""

    entry: ClassVar[Provider]
    models: ClassVar[Sequence[str]] = ()
    """Models that can be chosen in a session; others can be named when the agent is made."""
    flags: ClassVar[Mapping[str, str]] = {}
    """The options that the program has, and how its command line spells them."""
    has_allowed_tools: ClassVar[bool] = True
    has_output_schema: ClassVar[bool] = False
    confinement: Confinement
    """What policies mean to it: its permission prompts cannot be answered from outside."""
    counts_whole_session: ClassVar[bool] = False
    """Whether the tokens of its stream are those of all turns so far."""

    def __init__(
        self,
        *,
        model: str | None = None,
        system_prompt: str | None = None,
        mode: str | None = None,
        allowed_tools: Sequence[str] = (),
        options: Mapping[str, OptionValue] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        arguments: Sequence[str] = (),
        program: str | None = None,
        env: Mapping[str, str | None] | None = None,
    ) -> None:
        """`mode` is what sessions begin in whose client names no policy, in place of `deny_asks`; for our own
        `connect` it is in place of `read_only`. `allowed_tools` may be used without asking in any.

        `options` are those of `flags`; `arguments` go to the program as they are. `output_schema` is the JSON
        Schema of every answer. `program` is another name or path of it, `env` changes its environment.
        """
        self._model = model
        self._system_prompt = whole_text(system_prompt, "a system prompt") if system_prompt else None
        self._allowed_tools = tuple(allowed_tools)
        self._flags = self._as_flags(options or {})
        self._output_schema = dict(output_schema) if output_schema is not None else None
        self._arguments = tuple(arguments)
        self._program = program or self.entry.program or ""
        self._env = dict(env or {})
        self._refuse_what_it_lacks()
        self.modes = _modes_from(mode or DENY_ASKS)
        self.confinement = _confinement(self.entry, mode)
        self.options = self._model_choice()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.entry = ENTRIES[cast(str, cls.name)]
        cls.title = cls.entry.title
        cls.modes = _modes_from(DENY_ASKS)
        cls.options = _choice_of(cls.models, None)
        cls.confinement = _confinement(cls.entry, None)

    def invocation(self, order: Order) -> Invocation:
        """How the program is started for a turn."""
        raise NotImplementedError

    def parser(self) -> StreamParser:
        """A reader for one turn's stream."""
        raise NotImplementedError

    async def prompt(self, turn: Turn) -> StopReason | None:
        """Run the program for one prompt."""
        if not turn.text.strip():
            raise ProviderError(f"The prompt is empty: {self.entry.title} needs a text.")
        memory = Memory.of(turn.session.state)
        with Scratch() as scratch:
            order = self._order(turn, memory, scratch)
            return await self._answer(turn, order, memory)

    async def _answer(self, turn: Turn, order: Order, memory: Memory) -> StopReason | None:
        parser, showing = self.parser(), Showing(turn, cost_before=memory.cost)
        outcome = parser.outcome

        async def hear(line: bytes) -> bool:
            said = parser.read(line)
            own = outcome.session_id
            if own and own != memory.session and SESSION_ID.fullmatch(own):
                # Kept at once: a turn that is cancelled or fails belongs to the conversation, too.
                memory.session = own
                memory.is_briefed = True
                turn.session.state = memory.as_state()
            for event in said:
                await showing.show(event)
            return outcome.is_final

        ending = await self._run(turn, order, hear)
        for event in parser.end():
            await showing.show(event)
        if outcome.structured is not UNSET:
            await turn.say_apart(msgspec.json.encode(outcome.structured).decode())
            showing.has_answer = True
        await self._account(turn, outcome, memory, showing)
        self._note_what_was_dropped(parser, ending)
        return self._verdict(outcome, ending, order, has_answer=showing.has_answer)

    async def _run(self, turn: Turn, order: Order, hear: Any) -> Ending:
        invocation = self.invocation(order)
        turn.session.secrets.notice({name: value for name, value in self._env.items() if value is not None})
        try:
            return await turn.own(
                run_program(
                    self._program,
                    invocation._replace(env={**invocation.env, **self._env}),
                    cwd=turn.session.cwd,
                    env=turn.session.env,
                    hear=hear,
                    grace=lambda: turn.grace,
                )
            )
        except SpawnError as error:
            raise self._cannot_start(error) from None

    def _order(self, turn: Turn, memory: Memory, scratch: Scratch) -> Order:
        session = turn.session
        chosen = session.options.get("model")
        model = self._model if chosen is None else str(chosen) if chosen != AS_CONFIGURED else None
        prompt = whole_text(turn.text.replace("\0", " "), "a prompt")
        return Order(
            prompt,
            memory.session,
            memory.is_briefed,
            model,
            session.mode or DENY_ASKS,
            session.roots[1:],
            tuple(merged(session.project.mcp_servers, session.mcp_servers).values()),
            session.env,
            scratch,
        )

    def briefed_prompt(self, order: Order) -> str:
        """The prompt, for programs that have no other place for a system prompt: before the first one."""
        if not self._system_prompt or (order.is_briefed and order.resume):
            return order.prompt
        return f"{self._system_prompt.strip()}\n\n{order.prompt}"

    def as_argument(self, text: str, what: str) -> str:
        """The text if it fits into a command line."""
        if len(text.encode("utf-8", "replace")) > LONGEST_ARGUMENT:
            raise ProviderError(
                f"{what} is too long for a command line: keep it below {LONGEST_ARGUMENT} bytes."
            )
        return text.replace("\0", " ")

    async def _account(self, turn: Turn, outcome: Outcome, memory: Memory, showing: Showing) -> None:
        tokens = outcome.tokens
        if tokens is not None:
            spent = tokens.since(memory.tokens) if self.counts_whole_session and memory.tokens else tokens
            memory.tokens = tokens if self.counts_whole_session else None
            await showing.show_tokens(spent)
        if outcome.cost is not None:
            await showing.show_cost(outcome.cost)
            memory.cost += outcome.cost
        turn.session.state = memory.as_state()

    def _verdict(
        self, outcome: Outcome, ending: Ending, order: Order, *, has_answer: bool
    ) -> StopReason | None:
        title, exit_code, stderr = self.entry.title, ending.exit_code, ending.stderr
        if outcome.error is not None:
            raise ProviderError(f"{title} failed: {outcome.error}", exit_code=exit_code, stderr=stderr)
        if outcome.stop_reason is not None:
            return cast(StopReason, outcome.stop_reason)
        if ending.returncode != 0 and not outcome.is_final:
            why = f": {outcome.warning}" if outcome.warning else ""
            hint = (
                ""
                if has_answer or order.resume is None
                else f" It was to go on with its session {order.resume}."
            )
            message = f"{title} {ending.in_words()}{why}.{hint}"
            raise ProviderError(message, exit_code=exit_code, stderr=stderr)
        if not has_answer:
            why = f": {outcome.warning}" if outcome.warning else ""
            raise ProviderError(f"{title} answered nothing{why}.", exit_code=exit_code, stderr=stderr)
        return None

    def _note_what_was_dropped(self, parser: StreamParser, ending: Ending) -> None:
        if parser.garbage or parser.unknown or ending.oversized:
            log.debug(
                "%s: %d lines were no JSON objects, %d of unknown kinds, %d too long",
                self.entry.name,
                parser.garbage,
                parser.unknown,
                ending.oversized,
            )

    def _cannot_start(self, error: SpawnError) -> ProviderError:
        if error.kind != "missing_program":
            return ProviderError(f"{self.entry.title} cannot be started. {error.message}")
        return ProviderError(f"The program {self._program!r} was not found. {self.entry.install}")

    def _as_flags(self, options: Mapping[str, OptionValue]) -> list[str]:
        words: list[str] = []
        for name, value in options.items():
            if name not in self.flags:
                near = get_close_matches(name, self.flags, 1)
                meant = f"; did you mean {near[0]!r}?" if near else ""
                known = ", ".join(self.flags) or "none"
                raise ValueError(f"{self.entry.name} has no option {name!r}, only {known}{meant}")
            if value is True:
                words.append(self.flags[name])
            elif value is not False:
                words.append(f"{self.flags[name]}={value}")
        return words

    def _refuse_what_it_lacks(self) -> None:
        if self._allowed_tools and not self.has_allowed_tools:
            raise ValueError(f"{self.entry.name} has no list of allowed tools: choose a mode instead")
        if self._output_schema is not None and not self.has_output_schema:
            raise ValueError(
                f"{self.entry.name} takes no schema: ask for the form of the answer in the prompt"
            )

    def _model_choice(self) -> Sequence[Select]:
        if self._model is None or self._model in self.models or not self.models:
            return _choice_of(self.models, self._model)
        return _choice_of((*self.models, self._model), self._model)


def _confinement(entry: Provider, mode: str | None) -> Confinement:
    modes: dict[PolicyName, str] = {
        "deny-all": READ_ONLY,
        "allow-reads": READ_ONLY,
        "allow-all": ALLOW_ALL,
        "ask": mode or DENY_ASKS,
    }
    return Confinement(f"{entry.title} by its command line", modes, mode)


def _modes_from(first: str) -> list[Mode]:
    if first not in MODES:
        raise ValueError(f"a mode is one of {', '.join(MODES)}, not {first!r}")
    return [Mode(name, MODES[name]) for name in sorted(MODES, key=lambda name: name != first)]


def _choice_of(models: Sequence[str], chosen: str | None) -> Sequence[Select]:
    if not models:
        return ()
    default = Choice(AS_CONFIGURED, "As configured")
    return [
        Select("model", [default, *models], default=chosen or AS_CONFIGURED, name="Model", category="model")
    ]


# A program that answers one turn: started, heard line by line, and ended with all that it started.


LEFT_RUNNING_GRACE = 1.0
"""Seconds that processes have which the program left running when it ended by itself."""

LINGER = 5.0
"""Seconds in which a program must end that has said its last word."""

Hear = Callable[[bytes], Awaitable[bool]]
"""Takes a line; returns whether it was the last one that matters."""


class Invocation(NamedTuple):
    """How a program is started for one turn."""

    arguments: Sequence[str]
    input: bytes = b""
    """What it reads from stdin."""
    env: Mapping[str, str | None] = {}
    """What differs from the session's environment; None removes a variable."""


class Ending(NamedTuple):
    """How a program ended."""

    returncode: int | None
    stderr: str
    oversized: int
    """Lines over the limit, which were dropped."""

    @property
    def exit_code(self) -> int | None:
        """None if a signal ended it."""
        return self.returncode if self.returncode is not None and self.returncode >= 0 else None

    def in_words(self) -> str:
        """How it ended, for a sentence."""
        if self.exit_code is None:
            return f"was ended by signal {-(self.returncode or 0)}"
        return f"ended with exit code {self.exit_code}"


async def run_program(
    program: str,
    invocation: Invocation,
    *,
    cwd: str,
    env: Mapping[str, str | None],
    hear: Hear,
    grace: Callable[[], float],
    line_limit: int = DEFAULT_LIMIT,
) -> Ending:
    """Run the program to its end and hear each of its lines, or raise `SpawnError`.

    Whatever ends this early ends the program and its whole group: SIGTERM, and SIGKILL after the grace.
    """
    # Some programs believe the shell's variable rather than the directory that they are in.
    environment = Environment({**env, "PWD": cwd, **invocation.env}, inherits=False)
    child = Child.spawn([program, *invocation.arguments], cwd=cwd, env=environment, streams=APART)
    job = Job(child, invocation.input)
    reading = _Reading(hear, line_limit)
    try:
        await _follow(job, reading)
        await job.end(LEFT_RUNNING_GRACE)
    except BaseException:
        await job.end(grace())
        raise
    finally:
        job.close()
    return Ending(job.returncode, child.stderr, reading.oversized)


async def _follow(job: Job, reading: _Reading) -> None:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as patience:

            async def listen(chunk: bytes) -> None:
                if await reading.take(chunk) and patience.when() is None:
                    patience.reschedule(loop.time() + LINGER)

            await job.hear(listen)
            await reading.finish()
            await job.wait()
    except TimeoutError:
        if not reading.is_over:
            raise  # not ours: somebody's listener gave up


class _Reading:
    """Chunks as lines, for somebody who says when it was the last."""

    def __init__(self, hear: Hear, limit: int) -> None:
        self.oversized = 0
        self.is_over = False
        self._hear = hear
        self._lines = FrameBuffer(limit)

    async def take(self, chunk: bytes) -> bool:
        for line in self._lines.feed(chunk):
            await self._pass_on(line)
        return self.is_over

    async def finish(self) -> None:
        for line in self._lines.end():
            await self._pass_on(line)

    async def _pass_on(self, line: object) -> None:
        if isinstance(line, bytes):
            self.is_over = await self._hear(line) or self.is_over
        else:
            self.oversized += 1


# From what a stream says to what a turn's client is shown.
#
# The stream's ids of tool calls are kept where they can be: a session knows each id once, and some programs
# count from nothing in every turn.


class Showing:
    """Shows one turn's events, in their order."""

    def __init__(self, turn: Turn, *, cost_before: float = 0.0) -> None:
        self.has_answer = False
        """Whether anything was shown that answers the prompt: text, or a tool call."""
        self._turn = turn
        self._cost = cost_before
        self._usage = Usage(0, 0)
        self._ids: dict[str, str] = {}
        self._message: tuple[type, str | None] | None = None

    async def show(self, said: Said) -> None:
        """Show one event."""
        match said:
            case Text(text, message_id) if text:
                self._continue_message(Text, message_id)
                self.has_answer = self.has_answer or bool(text.strip())
                await self._turn.say(text)
            case Thought(text, message_id) if text:
                self._continue_message(Thought, message_id)
                await self._turn.think(text)
            case ToolUpdate():
                self._show_call(said)
                await self._turn.session.outlet.wait_for_room()
            case ToolOutput(id, item):
                self._ledger.append(self._known(id), self._absolute_item(item))
                await self._turn.session.outlet.wait_for_room()
            case _:
                await self._show_aside(said)

    async def show_tokens(self, spent: Tokens) -> None:
        """Show what the turn has used so far."""
        await self._turn.count_tokens(
            spent.input,
            spent.output,
            cached_read=spent.cached_read,
            cached_write=spent.cached_write,
            thought=spent.thought,
            total=spent.sum,
        )

    async def show_cost(self, cost: float) -> None:
        """Report what the turn has cost, together with all turns before it."""
        total = Cost(round(self._cost + cost, 9), "USD")
        await self._turn.report(msgspec.structs.replace(self._usage, cost=total))

    async def _show_aside(self, said: Said) -> None:
        match said:
            case Plan():
                self._turn.begin_new_message()
                await self._turn.report(said)
            case Usage():
                self._usage = said
                await self._turn.report(said)
            case Notice(_, title, description):
                if self._turn.editor.offers(NOTICES):
                    await self._turn.report(said)
                else:
                    # Not as a message: what the agent answers may be read by a program.
                    self._continue_message(Notice, None)
                    await self._turn.think(f"{title}: {description}" if description else title)
                    self._message = None

    def _continue_message(self, kind: type, message_id: str | None) -> None:
        if self._message != (kind, message_id):
            self._message = (kind, message_id)
            self._turn.begin_new_message()

    def _show_call(self, update: ToolUpdate) -> None:
        self.has_answer = True
        self._message = None
        fields = {name: value for name in CHANGEABLE if (value := getattr(update, name)) is not UNSET}
        for name in ("raw_input", "raw_output"):
            if name in fields:
                fields[name] = json_value(fields[name])
        if update.locations is not UNSET:
            fields["locations"] = tuple(self._absolute_location(each) for each in update.locations)
        if update.id not in self._ids:
            self._announce(update.id, fields)
            if fields.get("status", "pending") in OPEN_STATUSES:
                return
        self._ledger.update(self._ids[update.id], **fields)

    def _announce(self, id: str, fields: dict[str, Any]) -> None:
        self._turn.check_alive()
        self._turn.begin_new_message()
        told = (
            {**fields, "status": "in_progress"} if fields.get("status") not in OPEN_STATUSES else dict(fields)
        )
        title = told.pop("title", "") or "tool"
        told.pop("raw_output", None)
        # An earlier turn may have had this id.
        wanted = f"{id}_{os.urandom(4).hex()}" if self._ledger.knows(id) else id
        self._ids[id] = self._ledger.announce(title, id=wanted or None, **told)

    def _known(self, id: str) -> str:
        """The call's id in the session; one that the stream never announced is announced now."""
        if id not in self._ids:
            self._show_call(ToolUpdate(id=id, status="in_progress"))
        return self._ids[id]

    def _absolute_item(self, item: ToolCallContent) -> ToolCallContent:
        if isinstance(item, Diff):
            return msgspec.structs.replace(item, path=self._absolute(item.path))
        return item

    def _absolute_location(self, location: ToolCallLocation) -> ToolCallLocation:
        return msgspec.structs.replace(location, path=self._absolute(location.path))

    def _absolute(self, path: str) -> str:
        return str(Path(self._turn.session.cwd, path))

    @property
    def _ledger(self) -> Ledger:
        return self._turn.session.outlet.ledger


# Files that a program needs for one turn: readable by nobody else, and gone afterwards.


class Scratch:
    """A directory that is made when the first file is written; a context manager that removes it."""

    def __init__(self) -> None:
        self._directory: Path | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def write(self, name: str, text: str) -> str:
        """The path of a new file with this text."""
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="coupler-"))
        path = self._directory / name
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        return str(path)

    def write_json(self, name: str, value: Any) -> str:
        """The path of a new file with this value."""
        return self.write(name, msgspec.json.encode(value).decode())


# MCP servers in the words that most programs' configuration files share.


Described: TypeAlias = dict[str, Any]


def described(server: McpServer) -> Described:
    """A server as Claude's and Copilot's files have it; the others differ in a few names."""
    match server:
        case McpServerStdio(_, command, args, env):
            variables = {variable.name: variable.value for variable in env}
            return {"type": "stdio", "command": command, "args": list(args), "env": variables}
        case McpServerHttp(_, url, headers):
            return {"type": "http", "url": url, "headers": {header.name: header.value for header in headers}}
        case McpServerSse(_, url, headers):
            return {"type": "sse", "url": url, "headers": {header.name: header.value for header in headers}}
        case _:
            raise ProviderError(f"An MCP server of the kind {type(server).__name__} cannot be handed on.")


def named(servers: Iterable[McpServer]) -> dict[str, Described]:
    """The servers by name; of two with one name the last is used."""
    return {name_of(server): described(server) for server in servers}


def name_of(server: McpServer) -> str:
    """What the client calls the server."""
    return str(getattr(server, "name", "") or "server")


# What a provider remembers of a session: kept with every turn, and there again after a restart.


class Memory:
    """The program's own session, what it has cost, and what it has counted."""

    def __init__(self) -> None:
        self.session: str | None = None
        self.is_briefed = False
        """Whether the system prompt is part of the conversation."""
        self.cost = 0.0
        self.tokens: Tokens | None = None
        """Those of the whole session, for programs that count so."""

    @classmethod
    def of(cls, state: object) -> Memory:
        """The memory that was kept; what cannot be read is forgotten."""
        kept, memory = Loose(state), cls()
        memory.session = kept.text("session") or None
        memory.is_briefed = kept.is_true("briefed")
        memory.cost = kept.amount("cost") or 0.0
        if counted := kept.object("tokens"):
            memory.tokens = Tokens(
                counted.count("input") or 0,
                counted.count("output") or 0,
                counted.count("cached_read"),
                counted.count("cached_write"),
                counted.count("thought"),
                counted.count("total"),
            )
        return memory

    def as_state(self) -> dict[str, Any]:
        """The memory as a session's state."""
        state: dict[str, Any] = {"session": self.session, "briefed": self.is_briefed, "cost": self.cost}
        if self.tokens is not None:
            state["tokens"] = {name: getattr(self.tokens, name) for name in self.tokens.__struct_fields__}
        return state
