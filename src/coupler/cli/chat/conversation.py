"""A conversation from its first line to its last: what is typed goes to the agent or to chat itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from typing import Any

from coupler.cli.agent_choice import advice
from coupler.cli.chat import listings
from coupler.cli.chat.front import Front, Interrupted, Left
from coupler.cli.chat.mentions import attached
from coupler.cli.chat.own_commands import Message, Mistake, Order, understood
from coupler.cli.chat.parts import Part, Planned, Remark
from coupler.cli.chat.sittings import Sittings
from coupler.cli.exit_codes import INTERRUPTED, code_of_error
from coupler.cli.sessions.wording import clean, one_line
from coupler.client.errors import AgentError
from coupler.client.observation import AgentEnded, Observation
from coupler.client.remote import RemoteAgent

TWICE = 1.0
"""Seconds within which a second Ctrl-C leaves."""


NEVER = float("-inf")

ENDED = AgentError("died", "the agent has ended")


class Leave(Exception):  # noqa: N818 - nothing has failed
    """The conversation is over; the code is the command's."""

    def __init__(self, code: int = 0) -> None:
        super().__init__(code)
        self.code = code


class Conversation:
    """One agent, one session at a time, and whoever sits in front."""

    def __init__(self, agent: RemoteAgent, sittings: Sittings, front: Front, name: str) -> None:
        """`name` is what the agent was called on the command line."""
        self._agent = agent
        self._sittings = sittings
        self._front = front
        self._name = name
        self._interrupted_at = NEVER
        self._ending: list[asyncio.Task[None]] = []
        self._task: asyncio.Task[Any] | None = None
        self._is_left_at_once = False
        self._is_reading = False
        self._explaining: asyncio.Task[None] | None = None

    async def hold(self, resume: str | None, latest: bool) -> int:
        """Talk until somebody leaves; return the command's exit code."""
        self._task = asyncio.current_task()
        try:
            return await self._held(resume, latest)
        except AgentError as error:
            self._front.show(spoken_error(error, self._name))
            return code_of_error(error)
        except asyncio.CancelledError:
            if not self._is_left_at_once:
                raise
            return INTERRUPTED

    def notice(self, observation: Observation) -> None:
        """Take in what happens. That the agent ends is told at once where nobody waits for its answer."""
        self._sittings.notice(observation)
        if isinstance(observation, AgentEnded) and self._is_reading:
            self._explain_early()

    def interrupt(self) -> None:
        """Ctrl-C while the agent works: the first cancels the turn, one right after it leaves."""
        if not self._sittings.is_open:
            self._leave_at_once()
        elif self._is_second_interrupt():
            self._is_left_at_once = True
            self._agent.kill()
        else:
            cancelling = self._sittings.session.cancel()
            self._ending.append(asyncio.get_running_loop().create_task(cancelling))

    async def _held(self, resume: str | None, latest: bool) -> int:
        async with AsyncExitStack() as stack:
            with self._front.working(self._leave_at_once):
                await stack.enter_async_context(self._agent)
            stack.push_async_callback(self._ended)
            try:
                await self._open(lambda: self._sittings.first(resume, latest))
                while True:
                    await self._take_line()
            except Leave as leave:
                return leave.code

    async def _ended(self) -> None:
        """Wait for the cancels and the end that were begun."""
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _take_line(self) -> None:
        self._is_reading = True
        if self._sittings.session.is_over:
            self._explain_early()
        try:
            line = await self._front.read()
        except Left:
            raise Leave from None
        except Interrupted:
            if self._is_second_interrupt():
                raise Leave(INTERRUPTED) from None
            self._tell("Ctrl-C again leaves; Ctrl-D does, too.")
            return
        finally:
            self._is_reading = False
        match understood(line, [command.name for command in self._sittings.session.commands]):
            case Message(""):
                return
            case Message(text):
                await self._say(text)
            case Order() as order:
                await self._obey(order)
            case Mistake(sentence):
                self._tell(sentence, severity="warning")

    async def _say(self, text: str) -> None:
        if self._sittings.session.is_over:
            await (self._explaining or self._explain(ENDED))
            await self._start_again(ENDED)
        accepts = self._agent.capabilities.prompt_capabilities
        blocks, told = await asyncio.to_thread(attached, text, self._sittings.cwd, accepts)
        for sentence in told:
            self._tell(one_line(sentence))
        self._interrupted_at = NEVER
        try:
            with self._front.working(self.interrupt):
                await self._sittings.session.prompt(blocks)
        except AgentError as error:
            await self._failed(error)

    async def _failed(self, error: AgentError) -> None:
        if self._is_left_at_once:
            raise Leave(INTERRUPTED) from None
        if self._sittings.session.is_over:
            await (self._explaining or self._explain(error))
            await self._start_again(error)
        else:
            self._front.show(spoken_error(error, self._name))

    def _explain_early(self) -> None:
        """Say that the agent is gone while somebody may be typing, once."""
        if self._explaining is None:
            self._explaining = asyncio.get_running_loop().create_task(self._explain_and_advise())
            self._ending.append(self._explaining)

    async def _explain_and_advise(self) -> None:
        await self._explain(ENDED)
        if self._front.can_ask:
            self._tell("What you send next starts it again, if you like.")

    async def _explain(self, error: AgentError) -> None:
        """The agent is gone: say why, as far as it left word."""
        explained = await self._sittings.session.with_last_words(error)
        self._front.show(spoken_error(explained, self._name))

    async def _start_again(self, error: AgentError) -> None:
        """Start an agent that is gone again, if that is wanted."""
        self._explaining = None
        while True:
            try:
                answer = await self._front.ask("Start it again? [Y/n] ")
            except (Left, Interrupted):
                answer = "n"
            if answer.strip().lower() not in ("", "y", "yes"):
                raise Leave(code_of_error(error))
            try:
                with self._front.working(self._leave_at_once):
                    self._tell_all(await self._sittings.again())
            except AgentError as failed:
                self._front.show(spoken_error(failed, self._name))
            else:
                return

    async def _obey(self, order: Order) -> None:
        try:
            await self._obeyed(order)
        except AgentError as error:
            await self._failed(error)

    async def _obeyed(self, order: Order) -> None:
        argument = order.argument
        match order.name:
            case "quit":
                raise Leave
            case "help":
                self._front.show(listings.commands(self._sittings.session.commands))
            case "show":
                self._show(argument)
            case "new":
                await self._open(self._sittings.new)
            case "load" if argument:
                await self._open(lambda: self._sittings.earlier(argument))
            case "sessions" | "load":
                self._front.show(await self._sittings.listing())
            case _:
                await self._set(order.name, argument)

    async def _set(self, what: str, argument: str) -> None:
        session = self._sittings.session
        match what, argument.split(maxsplit=1):
            case "mode", []:
                self._front.show(listings.modes(session.settings))
            case "mode", _:
                await self._set_mode(argument)
            case "model", []:
                self._front.show(listings.models(session.settings))
            case "model", _:
                await session.set_model(argument)
                self._tell(f"The model is {one_line(session.model or argument)}.")
            case "option", [name, value]:
                await session.set_option(name, value)
                self._tell(f"{one_line(name)} is {one_line(value)}.")
            case _:
                self._front.show(listings.options(session.settings))

    async def _set_mode(self, mode: str) -> None:
        """Change the mode; the agent may report it as well, and it is told once."""
        transcript = self._front.transcript
        before, transcript.mode = transcript.mode, mode
        try:
            await self._sittings.session.set_mode(mode)
        except AgentError:
            transcript.mode = before
            raise
        self._tell(f"The mode is {one_line(mode)}.")

    def _show(self, argument: str) -> None:
        if argument == "plan":
            entries = self._sittings.session.plan
            self._front.show(Planned(entries) if entries else Remark("There is no plan."))
            return
        number = int(argument[:9]) if argument.isascii() and argument.isdecimal() else None
        part = self._front.transcript.numbered(number) if number is not None or not argument else None
        if part is None:
            self._tell("There is nothing to show: the numbers stand behind the # of calls and thoughts.")
        else:
            self._front.show_whole(part)

    async def _open(self, open: Callable[[], Awaitable[list[Remark]]]) -> None:
        with self._front.working(self._leave_at_once):
            remarks = await open()
        self._tell_all(remarks)

    def _is_second_interrupt(self) -> bool:
        now = time.monotonic()
        before, self._interrupted_at = self._interrupted_at, now
        return now - before < TWICE

    def _leave_at_once(self) -> None:
        """Ctrl-C while the agent starts or opens a session."""
        self._is_left_at_once = True
        if self._task is not None:
            self._task.cancel()

    def _tell(self, sentence: str, severity: str = "info") -> None:
        self._front.show(Remark(sentence, severity=severity))

    def _tell_all(self, remarks: Iterable[Part]) -> None:
        for remark in remarks:
            self._front.show(remark)


def spoken_error(error: AgentError, agent: str) -> Remark:
    """What went wrong, with what the agent's process left, and what to do."""
    lines = []
    if error.exit_code is not None:
        lines.append(f"exit code: {error.exit_code}")
    if error.stderr.strip():
        lines.append(clean(error.stderr.strip()[-2_000:]))
    if told := advice(error, agent):
        lines.append(clean(told))
    return Remark(clean(error.message), "\n".join(lines), "error")
