"""`connect`: the client's side joined to an agent's, across a pipe or in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import PurePath
from typing import Any

from coupler.client.errors import AgentError
from coupler.client.link import LastWords, ProcessLink
from coupler.client.remote import RemoteAgent
from coupler.process.command import split_command
from coupler.process.environment import Environment
from coupler.process.errors import SpawnError
from coupler.wire.transport import MemoryTransport, Transport

STARTUP_TIMEOUT = 30.0
"""Seconds in which an agent must be started, introduced and have opened its first session."""

INSTALLER_TIMEOUT = 120.0
"""The same, for commands that may download the agent first."""

INSTALLERS = frozenset({"npx", "uvx", "bunx", "pnpx", "pipx"})


def connect(
    agent: str | Sequence[str] | Any,
    *,
    cwd: str | PathLike[str] = ".",
    env: Environment | Mapping[str, str | None] | None = None,
    startup_timeout: float | None = None,
) -> RemoteAgent:
    """An agent to hold sessions with, as an async context manager that starts and ends it.

    `agent` is a command line, a list of its words, or anything that `serve` takes: that one runs in this
    process. `env` is added to our environment; `Environment.exact` replaces it.
    """
    if isinstance(agent, str) or (isinstance(agent, Sequence) and not isinstance(agent, bytes)):
        timeout = startup_timeout if startup_timeout is not None else _startup_timeout(agent)
        return RemoteAgent(ProcessLink(agent, cwd=cwd, env=env), cwd=cwd, startup_timeout=timeout)
    if env is not None:
        raise AgentError("spawn", "`env` is for commands: an agent in this process has our environment")
    timeout = startup_timeout if startup_timeout is not None else STARTUP_TIMEOUT
    return RemoteAgent(LocalLink(agent), cwd=cwd, startup_timeout=timeout)


class LocalLink:
    """An agent in this process and event loop, which speaks the protocol all the same."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self._serving: asyncio.Task[None]

    def open(self) -> Transport:
        # Imported on use: whoever drives other programs does not need the agent's side.
        from coupler.agent.blueprint import Blueprint
        from coupler.agent.serving import serve_async

        try:
            Blueprint.of(self._target)
        except TypeError as error:
            raise AgentError("spawn", str(error)) from None
        ours, theirs = MemoryTransport.pair()
        self._serving = asyncio.get_running_loop().create_task(serve_async(self._target, transport=theirs))
        return ours

    async def wait(self) -> None:
        await asyncio.wait([self._serving])

    async def close(self) -> None:
        await asyncio.wait([self._serving])

    def last_words(self) -> LastWords:
        return LastWords()


def _startup_timeout(command: str | Sequence[str]) -> float:
    try:
        program = PurePath(split_command(command)[0]).stem
    except SpawnError:
        return STARTUP_TIMEOUT  # the start itself will say what is wrong
    return INSTALLER_TIMEOUT if program in INSTALLERS else STARTUP_TIMEOUT
