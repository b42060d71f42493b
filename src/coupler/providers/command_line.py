"""Runs an agent that is a command line: one run of the program a turn, continuing its own session.

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
from collections import OrderedDict
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
from coupler.client.limits import Limits, TurnIntake
from coupler.client.policy import Confinement, PolicyName
from coupler.events import Notice, Plan, Text, Thought, ToolOutput, ToolUpdate, Usage
from coupler.events.events import OPEN_STATUSES, UPDATABLE_FIELDS
from coupler.mcp.servers import merge_servers
from coupler.providers.catalogue import ENTRIES, Provider
from coupler.providers.streams import (
    LooseObject,
    ProviderError,
    RecentKeys,
    StreamEvent,
    TokenCounts,
    TurnOutcome,
)
from coupler.runtime.commands import RunningCommand
from coupler.runtime.environment import Environment, SpawnError
from coupler.runtime.process import SEPARATE_STREAMS, Child
from coupler.schema.v1 import (
    Content,
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
from coupler.wire.frames import FrameBuffer

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
"""The modes of a session, from the least permission on."""

LONGEST_ARGUMENT = 100_000
"""Bytes of one argument, at most: Linux takes 128 KiB."""

LEFT_RUNNING_GRACE = 1.0
"""Seconds that processes have which the program left running when it ended by itself."""

EXIT_TIMEOUT = 5.0
"""Seconds in which a program must exit after its final message."""

SESSION_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,255}")
"""Pattern of session ids that may go on a command line: none could be taken for an option."""

DEFAULT_MODEL = "default"
"""The choice of a model that leaves it to the program."""

LONGEST_ID = 1000
"""Characters of the id of a tool call that are kept; the ledger has the ids of a whole session."""

LIMITS = Limits()
"""The limits on a turn of a program or a model, as on one of an agent over ACP."""

OptionValue = str | int | float | bool

OnLine = Callable[[bytes], Awaitable[bool]]
"""Takes a line; returns whether all that matters was said, as far as the lines until now tell."""

McpConfig: TypeAlias = dict[str, Any]


class TurnRequest(NamedTuple):
    """Everything that a program's command line needs to know of one turn."""

    prompt: str
    resume: str | None
    """The program's own session to continue."""
    is_briefed: bool
    """True if that session got the system prompt in an earlier prompt."""
    model: str | None
    mode: str
    directories: tuple[str, ...]
    """The session's additional directories."""
    mcp_servers: tuple[McpServer, ...]
    env: Mapping[str, str]
    """The environment in which the program would run; what an invocation changes of it goes over it."""
    scratch: ScratchDirectory


class ProgramInvocation(NamedTuple):
    """The arguments, stdin and environment of a program for one turn."""

    arguments: Sequence[str]
    input: bytes = b""
    """The bytes that it reads from stdin."""
    env: Mapping[str, str | None] = {}
    """Changes to the session's environment; None removes a variable."""


class ProgramExit(NamedTuple):
    """The exit status of a program, with its stderr."""

    returncode: int | None
    """0 also for one that was ended because it stayed after its final message."""
    stderr: str
    oversized: int
    """Lines over the limit, which were dropped."""

    @property
    def exit_code(self) -> int | None:
        """The exit code; None if a signal ended it."""
        return self.returncode if self.returncode is not None and self.returncode >= 0 else None

    def in_words(self) -> str:
        """Describe the exit for a sentence."""
        if self.exit_code is None:
            return f"was ended by signal {-(self.returncode or 0)}"
        return f"ended with exit code {self.exit_code}"


class CommandLineAgent(Agent):
    """An agent that is a program with a stream of JSON lines. Instances hold no state of a session."""

    keeps_prompts = True
    entry: ClassVar[Provider]
    models: ClassVar[Sequence[str]] = ()
    """Models that can be chosen in a session; others can be named when the agent is made."""
    flags: ClassVar[Sequence[str]] = ()
    """The options that the program has; its command line spells `max_turns` as `--max-turns`."""
    has_allowed_tools: ClassVar[bool] = True
    has_output_schema: ClassVar[bool] = False
    confinement: Confinement
    """The mode that enforces each policy, because its permission prompts cannot be answered from outside."""
    counts_whole_session: ClassVar[bool] = False
    """True if the tokens in its stream are those of all turns so far."""

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
        """Configure the agent; `mode` is the first mode of sessions whose client names no policy.

        It replaces `deny_asks`, and `read_only` for our own `connect`. `allowed_tools` may be used without
        asking in any mode. `options` are those of `flags`; `arguments` go to the program as they are.
        `output_schema` is the JSON Schema of every answer. `program` is another name or path of the program,
        `env` changes its environment.
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

    def invocation(self, request: TurnRequest) -> ProgramInvocation:
        """Return how the program is started for a turn."""
        raise NotImplementedError

    def parser(self) -> StreamParser:
        """Return a parser for one turn's stream."""
        raise NotImplementedError

    def notices(self, request: TurnRequest) -> Iterable[Notice]:
        """Return what the user should know after a turn that the program does not say itself."""
        return ()

    async def prompt(self, turn: Turn) -> StopReason | None:
        """Run the program for one prompt."""
        if not turn.text.strip():
            raise ProviderError(f"The prompt is empty: {self.entry.title} needs a text.")
        provider_state = ProviderState.of(turn.session.state)
        with ScratchDirectory() as scratch:
            request = self._turn_request(turn, provider_state, scratch)
            return await self._answer(turn, request, provider_state)

    async def _answer(
        self, turn: Turn, request: TurnRequest, provider_state: ProviderState
    ) -> StopReason | None:
        parser = self.parser()
        presenter = TurnPresenter(turn, self.entry.title, cost_before=provider_state.cost)
        outcome = parser.outcome

        async def hear(line: bytes) -> bool:
            said = parser.read(line)
            own = outcome.session_id
            if own and own != provider_state.session and SESSION_ID.fullmatch(own):
                # Kept at once: a turn that is cancelled or fails belongs to the conversation, too.
                provider_state.session = own
                provider_state.is_briefed = True
                turn.session.state = provider_state.as_state()
            for event in said:
                await presenter.show(event, len(line))
            return outcome.is_final

        program_exit = await self._run(turn, request, hear)
        for event in parser.end():
            await presenter.show(event)
        if outcome.structured is not UNSET:
            await turn.say_apart(msgspec.json.encode(outcome.structured).decode())
            presenter.has_answer = True
        if program_exit.returncode == 0:
            for notice in self.notices(request):
                await presenter.show(notice)
        await self._account(turn, outcome, provider_state, presenter)
        self._note_what_was_dropped(parser, program_exit)
        return self._verdict(outcome, program_exit, request, has_answer=presenter.has_answer)

    async def _run(self, turn: Turn, request: TurnRequest, hear: Any) -> ProgramExit:
        invocation = self.invocation(request)
        turn.session.secrets.notice({name: value for name, value in self._env.items() if value is not None})
        try:
            return await turn.own(
                run_program(
                    self._program,
                    invocation._replace(env={**self._env, **invocation.env}),
                    cwd=turn.session.cwd,
                    env=turn.session.env,
                    hear=hear,
                    grace=lambda: turn.grace,
                )
            )
        except SpawnError as error:
            raise self._cannot_start(error) from None

    def _turn_request(
        self, turn: Turn, provider_state: ProviderState, scratch: ScratchDirectory
    ) -> TurnRequest:
        session = turn.session
        chosen = session.options.get("model")
        model = self._model if chosen is None else str(chosen) if chosen != DEFAULT_MODEL else None
        prompt = whole_text(turn.text.replace("\0", " "), "a prompt")
        return TurnRequest(
            prompt,
            provider_state.session,
            provider_state.is_briefed,
            model,
            session.mode or DENY_ASKS,
            session.roots[1:],
            tuple(merge_servers(session.project.mcp_servers, session.mcp_servers).values()),
            {name: value for name, value in {**session.env, **self._env}.items() if value is not None},
            scratch,
        )

    def briefed_prompt(self, request: TurnRequest) -> str:
        """Put the system prompt before the first prompt, for programs with no other place for it."""
        if not self._system_prompt or (request.is_briefed and request.resume):
            return request.prompt
        return f"{self._system_prompt.strip()}\n\n{request.prompt}"

    def as_argument(self, text: str, what: str) -> str:
        """Return the text if it fits into a command line."""
        if len(text.encode("utf-8", "replace")) > LONGEST_ARGUMENT:
            raise ProviderError(
                f"{what} is too long for a command line: keep it below {LONGEST_ARGUMENT} bytes."
            )
        return text.replace("\0", " ")

    async def _account(
        self, turn: Turn, outcome: TurnOutcome, provider_state: ProviderState, presenter: TurnPresenter
    ) -> None:
        tokens = outcome.tokens
        if tokens is not None:
            spent = (
                tokens.since(provider_state.tokens)
                if self.counts_whole_session and provider_state.tokens
                else tokens
            )
            provider_state.tokens = tokens if self.counts_whole_session else None
            await presenter.show_tokens(spent)
        if outcome.cost is not None:
            await presenter.show_cost(outcome.cost)
            provider_state.cost += outcome.cost
        turn.session.state = provider_state.as_state()

    def _verdict(
        self, outcome: TurnOutcome, program_exit: ProgramExit, request: TurnRequest, *, has_answer: bool
    ) -> StopReason | None:
        title, exit_code, stderr = self.entry.title, program_exit.exit_code, program_exit.stderr
        if outcome.error is not None:
            raise ProviderError(f"{title} failed: {outcome.error}", exit_code=exit_code, stderr=stderr)
        if outcome.stop_reason is not None:
            return cast(StopReason, outcome.stop_reason)
        if program_exit.returncode != 0:
            why = f": {outcome.warning}" if outcome.warning else ""
            hint = (
                ""
                if has_answer or request.resume is None
                else f" It was to resume its session {request.resume}."
            )
            message = f"{title} {program_exit.in_words()}{why}.{hint}"
            raise ProviderError(message, exit_code=exit_code, stderr=stderr)
        if not has_answer:
            why = f": {outcome.warning}" if outcome.warning else ""
            raise ProviderError(f"{title} answered nothing{why}.", exit_code=exit_code, stderr=stderr)
        return None

    def _note_what_was_dropped(self, parser: StreamParser, program_exit: ProgramExit) -> None:
        if parser.garbage or parser.unknown or program_exit.oversized:
            log.debug(
                "%s: %d lines were no JSON objects, %d of unknown kinds, %d too long",
                self.entry.name,
                parser.garbage,
                parser.unknown,
                program_exit.oversized,
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
            flag = f"--{name.replace('_', '-')}"
            if value is not False:
                words.append(flag if value is True else f"{flag}={value}")
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
    default = Choice(DEFAULT_MODEL, "As configured")
    return [
        Select("model", [default, *models], default=chosen or DEFAULT_MODEL, name="Model", category="model")
    ]


class ProviderState:
    """The program's own session id, its cost and its tokens, stored with every turn of a session."""

    def __init__(self) -> None:
        self.session: str | None = None
        self.is_briefed = False
        """True if the system prompt is part of the conversation."""
        self.cost = 0.0
        self.tokens: TokenCounts | None = None
        """Tokens of the whole session, for programs that count so."""

    @classmethod
    def of(cls, state: object) -> ProviderState:
        """Read the stored state; what cannot be read is left out."""
        kept, provider_state = LooseObject(state), cls()
        provider_state.session = kept.text("session") or None
        provider_state.is_briefed = kept.is_true("briefed")
        provider_state.cost = kept.amount("cost") or 0.0
        if counted := kept.object("tokens"):
            provider_state.tokens = TokenCounts(
                counted.count("input") or 0,
                counted.count("output") or 0,
                counted.count("cached_read"),
                counted.count("cached_write"),
                counted.count("thought"),
                counted.count("total"),
            )
        return provider_state

    def as_state(self) -> dict[str, Any]:
        """Return it as a session's state."""
        state: dict[str, Any] = {"session": self.session, "briefed": self.is_briefed, "cost": self.cost}
        if self.tokens is not None:
            state["tokens"] = {name: getattr(self.tokens, name) for name in self.tokens.__struct_fields__}
        return state


async def run_program(
    program: str,
    invocation: ProgramInvocation,
    *,
    cwd: str,
    env: Mapping[str, str | None],
    hear: OnLine,
    grace: Callable[[], float],
) -> ProgramExit:
    """Run the program to its end and pass on each of its lines, or raise `SpawnError`.

    Whatever ends this early ends the program and its whole process group: SIGTERM, and SIGKILL after the
    grace.
    """
    # Some programs believe the shell's variable rather than the directory that they are in.
    environment = Environment({**env, "PWD": cwd, **invocation.env}, inherits=False)
    child = Child.spawn([program, *invocation.arguments], cwd=cwd, env=environment, streams=SEPARATE_STREAMS)
    job = RunningCommand(child, invocation.input)
    reading = _LineReader(hear)
    try:
        lingered = await _follow(job, reading)
        await job.end(LEFT_RUNNING_GRACE)
    except BaseException:
        await job.end(grace())
        raise
    finally:
        job.close()
    return ProgramExit(0 if lingered else job.returncode, child.stderr, reading.oversized)


async def _follow(job: RunningCommand, reading: _LineReader) -> bool:
    """Follow a program to its end; returns whether it has said its last word and did not exit in time."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as patience:

            async def listen(chunk: bytes) -> None:
                if not await reading.take(chunk):
                    patience.reschedule(None)
                elif patience.when() is None:
                    patience.reschedule(loop.time() + EXIT_TIMEOUT)

            await job.hear(listen)
            await reading.finish()
            await job.wait()
    except TimeoutError:
        if not reading.is_over:
            raise  # not ours: somebody's listener gave up
        return True
    return False


class _LineReader:
    """Splits chunks into lines and passes them on; `is_over` says that the last one may have been final."""

    def __init__(self, hear: OnLine) -> None:
        self.oversized = 0
        self.is_over = False
        self._hear = hear
        self._lines = FrameBuffer()

    async def take(self, chunk: bytes) -> bool:
        for line in self._lines.feed(chunk):
            await self._pass_on(line)
        return self.is_over

    async def finish(self) -> None:
        for line in self._lines.end():
            await self._pass_on(line)

    async def _pass_on(self, line: object) -> None:
        if isinstance(line, bytes):
            self.is_over = await self._hear(line)
        else:
            self.oversized += 1


class TurnPresenter:
    """Shows the events of a program's stream to the turn's client, in their order.

    The stream's ids of tool calls are kept where possible: a session knows each id once, and some programs
    count from zero in every turn. A turn that is over the limits of `Limits` fails, which ends the program.
    """

    def __init__(self, turn: Turn, title: str, *, cost_before: float = 0.0) -> None:
        """Prepare to show what the program with this title says in the turn."""
        self.has_answer = False
        """True if anything was shown that answers the prompt: text, or a tool call."""
        self._turn = turn
        self._title = title
        self._intake = TurnIntake(LIMITS)
        self._held = 0
        self._weights: OrderedDict[str, int] = OrderedDict()
        """Bytes that the stream took for each open call, which what is held of it cannot exceed by much."""
        self._cost = cost_before
        self._usage = Usage(0, 0)
        self._ids: RecentKeys[str] = RecentKeys()
        self._message: tuple[type, str | None] | None = None

    async def show(self, said: StreamEvent, size: int = 0) -> None:
        """Show one event, which took `size` bytes; raises ProviderError if the turn is over a limit."""
        taken: StreamEvent | None = said
        if not isinstance(said, ToolOutput):
            is_known = isinstance(said, ToolUpdate) and said.id in self._ids
            taken = self._intake.taken(said, size, is_known=is_known)
        if taken is not None:
            await self._show(taken, size)
        if self._intake.is_endless and (cut := self._intake.cut) is not None:
            raise ProviderError(f"{self._title} was stopped: this turn is over {' and '.join(cut.limits)}.")

    async def _show(self, said: StreamEvent, size: int) -> None:
        match said:
            case Text(text, message_id) if text:
                self._continue_message(Text, message_id)
                self.has_answer = self.has_answer or bool(text.strip())
                await self._turn.say(text)
            case Thought(text, message_id) if text:
                self._continue_message(Thought, message_id)
                await self._turn.think(text)
            case ToolUpdate(id=id):
                self._show_call(said)
                self._weigh(self._ids[id], size)
                await self._turn.session.outlet.wait_for_room()
            case ToolOutput(id, item):
                call = self._known(id)
                self._ledger.append(call, self._absolute_item(item))
                if not isinstance(item, Content):  # of text the ledger holds only the beginning and the end
                    self._weigh(call, size)
                await self._turn.session.outlet.wait_for_room()
            case _:
                await self._show_notice(said)

    async def show_tokens(self, spent: TokenCounts) -> None:
        """Show the tokens that the turn has used so far."""
        await self._turn.count_tokens(
            spent.input,
            spent.output,
            cached_read=spent.cached_read,
            cached_write=spent.cached_write,
            thought=spent.thought,
            total=spent.sum,
        )

    async def show_cost(self, cost: float) -> None:
        """Report the cost of the turn, added to that of all earlier turns."""
        total = Cost(round(self._cost + cost, 9), "USD")
        await self._turn.report(msgspec.structs.replace(self._usage, cost=total))

    async def _show_notice(self, said: StreamEvent) -> None:
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
        fields = {name: value for name in UPDATABLE_FIELDS if (value := getattr(update, name)) is not UNSET}
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
        own = id[:LONGEST_ID]
        wanted = f"{own}_{os.urandom(4).hex()}" if self._ledger.knows(own) else own
        self._ids[id] = self._ledger.announce(title, id=wanted or None, **told)

    def _weigh(self, call: str, size: int) -> None:
        """Count the bytes of an open call; if all are too many, the details of the oldest are dropped."""
        self._held += size
        self._weights[call] = self._weights.pop(call, 0) + size
        if not self._ledger.is_open(call):
            self._held -= self._weights.pop(call)
        while self._held > LIMITS.held_bytes:
            oldest, weight = self._weights.popitem(last=False)
            self._held -= weight
            self._ledger.drop_details(oldest)

    def _known(self, id: str) -> str:
        """Return the call's id in the session; one that the stream never announced is announced now."""
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


class ScratchDirectory:
    """Private files that a program needs for one turn; a context manager that removes them.

    The directory is made when the first file is written.
    """

    def __init__(self) -> None:
        self._directory: Path | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def directory(self, name: str) -> Path:
        """Make a directory for several files."""
        path = self._own() / name
        path.mkdir(0o700)
        return path

    def write(self, name: str, text: str) -> str:
        """Write a new file and return its path."""
        path = self._own() / name
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        return str(path)

    def write_json(self, name: str, value: Any) -> str:
        """Write a value as JSON to a new file and return its path."""
        return self.write(name, msgspec.json.encode(value).decode())

    def begin_watching(self, name: str) -> None:
        """Watch a file that was written, so that `was_ignored` tells whether anybody has read it."""
        path = self._own() / name
        os.utime(path, (0, path.stat().st_mtime))

    def was_ignored(self, name: str) -> bool:
        """Return whether a watched file was never read; False if the file system does not tell."""
        if (self._own() / name).stat().st_atime != 0:
            return False
        probe = f"{name}.probe"
        self.write(probe, "read")
        self.begin_watching(probe)
        (self._own() / probe).read_bytes()
        return (self._own() / probe).stat().st_atime != 0

    def _own(self) -> Path:
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="coupler-"))
        return self._directory


def mcp_config(server: McpServer) -> McpConfig:
    """Describe an MCP server as in Claude's and Copilot's files; the others differ in a few names."""
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


def mcp_configs(servers: Iterable[McpServer]) -> dict[str, McpConfig]:
    """Describe the servers by name; of two with one name the last is used."""
    return {mcp_server_name(server): mcp_config(server) for server in servers}


def mcp_server_name(server: McpServer) -> str:
    """Return the client's name for the server."""
    return str(getattr(server, "name", "") or "server")
