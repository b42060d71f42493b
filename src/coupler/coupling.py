"""`connect`: the client's side joined to an agent's, across a pipe or in one process."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import PurePath
from typing import Any

from coupler.client.connection import FRAME_LIMIT
from coupler.client.errors import AgentError
from coupler.client.link import LastWords, Link, ProcessLink
from coupler.client.observation import OnEvent
from coupler.client.quirks import Quirks
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
    frame_limit: int = FRAME_LIMIT,
    quirks: Quirks | None = None,
    on_event: OnEvent | None = None,
) -> RemoteAgent:
    """An agent to hold sessions with, as an async context manager that starts and ends it.

    `agent` is a command line, a list of its words, or a turn function or `Agent`: that one runs in this
    process. `env` is added to our environment; `Environment.exact` replaces it. Lines of the agent over
    `frame_limit` bytes are dropped. `quirks` say how to take this agent; `on_event` sees all that happens.
    """
    timeout = usual_startup_timeout(agent) if startup_timeout is None else startup_timeout

    def link() -> Link:
        return link_to(agent, cwd=cwd, env=env)

    link()  # says now, and not at the start, what cannot be started
    return RemoteAgent(
        link,
        cwd=cwd,
        startup_timeout=timeout,
        frame_limit=frame_limit,
        quirks=quirks,
        on_event=on_event,
    )


def link_to(
    agent: str | Sequence[str] | Any,
    *,
    cwd: str | PathLike[str] | None = None,
    env: Environment | Mapping[str, str | None] | None = None,
) -> Link:
    """What `connect` takes for an agent, as something that can be opened."""
    if _is_command(agent):
        return ProcessLink(startable(agent), cwd=cwd, env=env)
    if env is not None:
        raise AgentError("spawn", "`env` is for commands: an agent in this process has our environment")
    return LocalLink(agent)


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
        except (TypeError, ValueError) as error:
            raise AgentError("spawn", str(error)) from None
        ours, theirs = MemoryTransport.pair()
        self._serving = asyncio.get_running_loop().create_task(
            serve_async(self._target, transport=theirs, store=False)
        )
        return ours

    async def wait(self) -> None:
        await asyncio.wait([self._serving])

    async def close(self, grace: float = 5.0) -> None:
        await asyncio.wait([self._serving])

    def last_words(self) -> LastWords:
        return LastWords()


def startable(command: str | Sequence[str]) -> str | Sequence[str]:
    """The command; `coupler` itself is also found when its environment is not activated."""
    try:
        program, *rest = split_command(command)
    except SpawnError:
        return command  # the start itself will say what is wrong
    if program == "coupler" and shutil.which(program) is None:
        return [sys.executable, "-m", "coupler", *rest]
    return command


def usual_startup_timeout(agent: str | Sequence[str] | Any) -> float:
    """Seconds that an agent may take to start: more if its command may download it first."""
    if not _is_command(agent):
        return STARTUP_TIMEOUT
    try:
        program = PurePath(split_command(agent)[0]).stem
    except SpawnError:
        return STARTUP_TIMEOUT  # the start itself will say what is wrong
    return INSTALLER_TIMEOUT if program in INSTALLERS else STARTUP_TIMEOUT


def _is_command(agent: object) -> bool:
    return isinstance(agent, str) or (isinstance(agent, Sequence) and not isinstance(agent, bytes))
