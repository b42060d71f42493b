"""`coupler exec`: sends one prompt to any agent, from a shell or a script, and prints the answer.

The agent is started, prompted and ended, whoever interrupts it. Its session is a new one, or the one that is
stored under a name, which this run then locks.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from coupler.cli.agent_options import (
    PERMISSIONS,
    advice,
    agent_command,
    mcp_servers_of,
    reject_unenforceable_options,
)
from coupler.cli.exec.exec_output import (
    FORMATS,
    PROGRAM,
    Answers,
    ExecOptions,
    ExecOutput,
    ObservationRedactor,
    RedactedOutput,
    budget_of,
    has_company,
    output_for,
    prompt_of,
    result_object,
    schema_of,
)
from coupler.cli.exit_codes import (
    BROKEN_PIPE,
    DENIED,
    DONE,
    FAILED,
    INTERRUPTED,
    LIMIT,
    TERMINATED,
    TIMEOUT,
    code_of_error,
    code_of_stop,
    exit_code_table,
    print_error,
    refuse,
)
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
    run_command,
    seconds,
)
from coupler.cli.output import has_stdout, silence_stdout
from coupler.cli.store_access import tidying
from coupler.cli.terminal import STDIN
from coupler.client.errors import AgentError
from coupler.client.observation import Observation, PromptSent, Received, SessionOpened
from coupler.client.prompt import GRACE
from coupler.client.remote import OpeningOptions, RemoteAgent
from coupler.client.reply import Reply
from coupler.client.session import RemoteSession
from coupler.client_api import connect, connect_keeping_sessions, default_startup_timeout

if TYPE_CHECKING:
    from coupler.client.policy import Policy
    from coupler.store.store import Store


MOST_INTERRUPTS = 3
"""Interrupts after which the program stops waiting for anything."""

OpenSession = Callable[["RemoteAgent"], Awaitable["RemoteSession"]]


@click.command(
    "exec",
    short_help="Ask an agent and print its answer.",
    epilog=f"\b\nExit codes:\n{exit_code_table()}",
    context_settings={"max_content_width": 80, "help_option_names": ["-h", "--help"]},
)
@click.argument("agent")
@click.argument("prompt", nargs=-1)
@click.option(
    "--file", "files_read", multiple=True, metavar="FILE", help="Add a file to the prompt: text, or an image."
)
@click.option(
    "--format",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="How to print: the text as it comes, one JSON object at the end, an object for each event, or the "
    "final text alone.",
)
@click.option(
    "--schema", metavar="FILE", help="Ask for JSON that fits this JSON Schema, and print it instead of text."
)
@CWD
@MODEL
@MODE
@OPTION
@MCP
@click.option(
    "--permissions",
    type=click.Choice(PERMISSIONS),
    default="allow-reads",
    show_default=True,
    help="What the agent may do of what it asks for, beside the rules of coupler.toml; `ask` asks at the "
    "terminal, and denies without one.",
)
@ALLOW
@DENY
@click.option("--fail-on-denial", is_flag=True, help="End with exit code 5 if anything was denied.")
@FILES
@TERMINALS
@click.option(
    "--no-forms",
    is_flag=True,
    help="Do not offer to ask at the terminal what the agent wants to know in forms and on pages.",
)
@click.option(
    "--timeout", type=float, callback=seconds, metavar="SECONDS", help="How long all of it may take."
)
@click.option("--budget", metavar="LIMITS", help="What it may use: tokens=5000,cost=0.5,turns=3.")
@click.option(
    "--session", metavar="NAME", help="Keep the session under this name, and go on with it next time, here."
)
@RECORD
@click.option(
    "--env", multiple=True, callback=pairs, metavar="NAME=VALUE", help="Set a variable for the agent."
)
def exec_command(prompt: tuple[str, ...], files_read: tuple[str, ...], **given: Any) -> None:
    """Ask an agent and print its answer.

    AGENT is a name of the catalogue (`coupler agents` lists them), a command
    line in one word, or what `coupler serve` takes: agent.py, app:agent. Of
    PROMPT, `-` stands for stdin; without a PROMPT it is all of stdin.

    The options --file, --option, --mcp, --allow, --deny and --env may be
    repeated. Ctrl-C cancels the turn; a second one ends the agent.

    \b
    Examples:
      coupler exec claude "Summarise README.md"
      git diff | coupler exec "opencode acp" "Review this:" -
      coupler exec coder --format json --timeout 300 "What does main.py do?"
    """
    options = _options(prompt, files_read, given)
    sys.exit(run(options, output_for(options.format, has_schema=options.schema is not None)))


def main(arguments: list[str]) -> None:
    """Runs the command without importing the others, because somebody waits for the answer."""
    if not has_stdout():
        refuse("stdout is closed, so that the answer could be written nowhere", PROGRAM)
    run_command(exec_command, arguments, PROGRAM)


def _options(prompt: tuple[str, ...], files: tuple[str, ...], given: dict[str, Any]) -> ExecOptions:
    if not given["agent"].strip():
        refuse("say which agent to ask: a name of the catalogue, or a command line", PROGRAM)
    if given["session"] is not None and not given["session"].strip():
        refuse("--session is a name to keep the session under, and cannot be blank", PROGRAM)
    _refuse_unenforceable(given)
    given["schema"] = schema_of(given["schema"])
    given["mcp_servers"] = mcp_servers_of(given.pop("mcp"), PROGRAM)
    given["forms"] = not given.pop("no_forms") and has_company(prompt, files)
    given["budget"] = budget_of(given["budget"])
    is_typed = bool(prompt) and prompt[0] != STDIN
    return ExecOptions(prompt=prompt_of(prompt, files), is_typed=is_typed, **given)


def _refuse_unenforceable(given: dict[str, Any]) -> None:
    names = ("allow", "deny", "files", "terminals", "permissions", "mode")
    try:
        reject_unenforceable_options(given["agent"], given["cwd"], **{name: given[name] for name in names})
    except ValueError as error:
        refuse(str(error), PROGRAM)


def run(options: ExecOptions, output: ExecOutput) -> int:
    """Runs to the end and returns the exit code."""

    async def work() -> int:
        redactor = ObservationRedactor(options.cwd, options.env, options.mcp_servers)
        with tidying(PROGRAM) as tidy, Answers(options, redactor.mask) as answers:
            return await ExecRun(options, output, redactor, answers, tidy).exit_code()

    try:
        return asyncio.run(work())
    except KeyboardInterrupt:
        print_error("ended", PROGRAM)
        return INTERRUPTED


class ExecRun:
    """One run, from the start of the agent to the exit code."""

    def __init__(
        self,
        options: ExecOptions,
        output: ExecOutput,
        redactor: ObservationRedactor,
        answers: Answers,
        opened: Callable[[], None],
    ) -> None:
        self._options = options
        self._opened = opened
        self._redactor = redactor
        self._output = RedactedOutput(output, redactor)
        self._answers = answers
        self._began = time.monotonic()
        self._agent: RemoteAgent | None = None
        self._session: RemoteSession | None = None
        self._session_reason: str | None = None
        self._is_asked = False
        self._unwritten: OSError | None = None
        self._interrupts: list[int] = []
        self._cancelling: asyncio.Task[None] | None = None

    async def exit_code(self) -> int:
        """Runs to the end and returns the exit code; the result is written before."""
        self._task = asyncio.current_task()
        reply: Reply | None = None
        failure: AgentError | None = None
        with handle_signals(self._interrupted, most=MOST_INTERRUPTS):
            try:
                reply = await self._answer()
            except AgentError as error:
                reply, failure = error.reply, self._in_words_of_options(error)
            except asyncio.CancelledError:
                if not self._interrupts and self._unwritten is None:
                    raise
            return self._finish(reply, failure)

    async def _answer(self) -> Reply:
        options = self._options
        if options.budget is not None:
            options.budget.refuse_if_spent()
        async with session_opener(options, self._answers.policy) as open_session, self._connected() as agent:
            self._agent = agent
            self._session = await open_session(agent)
            self._opened()
            return await self._prompt(self._session)

    def _connected(self) -> RemoteAgent:
        options = self._options
        # A session that is to be gone on with later has to be stored.
        connecting = connect if options.session is None else connect_keeping_sessions
        return connecting(
            options.agent,
            cwd=options.cwd,
            env=options.env or None,
            files=options.files,
            terminals=options.terminals,
            startup_timeout=self._startup_timeout(),
            on_form=self._answers.on_form,
            on_url=self._answers.on_url,
            on_event=self._notice,
            record=options.record,
        )

    async def _prompt(self, session: RemoteSession) -> Reply:
        options = self._options
        left = None if options.timeout is None else max(options.timeout - self._elapsed(), 0.0)
        prompt = session.prompt(
            options.prompt,
            budget=options.budget,
            timeout=left,
            output=options.schema,
            commands=options.is_typed,
        )
        self._is_asked = True
        try:
            return await prompt
        finally:
            self._is_asked = False

    def _notice(self, observation: Observation) -> None:
        """Writes an observation. What comes before the prompt, as a history, is no part of the answer."""
        if isinstance(observation, PromptSent):
            self._is_asked = True
        if isinstance(observation, SessionOpened):
            self._session_reason = observation.reason
            if observation.reason is not None and self._options.format != "text":  # as text it is told there
                reason = self._redactor.mask(observation.reason)
                print_error(f"this is a new session: {reason}", PROGRAM)
        if isinstance(observation, Received) and not self._is_asked and not observation.late:
            return
        if self._unwritten is not None:
            return
        try:
            self._output.notice(observation)
        except OSError as error:
            # Nobody reads, or the disk is full: there is no use in an answer that goes nowhere.
            self._unwritten = error
            silence_stdout()
            if self._task is not None:
                self._task.cancel()

    def _interrupted(self, number: int) -> None:
        """Cancels the turn the first time, keeping what came; the second time ends the agent."""
        self._interrupts.append(number)
        if self._agent is not None:
            # Whatever it is that does not end: the turn, or the agent that was told to leave.
            asyncio.get_running_loop().call_later(GRACE, self._agent.kill)
        if self._task is None:
            return
        is_alone = number not in (signal.SIGINT, signal.SIGTERM)  # the terminal was closed
        if is_alone or not self._is_asked or self._session is None:
            self._task.cancel()
        elif self._cancelling is None:
            self._cancelling = asyncio.get_running_loop().create_task(self._session.cancel())
            self._note("cancelling the turn; Ctrl-C again ends the agent")
        elif self._agent is not None:
            self._agent.kill()
            self._note("ending the agent")

    def _note(self, line: str) -> None:
        with contextlib.suppress(OSError):  # nobody looks any more
            self._output.aside(line)

    def _finish(self, reply: Reply | None, failure: AgentError | None) -> int:
        code = self._code(reply, failure)
        if self._unwritten is not None:
            return _exit_code_for_write_error(self._unwritten)
        is_cancelled = bool(self._interrupts)
        session_id = None if self._session is None else self._session.id
        told = None if is_cancelled else failure
        try:
            self._output.finish(
                result_object(
                    reply,
                    told,
                    session_id=session_id,
                    exit_code=code,
                    session_reason=self._session_reason,
                )
            )
        except OSError as error:
            silence_stdout()
            return _exit_code_for_write_error(error)
        if reply is not None and reply.cut is not None:
            print_error(f"the answer was cut: {reply.cut}", PROGRAM)
        if is_cancelled:
            print_error("cancelled", PROGRAM)
        elif failure is not None:
            message = _failure_message(failure, self._options.agent)
            print_error(self._redactor.mask(message), PROGRAM)
        elif reply is not None and code == DENIED and self._options.format != "text":
            for decision in reply.denied:  # as text they have been told beside it
                what = decision.tool_call.title or decision.tool_call.kind
                denied = "; ".join(filter(None, [f"denied: {what}", decision.remedy]))
                print_error(self._redactor.mask(denied), PROGRAM)
        elif reply is not None and code not in (DONE, DENIED) and not reply.is_text_cut:
            print_error(
                self._redactor.mask(reply.failure or f"the turn ended with {reply.stop_reason}"), PROGRAM
            )
        return code

    def _code(self, reply: Reply | None, failure: AgentError | None) -> int:
        if self._interrupts:
            return INTERRUPTED if self._interrupts[0] == signal.SIGINT else TERMINATED
        if failure is not None:
            return TIMEOUT if self._is_late(failure) else code_of_error(failure)
        if reply is None:
            return INTERRUPTED
        code = code_of_stop("refusal" if reply.failure is not None else reply.stop_reason)
        if code == DONE and reply.is_text_cut:
            return LIMIT
        return DENIED if code == DONE and reply.denied and self._options.fail_on_denial else code

    def _in_words_of_options(self, error: AgentError) -> AgentError:
        """Rephrases a deadline error with --timeout: the prompt only had what the start had left of it."""
        timeout = self._options.timeout
        if error.kind != "deadline" or timeout is None:
            return error
        return error.explained(f"the agent was not done within {timeout:g} s", error.exit_code, error.stderr)

    def _is_late(self, failure: AgentError) -> bool:
        """True if --timeout left the agent no more time to start."""
        timeout = self._options.timeout
        waits = failure.kind in ("initialize", "session") and failure.code is None
        return timeout is not None and waits and self._elapsed() >= timeout

    def _startup_timeout(self) -> float | None:
        options = self._options
        if options.timeout is None:
            return None
        return min(default_startup_timeout(agent_command(options.agent, options.cwd)), options.timeout)

    def _elapsed(self) -> float:
        return time.monotonic() - self._began


def _exit_code_for_write_error(error: OSError) -> int:
    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE
    print_error(f"the answer could not be written: {error.strerror or error}", PROGRAM)
    return FAILED


def _failure_message(failure: AgentError, agent: str) -> str:
    if failure.kind == "output" and failure.reply is not None:
        return f"{failure.message.partition('; its words')[0]}\nThe agent said: {failure.reply.text}"
    return "\n".join(filter(None, [str(failure), advice(failure, agent)]))


@asynccontextmanager
async def session_opener(options: ExecOptions, policy: Policy) -> AsyncIterator[OpenSession]:
    """Yields the function that opens the session.

    The session's name is locked from before the agent starts until it has ended.
    """
    wanted = _opening_options(options, policy)
    if options.session is None:
        yield lambda agent: agent.new(**wanted)
        return
    # Imported on use: most answers are not kept.
    from coupler.cli.store_access import UnusableStoreError, user_store
    from coupler.client import kept_sessions

    try:
        with user_store(is_made=True) as store:
            assert store is not None
            async with kept_sessions.name_lock(options.session, store=store, cwd=options.cwd):
                yield lambda agent: _open_kept(agent, options, wanted, store)
    except UnusableStoreError as error:
        raise AgentError("session", str(error)) from error


async def _open_kept(
    agent: RemoteAgent, options: ExecOptions, wanted: OpeningOptions, store: Store
) -> RemoteSession:
    """Opens the session of this name, resumed if that is possible."""
    from coupler.client import kept_sessions
    from coupler.client.kept_sessions import fingerprint

    assert options.session is not None
    circumstances = fingerprint(agent_command(options.agent, options.cwd), options.cwd, options.mcp_servers)
    return await kept_sessions.open_kept(agent, options.session, circumstances, store=store, **wanted)


def _opening_options(options: ExecOptions, policy: Policy) -> OpeningOptions:
    wanted = OpeningOptions(cwd=options.cwd, mcp_servers=options.mcp_servers, permissions=policy)
    if options.schema is not None:
        wanted["output"] = options.schema
    if options.model is not None:
        wanted["model"] = options.model
    if options.mode is not None:
        wanted["mode"] = options.mode
    if options.options:
        wanted["options"] = options.options
    return wanted
