"""The sandbox that commands of the coder can run in: bubblewrap, where the system has it.

In it the whole system can be read but not written, except for the session's directories. The home is an empty
one, which is forgotten after each command, with the user's tools put back into it, read-only: keys, tokens
and histories are not there. `/tmp` is the session's own. `/run`, where agents and daemons have their sockets,
is empty. Processes see only each other, and all of them end with the first one.

The network stays: what installs packages, tests against a local server or serves a page would be of no use
without it, and what may be fetched is a question for the permission rules.

A sandbox comes on top of the rules and takes nothing from them: a command is judged just the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from coupler.coder.commands.sandbox_line import View, sandbox_line
from coupler.runtime.commands import result_of
from coupler.runtime.directories import NoHomeError, config_directory, data_directory, home_directory
from coupler.runtime.environment import Environment, SpawnError, find_outside
from coupler.runtime.threads import in_thread

if TYPE_CHECKING:
    from coupler.agent.session import Session

Setting = Literal["off", "auto", "on"]

PATIENCE = 5.0
"""Seconds that a sandbox has to show that it works."""

LARGEST_COMPLAINT = 1000
"""Bytes of what bubblewrap says that are read."""


class SandboxError(OSError):
    """There is no sandbox here, and commands are to run in nothing else."""


class Sandbox:
    """The sandbox of one session's commands, as the user has set it."""

    def __init__(self, session: Session, readable: Sequence[Path] = (), *, setting: Setting = "off") -> None:
        self.setting = setting
        """Whether commands run in it: never, where there is one, or only in one."""
        self._session = session
        self._readable = readable
        self._is_looked_for = False
        self._problem: str | None = None
        self._warning: str | None = None
        self._temporary: str | None = None

    async def words(self, command: Sequence[str], directory: str) -> list[str]:
        """The command as it is to be run. Raises `SandboxError` if it must not be run at all."""
        if self.setting == "off":
            return [*command]
        if not self._is_looked_for:
            self._problem = self._warning = await self._looked_for()
            self._is_looked_for = True
        if self._problem is None:
            return [*await in_thread(self._line), "--chdir", directory, "--", *command]
        if self.setting == "on":
            raise SandboxError(
                f'no command is run: `coder.sandbox` is "on", but {self._problem}. '
                'The user has to see to that, or set it to "auto" or "off"'
            )
        return [*command]

    def take_warning(self) -> str | None:
        """Why there is no sandbox, for the user who wanted one where there is one; told once."""
        warning, self._warning = self._warning, None
        return warning if self.setting == "auto" else None

    def close(self) -> None:
        """The session is over."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    async def _looked_for(self) -> str | None:
        """Why there is no sandbox, if there is none."""
        if sys.platform != "linux":
            return f"there is no sandbox for {sys.platform}"
        problem = await in_thread(self._hindrance)
        return problem or await _trial(
            [*await in_thread(self._line), "--", "/bin/sh", "-c", ":"], self._session
        )

    def _hindrance(self) -> str | None:
        if self._program() is None:
            return "bubblewrap is not installed (on Debian and Ubuntu: apt install bubblewrap)"
        if any(Path(root).resolve() == Path("/") for root in self._session.roots):
            return "the session works in the whole file system, of which nothing would be left to protect"
        return None

    def _program(self) -> str | None:
        """bubblewrap, but not one that came with the project."""
        return find_outside("bwrap", self._session.roots)

    def _line(self) -> list[str]:
        program = self._program()
        if program is None:
            raise SandboxError("bubblewrap is not there any more")
        if self._temporary is None:
            self._temporary = tempfile.mkdtemp(prefix="coupler-sandbox-")
        variables = self._session.env
        home = home_directory(variables)
        return sandbox_line(
            program,
            View(
                roots=self._session.roots,
                temporary=self._temporary,
                home=None if home is None else Path(home),
                hidden=_own_directories(variables),
                readable=self._readable,
                path=variables.get("PATH", ""),
            ),
        )


def _own_directories(variables: Mapping[str, str]) -> list[Path]:
    """Where Coupler keeps sessions, keys and settings."""
    settings = config_directory(variables)
    own = [] if settings is None else [Path(settings)]
    with contextlib.suppress(NoHomeError):
        own.append(Path(data_directory()))
    return own


async def _trial(words: Sequence[str], session: Session) -> str | None:
    """Why the sandbox does not work: containers and hardened systems do not let everybody make one."""
    try:
        async with asyncio.timeout(PATIENCE):
            result = await result_of(
                words, cwd="/", env=Environment.exact(session.env), largest=LARGEST_COMPLAINT
            )
    except SpawnError as error:
        return f"bubblewrap could not be started: {error}"
    except TimeoutError:
        return f"bubblewrap does not answer within {PATIENCE:g} s"
    if result.code == 0:
        return None
    why = result.output.strip().partition("\n")[0].removeprefix("bwrap: ")
    return f"bubblewrap does not work here: {why or 'it does not say why'}"
