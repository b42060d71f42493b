"""`terminal/*`: commands that an agent lets its client run, each in a process group of its own.

A terminal is there until its agent releases it, its session ends or its agent is gone; then everything that
the command has started is ended. To kill it ends the command, and keeps what it wrote.
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
    Responder,
    Work,
)
from coupler.runtime.commands import Job
from coupler.runtime.environment import SpawnError
from coupler.runtime.files import OutsideRootsError, find_inside
from coupler.runtime.guard import Guard
from coupler.runtime.process import Ring
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
"""Terminals of one session that are not released."""

MOST_RELEASED = 32
"""Terminals of one session whose output is kept for us after their agent has released them."""

USUAL_OUTPUT = 1024 * 1024
"""Bytes of the output that are kept if the agent names no limit: the last ones."""

MOST_OUTPUT = 16 * 1024 * 1024
"""Bytes that are kept at most, whatever limit the agent names."""

GRACE = 1.0
"""Seconds that a command has to end by itself once it is told to."""


class Terminals:
    """The terminals of one connection, each known to its session alone."""

    def __init__(self) -> None:
        self._open: dict[RemoteSession, dict[str, Terminal]] = {}

    def responders(self) -> dict[str, Responder]:
        """Who answers which method."""
        return {
            "terminal/create": Work(CreateTerminalRequest, self._create),
            "terminal/output": Work(TerminalOutputRequest, self._output),
            "terminal/wait_for_exit": Work(WaitForTerminalExitRequest, self._wait_for_exit),
            "terminal/kill": Work(KillTerminalRequest, self._kill),
            "terminal/release": Work(ReleaseTerminalRequest, self._release),
        }

    async def _create(self, request: CreateTerminalRequest, session: RemoteSession) -> CreateTerminalResponse:
        command = await in_thread(lambda: _words(request))
        directory = await in_thread(lambda: _directory(request, session))
        # Looked at after all waiting: what is started from here on is known to who ends the session.
        self._refuse_more(session)
        environment = {variable.name: variable.value for variable in request.env or ()}
        try:
            job = Job.start(command, cwd=directory, env=environment)
        except SpawnError as error:
            raise RpcError.because(SPAWN_FAILED, str(error)) from None
        terminal = Terminal(job, _limit(request), session)
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

    def _of(self, session: RemoteSession) -> dict[str, Terminal]:
        """The terminals of a session; from the first one on they end with it."""
        if session not in self._open:
            self._open[session] = {}
            session.at_end(lambda: self._release_all(session))
        return self._open[session]

    async def _release_all(self, session: RemoteSession) -> None:
        terminals = self._open.pop(session, {}).values()
        await asyncio.gather(*(terminal.release() for terminal in terminals))

    def _find(self, id: str, session: RemoteSession) -> Terminal:
        terminal = self._open.get(session, {}).get(id)
        if terminal is None:
            message = f"the session has no terminal {id[:100]!r}: it was released, or never created"
            raise RpcError.because(RESOURCE_NOT_FOUND, message, path="terminalId")
        return terminal


class Terminal:
    """A command that runs or has run, with the last of what it wrote."""

    def __init__(self, job: Job, limit: int, session: RemoteSession) -> None:
        self.on_output: Callable[[], None] | None = None
        """Called whenever the command has written something."""
        self._job = job
        # If we are killed ourselves, nobody else would end it.
        self._guard = Guard.over(job.pid)
        self._last = Ring(limit)
        self._hearing: asyncio.Timeout | None = None
        self._is_killed = False
        self._ended = asyncio.Event()
        self._released = asyncio.Event()
        self._life = session.start(self._live())

    def output(self) -> TerminalOutputResponse:
        """What it wrote until now; how it ended is there once all of it is."""
        has_ended = self._ended.is_set()
        text = self._last.tail(is_final=has_ended)
        return TerminalOutputResponse(text, self._last.is_cut, self._status() if has_ended else UNSET)

    @property
    def is_released(self) -> bool:
        """Whether its agent needs it no longer."""
        return self._released.is_set()

    async def wait(self) -> TerminalExitStatus:
        """How it ended, once it has."""
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
        """End everything, and wait until it has."""
        self._stop()
        self._released.set()
        await asyncio.wait([self._life])

    def _stop(self) -> None:
        self._is_killed = True
        if self._hearing is not None:
            self._hearing.reschedule(asyncio.get_running_loop().time())

    async def _live(self) -> None:
        """The one task that hears the command. Cancelled, it kills at once."""
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
                if self._guard is not None:
                    self._guard.dismiss()

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
    """The program and its arguments. Agents exist that give a line for the shell instead."""
    arguments = [] if request.args is UNSET else [*request.args]
    is_line = not arguments and any(character.isspace() for character in request.command.strip())
    if not is_line or shutil.which(request.command) is not None:
        return [request.command, *arguments]
    if sys.platform == "win32":
        return [os.environ.get("COMSPEC", "cmd.exe"), "/d", "/c", request.command]
    return ["/bin/sh", "-c", request.command]


def _directory(request: CreateTerminalRequest, session: RemoteSession) -> str:
    """Where the command runs: a directory inside of the session's, by default the session's own."""
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
        return USUAL_OUTPUT
    return min(request.output_byte_limit, MOST_OUTPUT)
