"""One run of `coupler exec`: the agent is started, asked, heard and ended, whoever interrupts it."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from coupler.cli.agent_choice import advice
from coupler.cli.exec_codes import (
    BROKEN_PIPE,
    DENIED,
    DONE,
    FAILED,
    INTERRUPTED,
    TERMINATED,
    TIMEOUT,
    code_of_error,
    code_of_stop,
)
from coupler.cli.exec_events import result_object
from coupler.cli.exec_options import ExecOptions
from coupler.cli.exec_output import Output, silence_stdout, write_error
from coupler.cli.exec_policy import Permitting
from coupler.cli.policy_choice import mode_that_allows_all
from coupler.client.errors import AgentError
from coupler.client.observation import Observation, PromptSent, Received
from coupler.client.opening import OpeningOptions
from coupler.client.remote import RemoteAgent
from coupler.client.reply import Reply
from coupler.client.session import RemoteSession
from coupler.coupling import connect, named, usual_startup_timeout

MOST_INTERRUPTS = 3
"""After so many, whatever the program waits for is waited for no longer."""


class Run:
    """From the start of the agent to the exit code."""

    def __init__(self, options: ExecOptions, output: Output, permitting: Permitting) -> None:
        self._options = options
        self._output = output
        self._permitting = permitting
        self._began = time.monotonic()
        self._agent: RemoteAgent | None = None
        self._session: RemoteSession | None = None
        self._is_asked = False
        self._unwritten: OSError | None = None
        self._interrupts: list[int] = []
        self._cancelling: asyncio.Task[None] | None = None

    async def exit_code(self) -> int:
        """Do it all; the result is written before this returns."""
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        reply: Reply | None = None
        failure: AgentError | None = None
        with _signals(lambda number: loop.call_soon_threadsafe(self._interrupted, number), self._interrupts):
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
        agent = connect(
            options.agent,
            cwd=options.cwd,
            env=options.env or None,
            files=options.files,
            terminals=options.terminals,
            startup_timeout=self._startup_timeout(),
            on_event=self._notice,
            record=options.record,
        )
        async with agent:
            self._agent = agent
            self._session = await self._open(agent)
            return await self._prompt(self._session)

    async def _open(self, agent: RemoteAgent) -> RemoteSession:
        options = self._options
        wanted = OpeningOptions(
            cwd=options.cwd, mcp_servers=options.mcp_servers, permissions=self._permitting.policy
        )
        if options.schema is not None:
            wanted["output"] = options.schema
        if options.model is not None:
            wanted["model"] = options.model
        mode = options.mode or mode_that_allows_all(
            options.agent, options.cwd, options.permissions, options.deny
        )
        if mode is not None:
            wanted["mode"] = mode
        if options.options:
            wanted["options"] = options.options
        if options.session is None:
            return await agent.new(**wanted)
        return await self._kept(agent, options.session, wanted)

    async def _kept(self, agent: RemoteAgent, name: str, wanted: OpeningOptions) -> RemoteSession:
        """The session of this name, which is gone on with if that is possible."""
        # Imported on use: most answers are not kept.
        from coupler.cli.kept import kept_store
        from coupler.client import kept
        from coupler.client.fingerprint import fingerprint

        options = self._options
        command = _command_of(options.agent, options.cwd)
        circumstances = fingerprint(command, options.cwd, options.mcp_servers)
        with kept_store(None, _fail, is_made=True) as store:
            assert store is not None
            return await kept.open(agent, name, circumstances, store=store, **wanted)

    async def _prompt(self, session: RemoteSession) -> Reply:
        options = self._options
        left = None if options.timeout is None else max(options.timeout - self._elapsed(), 0.0)
        prompt = session.prompt(options.prompt, budget=options.budget, timeout=left, output=options.schema)
        self._is_asked = True
        try:
            return await prompt
        finally:
            self._is_asked = False

    def _notice(self, observation: Observation) -> None:
        """Write what happens. What is told before the prompt, as a history is, is no part of the answer."""
        if isinstance(observation, PromptSent):
            self._is_asked = True
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
        """The first time the turn is cancelled, and what came is kept; the second time the agent is ended."""
        if self._task is None:
            return
        if not self._is_asked or self._session is None:
            self._task.cancel()
        elif self._cancelling is None:
            self._output.aside("cancelling the turn; Ctrl-C again ends the agent")
            self._cancelling = asyncio.get_running_loop().create_task(self._session.cancel())
        elif self._agent is not None:
            self._output.aside("ending the agent")
            self._agent.kill()

    def _finish(self, reply: Reply | None, failure: AgentError | None) -> int:
        code = self._code(reply, failure)
        if self._unwritten is not None:
            return _code_of_unwritten(self._unwritten)
        is_cancelled = bool(self._interrupts)
        session_id = None if self._session is None else self._session.id
        told = None if is_cancelled else failure
        try:
            self._output.finish(result_object(reply, told, session_id=session_id, exit_code=code))
        except OSError as error:
            silence_stdout()
            return _code_of_unwritten(error)
        if is_cancelled:
            write_error("cancelled")
        elif failure is not None:
            write_error(_explained(failure, self._options.agent))
        elif reply is not None and code == DENIED and self._options.format != "text":
            for decision in reply.denied:  # as text they have been told beside it
                what = decision.tool_call.title or decision.tool_call.kind
                write_error("; ".join(filter(None, [f"denied: {what}", decision.remedy])))
        elif reply is not None and code not in (DONE, DENIED):
            write_error(f"the turn ended with {reply.stop_reason}")
        return code

    def _code(self, reply: Reply | None, failure: AgentError | None) -> int:
        if self._interrupts:
            return TERMINATED if self._interrupts[0] == signal.SIGTERM else INTERRUPTED
        if failure is not None:
            return TIMEOUT if self._is_late(failure) else code_of_error(failure)
        if reply is None:
            return INTERRUPTED
        code = code_of_stop(reply.stop_reason)
        return DENIED if code == DONE and reply.denied and self._options.fail_on_denial else code

    def _in_words_of_options(self, error: AgentError) -> AgentError:
        """The prompt had only what starting had left of --timeout, which nobody knows who reads the error."""
        timeout = self._options.timeout
        if error.kind != "deadline" or timeout is None:
            return error
        return error.explained(f"the agent was not done within {timeout:g} s", error.exit_code, error.stderr)

    def _is_late(self, failure: AgentError) -> bool:
        """Whether the agent had no more time to start, because of --timeout."""
        timeout = self._options.timeout
        waits = failure.kind in ("initialize", "session") and failure.code is None
        return timeout is not None and waits and self._elapsed() >= timeout

    def _startup_timeout(self) -> float | None:
        options = self._options
        if options.timeout is None:
            return None
        return min(usual_startup_timeout(_command_of(options.agent, options.cwd)), options.timeout)

    def _elapsed(self) -> float:
        return time.monotonic() - self._began


@contextmanager
def _signals(hear: Any, seen: list[int]) -> Iterator[None]:
    """Hear SIGINT and SIGTERM in the loop; a program that does not get there any more ends all the same."""

    def note(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        if len(seen) >= MOST_INTERRUPTS:
            raise KeyboardInterrupt
        hear(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _command_of(agent: str, cwd: str) -> str | Sequence[str]:
    """What is started for a name or a command line: a session belongs to one form of an agent."""
    meant = named(agent, cwd=cwd)
    if meant is None:
        return agent
    return meant.target if isinstance(meant.target, list) else f"{agent}, native"


def _code_of_unwritten(error: OSError) -> int:
    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE
    write_error(f"the answer could not be written: {error.strerror or error}")
    return FAILED


def _fail(sentence: str, code: int) -> NoReturn:
    raise AgentError("session", sentence)


def _explained(failure: AgentError, agent: str) -> str:
    if failure.kind == "output" and failure.reply is not None:
        return f"{failure.message.partition('; its words')[0]}\nThe agent said: {failure.reply.text}"
    return "\n".join(filter(None, [str(failure), advice(failure, agent)]))


def run(options: ExecOptions, output: Output) -> int:
    """Run to the end; the exit code."""

    async def work() -> int:
        with Permitting(options) as permitting:
            return await Run(options, output, permitting).exit_code()

    try:
        return asyncio.run(work())
    except KeyboardInterrupt:
        sys.stderr.write("coupler exec: ended\n")
        return INTERRUPTED
