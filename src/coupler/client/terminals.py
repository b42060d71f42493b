"""Serves `terminal/*`: runs an agent's commands, each in a process group of its own.

A terminal exists until its agent releases it, its session ends or its agent is gone; then everything that the
command has started is ended. Killing it ends the command, and keeps its output.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import UNSET

from coupler.client.errors import (
    OUTSIDE_ROOTS,
    RESOURCE_NOT_FOUND,
    SESSION_ENDED,
    SPAWN_FAILED,
    TOO_MANY_TERMINALS,
    AsyncResponder,
    Responder,
)
from coupler.runtime.commands import RunningCommand
from coupler.runtime.environment import SpawnError
from coupler.runtime.files import OutsideRootsError, find_inside
from coupler.runtime.process import RingBuffer
from coupler.runtime.threads import in_thread
from coupler.schema.v1 import (
    CreateTerminalRequest,
    CreateTerminalResponse,
    KillTerminalRequest,
    KillTerminalResponse,
    ReleaseTerminalRequest,
    ReleaseTerminalResponse,
    TerminalExitStatus,
    TerminalOutputRequest,
    TerminalOutputResponse,
    WaitForTerminalExitRequest,
    WaitForTerminalExitResponse,
)
from coupler.wire.messages import INVALID_PARAMS, RpcError

if TYPE_CHECKING:
    from coupler.client.session import RemoteSession

MOST_OPEN = 64
"""Unreleased terminals of one session."""

MOST_RELEASED = 32
"""Released terminals of one session whose output is kept for this program."""

DEFAULT_OUTPUT_LIMIT = 1024 * 1024
"""Bytes of output that are kept if the agent names no limit: the last ones."""

OUTPUT_LIMIT = 16 * 1024 * 1024
"""Bytes that are kept at most, whatever limit the agent names."""

GRACE = 1.0
"""Seconds that a command has to end by itself after SIGTERM."""


class ClientTerminals:
    """The terminals of one connection, each accessible to its session alone."""

    def __init__(self) -> None:
        self._open: dict[RemoteSession, dict[str, ClientTerminal]] = {}

    def responders(self) -> dict[str, Responder]:
        """Return the responder of each method."""
        return {
            "terminal/create": AsyncResponder(CreateTerminalRequest, self._create),
            "terminal/output": AsyncResponder(TerminalOutputRequest, self._output),
            "terminal/wait_for_exit": AsyncResponder(WaitForTerminalExitRequest, self._wait_for_exit),
            "terminal/kill": AsyncResponder(KillTerminalRequest, self._kill),
            "terminal/release": AsyncResponder(ReleaseTerminalRequest, self._release),
        }

    async def _create(self, request: CreateTerminalRequest, session: RemoteSession) -> CreateTerminalResponse:
        command = await in_thread(lambda: _words(request))
        directory = await in_thread(lambda: _directory(request, session))
        # Looked at after all waiting: what is started from here on is known to who ends the session.
        self._refuse_more(session)
        environment = {variable.name: variable.value for variable in request.env or ()}
        try:
            job = RunningCommand.start(command, cwd=directory, env=environment)
        except SpawnError as error:
            raise RpcError.because(SPAWN_FAILED, str(error)) from None
        terminal = ClientTerminal(job, _limit(request), session)
        name = f"terminal_{secrets.token_hex(16)}"
        self._of(session)[name] = session.terminals[name] = terminal
        return CreateTerminalResponse(name)

    async def _output(self, request: TerminalOutputRequest, session: RemoteSession) -> TerminalOutputResponse:
        terminal = self._find(request.terminal_id, session)
        await session.room()
        return terminal.output()

    async def _wait_for_exit(
        self, request: WaitForTerminalExitRequest, session: RemoteSession
    ) -> WaitForTerminalExitResponse:
        status = await self._find(request.terminal_id, session).wait()
        return WaitForTerminalExitResponse(status.exit_code, status.signal)

    async def _kill(self, request: KillTerminalRequest, session: RemoteSession) -> KillTerminalResponse:
        await self._find(request.terminal_id, session).kill()
        return KillTerminalResponse()

    async def _release(
        self, request: ReleaseTerminalRequest, session: RemoteSession
    ) -> ReleaseTerminalResponse:
        terminal = self._find(request.terminal_id, session)
        del self._open[session][request.terminal_id]
        await terminal.release()
        released = [name for name, each in session.terminals.items() if each.is_released]
        for name in released[:-MOST_RELEASED]:
            session.terminals.pop(name, None)
        return ReleaseTerminalResponse()

    def _refuse_more(self, session: RemoteSession) -> None:
        if session.has_ended:
            raise RpcError.because(SESSION_ENDED, "the session is being closed: it gets no more terminals")
        if len(self._open.get(session, ())) >= MOST_OPEN:
            message = f"the session has {MOST_OPEN} terminals: release one that is no longer needed"
            raise RpcError.because(TOO_MANY_TERMINALS, message)

    def _of(self, session: RemoteSession) -> dict[str, ClientTerminal]:
        """Return the terminals of a session, which end with it."""
        if session not in self._open:
            self._open[session] = {}
            session.at_end(lambda: self._release_all(session))
        return self._open[session]

    async def _release_all(self, session: RemoteSession) -> None:
        terminals = self._open.pop(session, {}).values()
        await asyncio.gather(*(terminal.release() for terminal in terminals))

    def _find(self, id: str, session: RemoteSession) -> ClientTerminal:
        terminal = self._open.get(session, {}).get(id)
        if terminal is None:
            message = f"the session has no terminal {id[:100]!r}: it was released, or never created"
            raise RpcError.because(RESOURCE_NOT_FOUND, message, path="terminalId")
        return terminal


class ClientTerminal:
    """A command that runs or has run, with the end of its output."""

    def __init__(self, job: RunningCommand, limit: int, session: RemoteSession) -> None:
        self.on_output: Callable[[], None] | None = None
        """Called whenever the command has written something."""
        self._job = job
        self._last = RingBuffer(limit)
        self._hearing: asyncio.Timeout | None = None
        self._is_killed = False
        self._ended = asyncio.Event()
        self._released = asyncio.Event()
        self._life = session.start(self._live())

    def output(self) -> TerminalOutputResponse:
        """Return the output so far; the exit status is there once all of it is."""
        has_ended = self._ended.is_set()
        text = self._last.tail(is_final=has_ended)
        return TerminalOutputResponse(text, self._last.is_cut, self._status() if has_ended else UNSET)

    def last(self, most: int) -> str:
        """Return at most so many bytes of the end of the output so far."""
        return self._last.last(most)

    @property
    def is_released(self) -> bool:
        """True if the agent has released it."""
        return self._released.is_set()

    async def wait(self) -> TerminalExitStatus:
        """Wait for the exit status."""
        await self._ended.wait()
        return self._status()

    async def kill(self) -> None:
        """End the command and what it started; the output stays."""
        if self._ended.is_set():
            await self._job.end(GRACE)
            return
        self._stop()
        await self._ended.wait()

    async def release(self) -> None:
        """End everything, and wait until it has ended."""
        self._stop()
        self._released.set()
        await asyncio.wait([self._life])

    def _stop(self) -> None:
        self._is_killed = True
        if self._hearing is not None:
            self._hearing.reschedule(asyncio.get_running_loop().time())

    async def _live(self) -> None:
        """Run the command in the one task that reads it. Cancelled, it kills at once."""
        grace = 0.0
        try:
            await self._hear()
            self._ended.set()
            await self._released.wait()
            grace = GRACE
        finally:
            try:
                await self._job.end(grace)
            finally:
                self._job.close()
                self._ended.set()

    async def _hear(self) -> None:
        try:
            async with asyncio.timeout(0 if self._is_killed else None) as self._hearing:
                await self._job.hear(self._keep)
                await self._job.wait()
        except TimeoutError:
            await self._job.end(GRACE, self._keep)
        finally:
            self._hearing = None

    async def _keep(self, chunk: bytes) -> None:
        self._last.append(chunk)
        if self.on_output is not None:
            self.on_output()

    def _status(self) -> TerminalExitStatus:
        exit_code, signal = self._job.ending
        return TerminalExitStatus(exit_code, signal)


def _words(request: CreateTerminalRequest) -> list[str]:
    """Return the program and its arguments. Some agents give a line for the shell instead."""
    arguments = [] if request.args is UNSET else [*request.args]
    is_line = not arguments and any(character.isspace() for character in request.command.strip())
    if not is_line or shutil.which(request.command) is not None:
        return [request.command, *arguments]
    if sys.platform == "win32":
        return [os.environ.get("COMSPEC", "cmd.exe"), "/d", "/c", request.command]
    return ["/bin/sh", "-c", request.command]


def _directory(request: CreateTerminalRequest, session: RemoteSession) -> str:
    """Return where the command runs: a directory inside of the session's, by default the session's own."""
    directory = request.cwd or session.cwd
    if not os.path.isabs(directory):  # noqa: PTH117 - pathlib raises for a path that is too long
        message = f"cwd: expected an absolute path, got {directory!r}"
        raise RpcError.because(INVALID_PARAMS, message, path="cwd")
    try:
        return find_inside(directory, session.cwd, session.roots).real
    except OutsideRootsError as error:
        raise RpcError.because(OUTSIDE_ROOTS, f"cwd: {error}", path="cwd") from None
    except ValueError as error:
        raise RpcError.because(INVALID_PARAMS, f"cwd: {error}", path="cwd") from None


def _limit(request: CreateTerminalRequest) -> int:
    if not isinstance(request.output_byte_limit, int):
        return DEFAULT_OUTPUT_LIMIT
    return min(request.output_byte_limit, OUTPUT_LIMIT)
