"""Agents that are command lines: one run of the program a turn, its own session continued by the next.

A subclass says how the program is started and how its stream is read. Its permission prompts cannot be
answered from outside, so a session's mode decides beforehand what it may do.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import msgspec
from msgspec import UNSET

from coupler.agent.agent import Agent, Choice, Mode, Select
from coupler.agent.content import whole_text
from coupler.client.confinement import Confinement
from coupler.client.policy import PolicyName
from coupler.mcp.servers import merged
from coupler.providers.errors import ProviderError
from coupler.providers.memory import Memory
from coupler.providers.registry import ENTRIES, Entry
from coupler.providers.running import Ending, Invocation, run_program
from coupler.providers.said import Outcome
from coupler.providers.scratch import Scratch
from coupler.providers.showing import Showing
from coupler.runtime.environment import SpawnError
from coupler.schema.v1 import McpServer, StopReason

if TYPE_CHECKING:
    from coupler.agent.turn import Turn
    from coupler.providers.parsing import StreamParser

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

    entry: ClassVar[Entry]
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


def _confinement(entry: Entry, mode: str | None) -> Confinement:
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
