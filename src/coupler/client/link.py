"""What an agent hangs on: a process of its own, or something else that gives a transport."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import NamedTuple, Protocol

from coupler.client.errors import AgentError
from coupler.runtime.environment import Environment, SpawnError
from coupler.runtime.guard import Guard
from coupler.runtime.process import Child
from coupler.wire.pipe_transport import PipeTransport
from coupler.wire.transport import Transport


class LastWords(NamedTuple):
    """What is known of an agent that ended."""

    exit_code: int | None = None
    stderr: str = ""


class Link(Protocol):
    """Opens the way to an agent, and ends it. Before `open` there is nothing to wait for and to close."""

    def open(self) -> Transport:
        """Start the agent; called once."""

    async def wait(self) -> None:
        """Wait until the agent has ended by itself."""

    async def close(self, grace: float = 5.0) -> None:
        """End the agent and everything it started; what ignores that for `grace` seconds is killed."""

    def last_words(self) -> LastWords:
        """What the agent left, so far."""


class ProcessLink:
    """An agent as a child process, in a group of its own."""

    def __init__(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | PathLike[str] | None = None,
        env: Environment | Mapping[str, str | None] | None = None,
    ) -> None:
        self._command = command
        self._cwd = cwd
        self._env = env
        self._child: Child
        self._guard: Guard | None = None

    @property
    def pid(self) -> int:
        """The process; its group and session have the same number."""
        return self._child.pid

    def open(self) -> Transport:
        try:
            self._child = Child.spawn(self._command, cwd=self._cwd, env=self._env)
        except SpawnError as error:
            raise AgentError("spawn", str(error)) from error
        self._guard = Guard.over(self._child.pid)
        return PipeTransport(self._child.stdout_fd, self._child.stdin_fd)

    async def wait(self) -> None:
        await self._child.wait()

    async def close(self, grace: float = 5.0) -> None:
        try:
            await self._child.end(grace)
        finally:
            if self._guard is not None:
                self._guard.dismiss()

    def last_words(self) -> LastWords:
        return LastWords(self._child.returncode, self._child.stderr)
