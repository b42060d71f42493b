"""`coupler chat`: the command, and the conversation from its first line to its last.

What is typed goes to the agent or to chat itself. One session is open at a time: a new one, an earlier one,
or the same again after the agent has died.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from coupler.cli.agent_options import (
    PERMISSIONS,
    advice,
    mcp_servers_of,
    policy_of,
    reject_unenforceable_options,
)
from coupler.cli.chat import input_line
from coupler.cli.chat.chat_sessions import ChatSessions
from coupler.cli.chat.dialogs import Dialogs, InputInterrupted, UserLeft
from coupler.cli.chat.input_line import (
    OwnCommandCall,
    PromptLine,
    UnknownCommand,
    UserCommandLine,
    attach_files,
    parse_line,
)
from coupler.cli.chat.menu import Choose
from coupler.cli.chat.transcript import Listing, Part, PlanPart, Remark, Transcript, thoughts_sentence
from coupler.cli.chat.user_commands import MOST_WAITING, CommandOutput, UserCommand
from coupler.cli.exec.exec_output import ObservationRedactor
from coupler.cli.exit_codes import INTERRUPTED, TERMINATED, code_of_error
from coupler.cli.main import (
    ALLOW,
    CWD,
    DENY,
    FILES,
    MCP,
    MODE,
    MODEL,
    OPTION,
    RECORD,
    TERMINALS,
    handle_signals,
    pairs,
)
from coupler.cli.output import stdout, tell
from coupler.cli.store_access import tidying
from coupler.client.errors import AgentError
from coupler.client.observation import AgentEnded, Observation
from coupler.client.prompt import GRACE
from coupler.client.remote import RemoteAgent, SessionOptions
from coupler.runtime.environment import SpawnError
from coupler.runtime.extras import MissingExtraError, import_extra
from coupler.runtime.process import last_lines
from coupler.runtime.terminal_text import clean, one_line

if TYPE_CHECKING:
    from coupler.cli.chat.dialogs import ChatFront
    from coupler.cli.chat.line_editor import TerminalFront
    from coupler.cli.chat.plain import PlainFront
    from coupler.client.policy import Policy
    from coupler.schema.v1 import McpServer


PROGRAM = "coupler chat"

SECOND_INTERRUPT_WINDOW = 1.0
"""Seconds within which a second Ctrl-C leaves."""

NEVER = float("-inf")

ENDED = AgentError("died", "the agent has ended")


@dataclass(frozen=True)
class ChatOptions:
    """The options of the command line."""

    agent: str
    cwd: str
    resume: str | None
    latest: bool
    model: str | None
    mode: str | None
    options: dict[str, str]
    permissions: str | None
    allow: Sequence[str]
    deny: Sequence[str]
    files: Literal["none", "read", "write"] | None
    terminals: bool
    mcp_servers: Sequence[McpServer]
    record: str | None
    env: dict[str, str]
    plain: bool


@click.command(
    short_help="Talk to an agent in this terminal.",
    context_settings={"max_content_width": 80, "help_option_names": ["-h", "--help"]},
)
@click.argument("agent")
@CWD
@click.option("--resume", metavar="ID", help="Resume this earlier session.")
@click.option("--continue", "latest", is_flag=True, help="Resume the latest session in this directory.")
@MODEL
@MODE
@OPTION
@MCP
@click.option(
    "--permissions",
    type=click.Choice(PERMISSIONS),
    help="Which of the agent's requests to allow, beside the rules of coupler.toml.  "
    "[default: ask; deny-all without a terminal]",
)
@ALLOW
@DENY
@FILES
@TERMINALS
@RECORD
@click.option(
    "--env",
    multiple=True,
    callback=pairs,
    metavar="NAME=VALUE",
    help="Set a variable for the agent; may be repeated.",
)
@click.option("--plain", is_flag=True, help="Read lines and print text, even in a terminal.")
def chat(**given: Any) -> None:
    """Talk to an agent in this terminal.

    AGENT is a name of the catalogue (`coupler agents` lists them), a command
    line in one word, or what `coupler serve` takes: agent.py, app:agent.

    /help lists what can be typed. Ctrl-C cancels the turn, twice within a
    second leaves; Ctrl-D leaves.

    Without a terminal each line of stdin is a prompt, and the agent's text goes
    to stdout: then nobody is asked, and what --permissions does not allow is
    denied.

    \b
    Examples:
      coupler chat coder
      coupler chat "opencode acp" --continue

    Exit codes: 0 when you leave, 2 for wrong usage, 130 for Ctrl-C twice, else
    those of `coupler exec`: 8 if the agent died, 9 if it cannot be started, 10
    if it wants a login.
    """
    given["mcp_servers"] = mcp_servers_of(given.pop("mcp"), PROGRAM)
    given["cwd"] = str(Path(given["cwd"]).absolute())
    options = ChatOptions(**given)
    if not options.agent.strip():
        raise click.UsageError("say which agent to talk to: a name of the catalogue, or a command line")
    if options.resume is not None and options.latest:
        raise click.UsageError("--resume names a session and --continue takes the latest: use one of them")
    try:
        reject_unenforceable_options(
            options.agent,
            options.cwd,
            allow=options.allow,
            deny=options.deny,
            files=options.files,
            terminals=options.terminals,
            permissions=options.permissions,
            mode=options.mode,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    sys.exit(_exit_code(options))


def _exit_code(options: ChatOptions) -> int:
    try:
        return asyncio.run(_chat(options))
    except KeyboardInterrupt:
        return INTERRUPTED


async def _chat(options: ChatOptions) -> int:
    with tidying(PROGRAM) as tidy:
        return await _talk(options, tidy)


async def _talk(options: ChatOptions, opened: Callable[[], None]) -> int:
    from coupler.cli.chat.plain import PlainFront
    from coupler.client_api import connect

    cwd = options.cwd
    front = _front(options, cwd, lambda: chat_sessions)
    dialogs = Dialogs(front, lambda: conversation.interrupt(), front.choose)
    try:
        agent = connect(
            options.agent,
            cwd=cwd,
            env=options.env or None,
            files=options.files,
            terminals=options.terminals,
            on_form=dialogs.form if front.can_ask else None,
            on_url=dialogs.page if front.can_ask else None,
            on_event=lambda observation: conversation.notice(observation),
            record=options.record,
        )
    except AgentError as error:
        front.show(error_remark(error, options.agent))
        return code_of_error(error)
    try:
        callback = dialogs.permission if front.can_ask else None
        wanted = options.permissions or "ask"
        policy = policy_of(wanted, options.allow, options.deny, callback, agent=options.agent, cwd=cwd)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    chat_sessions = ChatSessions(agent, front, _session_options(options, policy), cwd)
    conversation = ChatConversation(agent, chat_sessions, front, options.agent, opened)
    keys = contextlib.nullcontext() if isinstance(front, PlainFront) else front.keys_as_typed()
    with keys, handle_signals(_signal_handler(front, agent)), _showing_logs(front):
        try:
            code = await conversation.hold(options.resume, options.latest)
        except asyncio.CancelledError:
            return TERMINATED
    if isinstance(front, PlainFront) and front.write_error is not None:
        raise front.write_error  # `run_command` knows what to say
    return code


def _front(
    options: ChatOptions, cwd: str, chat_sessions: Callable[[], ChatSessions]
) -> PlainFront | TerminalFront:
    """The front for a terminal that can do it, if its packages are installed; else plain lines."""
    transcript = Transcript(ObservationRedactor(cwd, options.env, options.mcp_servers))
    is_terminal = sys.stdin.isatty() and stdout().is_terminal and os.environ.get("TERM") != "dumb"
    if is_terminal and not options.plain:
        try:
            import_extra("prompt_toolkit", extra="chat", feature="The terminal's line editor")
        except MissingExtraError as error:
            tell(f"{error}\nUntil then there are plain lines, and nobody is asked.")
        else:
            from coupler.cli.chat.line_editor import InputHistory, TerminalFront

            return TerminalFront(
                transcript,
                cwd=cwd,
                status=lambda width: chat_sessions().status(width),
                work_status=lambda width: chat_sessions().work_status(width),
                suggest=lambda before: chat_sessions().suggest(before),
                history=InputHistory.of(cwd),
            )
    from coupler.cli.chat.plain import PlainFront

    return PlainFront(transcript)


def _session_options(options: ChatOptions, policy: Policy) -> SessionOptions:
    wanted = SessionOptions(permissions=policy, mcp_servers=options.mcp_servers)
    if options.model is not None:
        wanted["model"] = options.model
    if options.mode is not None:
        wanted["mode"] = options.mode
    if options.options:
        wanted["options"] = options.options
    return wanted


def _signal_handler(front: PlainFront | TerminalFront, agent: RemoteAgent) -> Callable[[int], object]:
    """Handles SIGINT by interrupting what goes on; SIGTERM and a closed terminal end it, within `GRACE`."""
    task = asyncio.current_task()
    assert task is not None

    def end() -> None:
        asyncio.get_running_loop().call_later(GRACE, agent.kill)
        task.cancel()

    return lambda number: front.signalled() if number == signal.SIGINT else end()


@contextlib.contextmanager
def _showing_logs(front: ChatFront) -> Iterator[None]:
    """Shows warnings of the log as remarks: written past the conversation, they would spoil the screen."""
    if not front.can_ask:
        yield
        return
    handler = LogRemarkHandler(front, asyncio.get_running_loop())
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


class LogRemarkHandler(logging.Handler):
    """Shows log records as remarks, from whichever thread."""

    def __init__(self, front: ChatFront, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(logging.WARNING)
        self._front = front
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        remark = Remark(one_line(record.getMessage()), severity="warning")
        with contextlib.suppress(RuntimeError):  # the conversation is over
            self._loop.call_soon_threadsafe(self._front.show, remark)


class LeaveChat(Exception):  # noqa: N818 - nothing has failed
    """Ends the conversation; the code is the command's."""

    def __init__(self, code: int = 0) -> None:
        super().__init__(code)
        self.code = code


class ChatConversation:
    """A conversation with one agent, through a front, with one session at a time."""

    def __init__(
        self,
        agent: RemoteAgent,
        chat_sessions: ChatSessions,
        front: ChatFront,
        name: str,
        opened: Callable[[], None],
    ) -> None:
        """Prepares a conversation; `name` is the agent as it was given on the command line.

        `opened` is called when its first session is open.
        """
        self._agent = agent
        self._sessions = chat_sessions
        self._front = front
        self._name = name
        self._opened = opened
        self._interrupted_at = NEVER
        self._ending: list[asyncio.Task[None]] = []
        self._task: asyncio.Task[Any] | None = None
        self._is_left_at_once = False
        self._is_reading = False
        self._outputs: list[CommandOutput] = []
        """Output of the user's own commands that goes along with the next prompt."""
        self._explaining: asyncio.Task[None] | None = None

    async def hold(self, resume: str | None, latest: bool) -> int:
        """Talks until somebody leaves; returns the command's exit code."""
        self._task = asyncio.current_task()
        try:
            return await self._held(resume, latest)
        except AgentError as error:
            self._front.show(error_remark(error, self._name))
            return code_of_error(error)
        except asyncio.CancelledError:
            if not self._is_left_at_once:
                raise
            return INTERRUPTED

    def notice(self, observation: Observation) -> None:
        """Handles an observation; that the agent ended is told at once where nobody waits for its answer."""
        self._sessions.notice(observation)
        if isinstance(observation, AgentEnded) and self._is_reading:
            self._explain_early()

    def interrupt(self) -> None:
        """Handles Ctrl-C while the agent works: the first cancels the turn, one right after it leaves."""
        if not self._sessions.is_open:
            self._leave_at_once()
        elif self._is_second_interrupt():
            self._is_left_at_once = True
            self._agent.kill()
        else:
            cancelling = self._sessions.session.cancel()
            self._ending.append(asyncio.get_running_loop().create_task(cancelling))

    async def _held(self, resume: str | None, latest: bool) -> int:
        async with AsyncExitStack() as stack:
            with self._front.working(self._leave_at_once):
                await stack.enter_async_context(self._agent)
            stack.push_async_callback(self._ended)
            try:
                await self._open(lambda: self._sessions.first(resume, latest))
                self._opened()
                while True:
                    await self._take_line()
            except LeaveChat as leave:
                return leave.code

    async def _ended(self) -> None:
        """Waits for the cancels and the shutdown that were begun."""
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _take_line(self) -> None:
        self._is_reading = True
        if self._sessions.session.is_over:
            self._explain_early()
        try:
            line = await self._front.read()
        except UserLeft:
            raise LeaveChat from None
        except InputInterrupted:
            if self._is_second_interrupt():
                raise LeaveChat(INTERRUPTED) from None
            self._tell("Ctrl-C again leaves; Ctrl-D does, too.")
            return
        finally:
            self._is_reading = False
        known = [command.name for command in self._sessions.session.commands]
        match parse_line(line, known, has_shell=self._front.can_ask):
            case PromptLine(""):
                return
            case PromptLine(text):
                await self._say(text)
            case OwnCommandCall() as call:
                await self._run_own_command(call)
            case UserCommandLine(command, is_shared):
                await self._run_user_command(command, is_shared)
            case UnknownCommand() as unknown:
                self._front.show(input_line.unknown_command_part(unknown, self._sessions.session.commands))

    async def _say(self, text: str) -> None:
        if self._sessions.session.is_over:
            await (self._explaining or self._explain(ENDED))
            await self._start_again(ENDED)
        accepts = self._agent.capabilities.prompt_capabilities
        blocks, told = await asyncio.to_thread(attach_files, text, self._sessions.cwd, accepts)
        if not text.startswith("/"):  # what stands behind a command may be taken for its argument
            blocks.extend(output.block(self._sessions.cwd) for output in self._outputs)
            told.extend(output.told for output in self._outputs)
            self._outputs.clear()
        for sentence in told:
            self._tell(one_line(sentence))
        self._interrupted_at = NEVER
        try:
            with self._front.working(self.interrupt):
                # What comes by a pipe is data, whatever it begins with.
                await self._sessions.session.prompt(blocks, commands=sys.stdin.isatty())
        except AgentError as error:
            await self._failed(error)

    async def _run_user_command(self, line: str, is_shared: bool) -> None:
        """Runs a command of the user's own, and keeps what it wrote for the next prompt if that is wanted."""
        if not line:
            self._tell("Type a command behind the !, as in !git status", severity="warning")
            return
        transcript = self._front.transcript
        command = UserCommand(
            line, self._sessions.cwd, transcript.command_wrote, transcript.masked, transcript.stream_masker()
        )
        try:
            with self._front.working(command.interrupt):
                output = await command.run()
                transcript.command_ended()
        except SpawnError as error:
            self._tell(one_line(error.message), severity="error")
            return
        ended = [f"{output.ending[:1].upper()}{output.ending[1:]}."] if output.ending else []
        if is_shared:
            self._outputs = [*self._outputs, output][-MOST_WAITING:]
            ended.append("It is sent with your next prompt.")
        if ended:
            self._tell(" ".join(ended), severity="error" if output.ending else "info")

    async def _failed(self, error: AgentError) -> None:
        if self._is_left_at_once:
            raise LeaveChat(INTERRUPTED) from None
        if self._sessions.session.is_over:
            await (self._explaining or self._explain(error))
            await self._start_again(error)
        else:
            self._front.show(error_remark(error, self._name))

    def _explain_early(self) -> None:
        """Reports once that the agent is gone, while somebody may be typing."""
        if self._explaining is None:
            self._explaining = asyncio.get_running_loop().create_task(self._explain_and_advise())
            self._ending.append(self._explaining)

    async def _explain_and_advise(self) -> None:
        await self._explain(ENDED)
        if self._front.can_ask:
            self._tell("Send something to start it again.")

    async def _explain(self, error: AgentError) -> None:
        """Reports why the agent is gone, with its exit code and stderr."""
        explained = await self._sessions.session.with_exit_details(error)
        self._front.show(error_remark(explained, self._name))

    async def _start_again(self, error: AgentError) -> None:
        """Starts an agent that is gone again, if that is wanted."""
        self._explaining = None
        while True:
            try:
                answer = await self._front.ask("Start it again? [Y/n] ")
            except (UserLeft, InputInterrupted):
                answer = "n"
            if answer.strip().lower() not in ("", "y", "yes"):
                raise LeaveChat(code_of_error(error))
            try:
                with self._front.working(self._leave_at_once):
                    self._tell_all(await self._sessions.again())
            except AgentError as failed:
                self._front.show(error_remark(failed, self._name))
            else:
                return

    async def _run_own_command(self, call: OwnCommandCall) -> None:
        try:
            await self._run_own(call)
        except AgentError as error:
            await self._failed(error)

    async def _run_own(self, call: OwnCommandCall) -> None:
        argument = call.argument
        match call.name:
            case "quit":
                raise LeaveChat
            case "help":
                self._front.show(input_line.commands_listing(self._sessions.session.commands))
            case "show":
                self._show(argument)
            case "new":
                await self._open(self._sessions.new)
                self._tell("This is a new session.")
            case "clear":
                await self._open(self._sessions.new)
                self._front.clear()
                self._tell("This is a new session.")
            case "load" if argument:
                await self._open(lambda: self._sessions.earlier(argument))
            case "load" if self._front.choose is not None:
                await self._load_chosen(self._front.choose)
            case "sessions" | "load":
                self._front.show(await self._sessions.listing())
            case "thinking":
                self._toggle_thoughts(argument)
            case _:
                await self._set(call.name, argument)

    async def _set(self, what: str, argument: str) -> None:
        session = self._sessions.session
        match what, argument.split(maxsplit=1):
            case "mode", []:
                self._front.show(input_line.modes_listing(session.settings))
            case "mode", _:
                await self._set_mode(argument)
            case "model", []:
                self._front.show(input_line.models_listing(session.settings))
            case "model", _:
                await session.set_model(argument)
                self._tell(f"The model is {one_line(session.model or argument)}.")
            case "effort", []:
                self._front.show(input_line.efforts_listing(session.settings))
            case "effort", _:
                await self._set_effort(argument)
            case "option", [name, value]:
                await session.set_option(name, value)
                self._tell(f"{one_line(name)} is {one_line(value)}.")
            case _:
                self._front.show(input_line.options_listing(session.settings))

    async def _set_mode(self, mode: str) -> None:
        """Changes the mode; the agent may report it as well, and it is told once."""
        transcript = self._front.transcript
        before, transcript.mode = transcript.mode, mode
        try:
            await self._sessions.session.set_mode(mode)
        except AgentError:
            transcript.mode = before
            raise
        self._tell(f"The mode is {one_line(mode)}.")

    async def _set_effort(self, level: str) -> None:
        option = self._sessions.session.settings.effort_option
        if option is None:
            self._front.show(input_line.efforts_listing(self._sessions.session.settings))
            return
        await self._sessions.session.set_option(option.id, level)
        self._tell(f"The effort is {one_line(level)}.")

    async def _load_chosen(self, choose: Choose) -> None:
        """Opens the session that is chosen from a menu of the earlier ones; none if the menu is left."""
        found = await self._sessions.found()
        if not found:
            self._front.show(input_line.sessions_listing(found, self._sessions.session.id))
            return
        self._front.show(Listing("Sessions", (), "Ctrl-C leaves all as it is"))
        menu = input_line.sessions_menu(found, self._sessions.session.id)
        with contextlib.suppress(UserLeft, InputInterrupted):
            (number,) = await choose(menu)
            await self._open(lambda: self._sessions.earlier(str(number + 1)))

    def _toggle_thoughts(self, argument: str) -> None:
        if argument not in ("", "on", "off"):
            self._tell("/thinking takes on or off, or changes from one to the other.", severity="warning")
            return
        self._front.transcript.shows_thoughts = (
            not self._front.transcript.shows_thoughts if argument == "" else argument == "on"
        )
        self._tell(thoughts_sentence(self._front.transcript))

    def _show(self, argument: str) -> None:
        if argument == "plan":
            entries = self._sessions.session.plan
            self._front.show(PlanPart(entries) if entries else Remark("There is no plan."))
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
        self._outputs.clear()
        self._tell_all(remarks)

    def _is_second_interrupt(self) -> bool:
        now = time.monotonic()
        before, self._interrupted_at = self._interrupted_at, now
        return now - before < SECOND_INTERRUPT_WINDOW

    def _leave_at_once(self) -> None:
        """Cancels everything, for Ctrl-C while the agent starts or opens a session."""
        self._is_left_at_once = True
        if self._task is not None:
            self._task.cancel()

    def _tell(self, sentence: str, severity: str = "info") -> None:
        self._front.show(Remark(sentence, severity=severity))

    def _tell_all(self, remarks: Iterable[Part]) -> None:
        for remark in remarks:
            self._front.show(remark)


def error_remark(error: AgentError, agent: str) -> Remark:
    """A remark about an error: what the agent's process left, and what to do."""
    lines = []
    if error.exit_code is not None:
        lines.append(f"exit code: {error.exit_code}")
    if error.stderr.strip():
        lines.append(clean(last_lines(error.stderr)))
    if told := advice(error, agent):
        lines.append(clean(told))
    return Remark(clean(error.message), "\n".join(lines), "error")
