"""Runs the commands of a turn in the editor's terminals, or each in a process group of its own.

What a command writes is shown by the tool call whose block it runs in, as it comes. Whatever ends the turn
ends the command and all that it started.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

from coupler.agent.errors import EditorError
from coupler.agent.tool_call import check_not_refused, check_surroundings, directory_of, innermost_call
from coupler.schema.v1 import (
    CreateTerminalRequest,
    KillTerminalRequest,
    ReleaseTerminalRequest,
    TerminalExitStatus,
    TerminalOutputRequest,
    WaitForTerminalExitRequest,
    WaitForTerminalExitResponse,
)
from coupler.wire.messages import METHOD_NOT_FOUND, TIMED_OUT

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.tool_call import Call
    from coupler.agent.turn import Turn
    from coupler.runtime.commands import RunningCommand

log = logging.getLogger("coupler.agent")

OUTPUT_LIMIT = 1024 * 1024
"""Bytes of a command's output that its caller gets: the last ones."""

MOST_OUTPUT = 2**53
"""Bytes that a limit can be at most: no editor reads a larger number."""

LEFT_RUNNING_GRACE = 1.0
"""Seconds that processes have which a command left running when it ended by itself."""

TIME_TO_CREATE = 30.0
"""Seconds that the editor has to make a terminal: it does not wait for the command."""

PROBE = ("printf", "[%s]\\n", "two  spaces", '"$HOME"', "it''s", "a;:", "*", "a\n:", "\\\\")
"""A command by which an editor shows whether it passes arguments on: harmless also if a shell gets them."""

PROBE_OUTPUT = "".join(f"[{word}]\n" for word in PROBE[2:])

PROBE_SECONDS = 5.0
"""Seconds that the editor has to run it."""


class Finished(NamedTuple):
    """The result of a command: its exit code or signal, and the end of its stdout and stderr."""

    exit_code: int | None
    """None if a signal ended it."""
    signal: str | None
    output: str
    truncated: bool
    """True if the beginning of the output is missing."""
    timed_out: bool

    @property
    def failure(self) -> str | None:
        """Words for how it has failed: by a timeout, a signal, or an exit code other than 0."""
        if self.timed_out:
            return "it was ended after its time"
        if self.signal is not None:
            return f"ended by {self.signal}"
        return None if self.exit_code == 0 else f"exit code {self.exit_code}"


class Terminal:
    """Runs commands for a turn."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    async def run(
        self,
        program: str | os.PathLike[str],
        *arguments: str | os.PathLike[str],
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it ends the command, not the waiting
        input: str | bytes | None = None,
        output_limit: int = OUTPUT_LIMIT,
        heard: Callable[[bytes], None] | None = None,
    ) -> Finished:
        """Run a program to its end, without a shell, in the session's directory and environment.

        `cwd` may be relative to the session's, and `env` changes some variables; None removes one. The
        program reads `input`, or nothing. After `timeout` seconds it is ended, as it is when the turn is
        cancelled. Raises `SpawnError` if it cannot be started; how it ends is no error.

        An editor that offers terminals runs it, in its own environment with what the session and `env` add;
        if it fails to, that is an `EditorError`. What has `input`, or removes a variable, runs here, and so
        does everything if the editor changes arguments: an unknown one is tried once with a harmless command.

        `heard` is given each piece of what is written here, for who wants more than the last of it; of what
        is written in an editor's terminal nobody hears before the end.
        """
        self._turn.check_alive()
        if self._turn.is_cancelled:
            raise asyncio.CancelledError("the turn was cancelled: it runs no more commands")
        check_not_refused(self._turn)
        directory = directory_of(self._turn, cwd)
        check_surroundings(self._turn, directory, env or {})
        _check_limits(timeout, output_limit)
        command = _Command(self._turn, (program, *arguments), directory, env, input)
        call = innermost_call(self._turn)
        if call is not None:
            return await self._turn.own(self._run(command, call, timeout, output_limit, heard))
        line = command.line()
        async with self._turn.tool(line, kind="execute", input={"command": line}) as call:
            finished = await self._turn.own(self._run(command, call, timeout, output_limit, heard))
            await call.result({"exitCode": finished.exit_code, "signal": finished.signal})
            if finished.failure is not None:
                call.fail(finished.failure)
            return finished

    async def _run(
        self,
        command: _Command,
        call: Call,
        seconds: float | None,
        output_limit: int,
        heard: Callable[[bytes], None] | None,
    ) -> Finished:
        if command.suits_editor() and await can_use_terminals(self._turn.session, self._turn):
            request = command.for_editor(self._turn.session.id, output_limit)
            finished = await run_in_editor(self._turn, request, call, seconds)
            if finished is not None:
                return finished
            log.warning("the client offers terminals but does not know terminal/create: running it here")
        return await self._run_here(command, _OutputCapture(call, output_limit, heard), seconds)

    async def _run_here(self, command: _Command, capture: _OutputCapture, seconds: float | None) -> Finished:
        job = command.start()
        try:
            in_time = await self._follow(job, capture, seconds)
        except BaseException:
            await job.end(self._turn.grace)
            raise
        finally:
            job.close()
        exit_code, signal_name = job.ending
        return Finished(exit_code, signal_name, capture.text(), capture.is_cut, not in_time)

    async def _follow(self, job: RunningCommand, capture: _OutputCapture, seconds: float | None) -> bool:
        """Show the output until the command and its processes have ended; returns False if out of time."""
        try:
            async with asyncio.timeout(seconds):
                await job.hear(capture.show)
                await job.wait()
            in_time = True
            await job.end(LEFT_RUNNING_GRACE)
        except TimeoutError:
            in_time = False
            await job.end(self._turn.grace, capture.show)
        await capture.finish()
        return in_time


class _Command:
    """A program with its arguments, directory, environment and input."""

    def __init__(
        self,
        turn: Turn,
        words: Sequence[str | os.PathLike[str]],
        cwd: str,
        env: Mapping[str, str | None] | None,
        input: str | bytes | None,
    ) -> None:
        # Imported on use, here and below: most agents run nothing, and all of them have to start quickly.
        from coupler.runtime.environment import Environment, split_command

        self._words = split_command([os.fspath(word) for word in words])
        self._cwd = cwd
        if "\0" in self._cwd:
            raise ValueError(f"the command's directory {self._cwd!r} holds a NUL character")
        session = turn.session
        variables = {**session.command_env, **(env or {})}
        self._removes = None in variables.values()
        self._withheld = session.withheld.union(session.kept_from_commands).difference(variables)
        self._env = Environment(variables, inherits=False).resolve()
        turn.session.secrets.notice({name: value for name, value in (env or {}).items() if value is not None})
        self._input = _bytes(input)

    def line(self) -> str:
        """The command as a shell line."""
        import shlex

        return shlex.join(self._words)

    def suits_editor(self) -> bool:
        """Return whether an editor can run it: no input, no variable to remove, and nothing but text."""
        if self._input is not None or self._removes:
            return False
        return all(map(_is_text, (*self._words, self._cwd, *self._added().values())))

    def for_editor(self, session_id: str, output_limit: int) -> CreateTerminalRequest:
        """The command for the editor, whose environment is its own: it gets what differs from ours.

        What is withheld it may have, too: the protocol cannot take a variable away, but make it empty.
        """
        from coupler.schema.v1 import CreateTerminalRequest, EnvVariable

        emptied = {name: "" for name in sorted(self._withheld) if name in os.environ}
        added = [EnvVariable(name, value) for name, value in {**emptied, **self._added()}.items()]
        program, *arguments = self._words
        return CreateTerminalRequest(session_id, program, arguments, added, self._cwd, output_limit)

    def start(self) -> RunningCommand:
        from coupler.runtime.commands import RunningCommand
        from coupler.runtime.environment import Environment

        environment = Environment.exact(self._env)
        return RunningCommand.start(self._words, cwd=self._cwd, env=environment, input=self._input)

    def _added(self) -> dict[str, str]:
        return {name: value for name, value in self._env.items() if os.environ.get(name) != value}


class _OutputCapture:
    """Passes the output of a command on to the tool call that shows it, and keeps the end for the caller."""

    def __init__(self, call: Call, limit: int, heard: Callable[[bytes], None] | None) -> None:
        from coupler.runtime.process import RingBuffer

        self._call = call
        self._heard = heard
        self._last = RingBuffer(limit)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def is_cut(self) -> bool:
        return self._last.is_cut

    def text(self) -> str:
        return self._last.text()

    async def show(self, chunk: bytes) -> None:
        self._last.append(chunk)
        if self._heard is not None:
            self._heard(chunk)
        await self._show_text(self._decoder.decode(chunk))

    async def finish(self) -> None:
        """Show what is left of the output; an incomplete character is shown as a replacement character."""
        await self._show_text(self._decoder.decode(b"", final=True))

    async def _show_text(self, text: str) -> None:
        if text:
            await self._call.output(text)


def _check_limits(timeout: float | None, output_limit: int) -> None:
    if timeout is not None and not timeout >= 0:
        raise ValueError(f"a timeout is a number of seconds from 0 on, not {timeout}")
    if not 0 <= index(output_limit) <= MOST_OUTPUT:
        raise ValueError(f"an output limit is a number of bytes from 0 on, not {output_limit}")


def _bytes(input: str | bytes | None) -> bytes | None:
    if input is None or isinstance(input, bytes):
        return input
    if isinstance(input, str):
        return input.encode()
    raise TypeError(f"a command's input is text or bytes, not {type(input).__name__}")


def _is_text(word: str) -> bool:
    """Return whether a word can be sent: what the system gave as bytes that are no UTF-8 cannot."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


async def can_use_terminals(session: Session, turn: Turn | None) -> bool:
    """Return whether the editor has terminals, and runs in them what it is told to.

    Some clients join the words of a command for a shell without quoting them, so that it does something else
    than what was judged. One that is not known is given a harmless command first. If that goes wrong, its
    user is told once that commands run outside of its terminals.
    """
    editor = session.editor
    if not editor.has_terminals or editor.passes_arguments:
        return editor.has_terminals
    async with editor.terminal_probe:
        if editor.passes_arguments is None:
            fault = await _fault_of_terminals(session)
            editor.passes_arguments = fault is None
            if fault is not None:
                log.warning("commands do not run in the client's terminals: %s", fault)
                if turn is not None:
                    why = f"{fault[0].upper()}{fault[1:]}. Coupler runs them itself and shows their output."
                    await turn.notice("Commands do not run in your editor's terminals", why)
    return editor.passes_arguments


async def _fault_of_terminals(session: Session) -> str | None:
    """Run a harmless command in the editor, and say what is wrong with how it does; None if nothing is."""
    program, *arguments = PROBE
    request = CreateTerminalRequest(session.id, program, arguments, [], session.cwd, OUTPUT_LIMIT)
    try:
        terminal = EditorTerminal(session, await _create(session, request))
    except EditorError as error:
        return f"the editor could not run a harmless command in one: {error.message}"
    is_over = False
    try:
        output = await terminal.output_at_end(PROBE_SECONDS)
        is_over = True
    except (EditorError, TimeoutError) as error:
        reason = str(error) or f"it did not end within {PROBE_SECONDS:g} s"
        return f"the editor could not run a harmless command in one: {reason}"
    finally:
        terminal.release(kills=not is_over)
    is_unchanged = PROBE_OUTPUT in output.replace("\r\n", "\n")
    return None if is_unchanged else "the editor changes the arguments of commands"


async def run_in_editor(
    turn: Turn, request: CreateTerminalRequest, call: Call, seconds: float | None
) -> Finished | None:
    """Run a command in an editor's terminal, shown by the call; None if the editor turns out to have none.

    Every terminal that the editor has made is released, whatever happens: after a cancel, a timeout or an
    error, and also when its id arrives after everybody has stopped waiting for it. So the requests that
    matter for that are not the turn's, which end with it, and nobody waits for the answer to a release.
    """
    try:
        terminal = EditorTerminal(turn.session, await _create(turn.session, request))
    except EditorError as error:
        if error.code == METHOD_NOT_FOUND.code:
            return None
        raise
    is_over = False
    try:
        terminal.show_in(turn, call)
        finished = await terminal.follow(turn, seconds, request.output_byte_limit or 0)
        turn.session.outlet.ledger.record_output(call.id, finished.output)
        is_over = True
        return finished
    finally:
        terminal.release(kills=not is_over)


class EditorTerminal:
    """A terminal that the editor has made."""

    def __init__(self, session: Session, id: str) -> None:
        self._session = session
        self._id = id

    def show_in(self, turn: Turn, call: Call) -> None:
        """Let the call show the terminal, while it lives and afterwards."""
        turn.check_alive()
        call.start()
        self._session.outlet.ledger.show_terminal(call.id, self._id)

    async def follow(self, turn: Turn, seconds: float | None, output_limit: int) -> Finished:
        """Wait for the command's end, for so many seconds, and take what it wrote."""
        ending: WaitForTerminalExitResponse | None = None
        try:
            async with asyncio.timeout(seconds):
                ending = await turn.call_editor(WaitForTerminalExitRequest(self._session.id, self._id))
        except TimeoutError:
            # It may have ended just now, and the release ends it in any case.
            with contextlib.suppress(EditorError):
                await turn.call_editor(KillTerminalRequest(self._session.id, self._id), deadline=turn.grace)
        shown = await turn.call_editor(TerminalOutputRequest(self._session.id, self._id))
        output, is_cut = _last_of(shown.output, output_limit)
        exit_code, signal = _how_it_ended(ending, shown.exit_status or None)
        return Finished(exit_code, signal, output, shown.truncated or is_cut, ending is None)

    async def output_at_end(self, seconds: float) -> str:
        """Wait for the command's end, and return what it wrote. Raises TimeoutError or EditorError."""
        call, session = self._session.editor.call, self._session.id
        async with asyncio.timeout(seconds):
            await call(WaitForTerminalExitRequest(session, self._id), session)
            shown = await call(TerminalOutputRequest(session, self._id), session)
        return str(shown.output)

    def release(self, *, kills: bool) -> None:
        """Give the terminal back. Sent at once, so that the turn's answer cannot come before it."""
        if kills:
            self._tell(KillTerminalRequest(self._session.id, self._id))
        self._tell(ReleaseTerminalRequest(self._session.id, self._id))

    def _tell(self, request: Any) -> None:
        self._session.editor.ask(request, self._session.id, self._note)

    def _note(self, answer: Any) -> None:
        if isinstance(answer, EditorError):
            log.info("the terminal %s could not be ended: %s", self._id, answer.message)


async def _create(session: Session, request: CreateTerminalRequest) -> str:
    """Create a terminal and return its id. One that is created too late is released at once."""
    created: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def answered(answer: Any) -> None:
        if created.cancelled():
            if not isinstance(answer, EditorError):
                EditorTerminal(session, answer.terminal_id).release(kills=True)
        elif isinstance(answer, EditorError):
            created.set_exception(answer)
        else:
            created.set_result(answer.terminal_id)

    session.editor.ask(request, session.id, answered)
    try:
        async with asyncio.timeout(TIME_TO_CREATE):
            return await created
    except EditorError:
        raise
    except BaseException as error:
        # A cancel can come between the answer and the moment in which it is taken.
        if not created.cancel() and not created.cancelled() and created.exception() is None:
            EditorTerminal(session, created.result()).release(kills=True)
        if isinstance(error, TimeoutError):
            raise _too_late() from None
        raise


def _too_late() -> EditorError:
    message = f"terminal/create was not answered within {TIME_TO_CREATE:g} s"
    return EditorError(TIMED_OUT.code, message, {"reason": TIMED_OUT.name, "method": "terminal/create"})


def _last_of(output: str, limit: int) -> tuple[str, bool]:
    """Return the end of the output, and whether it was cut, for editors that ignore the limit."""
    from coupler.runtime.process import RingBuffer

    ring = RingBuffer(limit)
    ring.append(output.encode("utf-8", "replace"))
    return (ring.text(), True) if ring.is_cut else (output, False)


def _how_it_ended(
    *endings: WaitForTerminalExitResponse | TerminalExitStatus | None,
) -> tuple[int | None, str | None]:
    """Return the exit code or the signal, from the first answer that has one."""
    for ending in endings:
        if ending is not None and ending.signal:
            return None, ending.signal
        if ending is not None and isinstance(ending.exit_code, int):
            return ending.exit_code, None
    return None, None
