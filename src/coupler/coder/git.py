"""The state of the session's repository: branch, changes, last commits.

A repository can name programs that git runs: monitors, hooks, filters, pagers. It was written by others, so
none of them may run before the user asks for anything. What takes too long is left out.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from coupler.coder.outputs import one_line
from coupler.runtime.commands import result_of
from coupler.runtime.environment import Environment, SpawnError, find_outside

LIMIT = 3.0
"""Seconds that all of it has."""

LARGEST_OUTPUT = 64 * 1024
MOST_CHANGES = 20
MOST_COMMITS = 5
LONGEST_LINE = 160

HARMLESS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.pager": "cat",
    "core.attributesFile": os.devnull,
    "core.sshCommand": "false",
    "core.gitProxy": "",
    "credential.helper": "",
    "diff.external": "",
    "diff.ignoreSubmodules": "all",
    "log.showSignature": "false",
    "protocol.allow": "never",
    "safe.bareRepository": "explicit",
    "status.submoduleSummary": "false",
}
"""Settings that go before the repository's own: with these git runs nothing but itself."""

KEPT_VARIABLES = (
    *("PATH", "HOME", "XDG_CONFIG_HOME", "USER", "LOGNAME", "TMPDIR"),
    *("USERPROFILE", "APPDATA", "LOCALAPPDATA", "SYSTEMROOT", "TEMP", "TMP"),
)
"""What git gets of the environment: others would lead it to other repositories, or are no business of its."""

_FILTER = re.compile(r"filter\.(.+)\.(?:clean|smudge|process|required)", re.DOTALL | re.IGNORECASE)


class GitState(NamedTuple):
    """A look at a repository."""

    branch: str | None
    changes: tuple[str, ...] | None
    """As `git status --short` has them; None if that took too long."""
    more_changes: int
    commits: tuple[str, ...]

    def as_text(self) -> str:
        """For the model."""
        lines = [f"Branch: {self.branch or 'none (detached)'}"]
        if self.changes is None:
            lines.append("Changes: unknown, because looking took too long")
        elif not self.changes:
            lines.append("Changes: none")
        else:
            lines += ["Changes:", *self.changes]
            lines += [f"… and {self.more_changes} more"] if self.more_changes else []
        if self.commits:
            lines += ["Last commits:", *self.commits]
        return "\n".join(lines)


async def git_state(cwd: str, roots: Sequence[str], environ: Mapping[str, str | None]) -> GitState | None:
    """What git says of a directory; None if there is no git, or no repository."""
    program = await asyncio.to_thread(find_outside, "git", roots, path=environ.get("PATH") or os.defpath)
    if program is None:
        return None
    git = _Git(program, cwd, {name: value for name in KEPT_VARIABLES if (value := environ.get(name))})
    try:
        async with asyncio.timeout(LIMIT):
            if await git.run("rev-parse", "--is-inside-work-tree") is None:
                return None
            git.disarm(await git.run("config", "-z", "--name-only", "--get-regexp", r"^filter\.") or "")
    except (TimeoutError, SpawnError, OSError):
        return None
    branch, status, commits = await asyncio.gather(
        git.in_time("symbolic-ref", "-q", "--short", "HEAD"),
        git.in_time("status", "--porcelain=v1", "--untracked-files=normal", "--ignore-submodules=all"),
        git.in_time("log", f"-{MOST_COMMITS}", "--no-show-signature", "--no-decorate", "--format=%h %s"),
    )
    changes = None if status is None else _lines(status)
    return GitState(
        one_line(branch, LONGEST_LINE) if branch else None,
        None if changes is None else changes[:MOST_CHANGES],
        0 if changes is None else max(len(changes) - MOST_CHANGES, 0),
        _lines(commits or ""),
    )


class _Git:
    """Runs git in a directory, without what others want to be run."""

    def __init__(self, program: str, cwd: str, environ: dict[str, str]) -> None:
        self._program = program
        self._cwd = cwd
        self._environ = environ
        self._settings = dict(HARMLESS)

    def disarm(self, names: str) -> None:
        """These are the names of all settings of filters: none of them is to run."""
        for name in names.split("\0"):
            found = _FILTER.fullmatch(name)
            if found is not None:
                for key in ("clean", "smudge", "process"):
                    self._settings[f"filter.{found[1]}.{key}"] = ""
                self._settings[f"filter.{found[1]}.required"] = "false"

    async def in_time(self, *words: str) -> str | None:
        """The same as `run`; None also for what takes too long."""
        try:
            async with asyncio.timeout(LIMIT):
                return await self.run(*words)
        except (TimeoutError, SpawnError, OSError):
            return None

    async def run(self, *words: str) -> str | None:
        """What git prints, or the beginning of that; None if it fails."""
        result = await result_of(
            [self._program, "--no-optional-locks", "--no-pager", *words],
            cwd=self._cwd,
            env=self._environment(),
            largest=LARGEST_OUTPUT,
            hears_stderr=True,
        )
        return result.output if result.code == 0 else None

    def _environment(self) -> Environment:
        # As variables, because a filter may have any name, and words of the command line split at `=`.
        numbered = enumerate(self._settings.items())
        settings = {
            variable: text
            for number, (key, value) in numbered
            for variable, text in ((f"GIT_CONFIG_KEY_{number}", key), (f"GIT_CONFIG_VALUE_{number}", value))
        }
        own = {
            "GIT_CONFIG_COUNT": str(len(self._settings)),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_ATTR_NOSYSTEM": "1",
            "LC_ALL": "C",
        }
        return Environment.exact({**self._environ, **own, **settings})


def _lines(text: str) -> tuple[str, ...]:
    """Lines of git's own making, with names in them that others have chosen."""
    return tuple(_line(line) for line in text.splitlines() if line.strip())


def _line(line: str) -> str:
    # The two first columns of a status mean something, blanks too.
    indent = len(line) - len(line.lstrip(" "))
    return " " * indent + one_line(line, LONGEST_LINE)
