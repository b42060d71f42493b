"""The sandbox for commands of the coder: bubblewrap, where the system has it.

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
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from coupler.coder.profiles import AGENTIC
from coupler.runtime.commands import run_command
from coupler.runtime.directories import NoHomeError, config_directory, data_directory, home_directory
from coupler.runtime.environment import Environment, SpawnError, find_program_outside
from coupler.runtime.threads import in_thread

if TYPE_CHECKING:
    from coupler.agent.session import Session

SandboxSetting = Literal["off", "auto", "on"]

PATIENCE = 5.0
"""Seconds that a sandbox has to show that it works."""

LARGEST_COMPLAINT = 1000
"""Bytes of what bubblewrap says that are read."""

TOOLS = (
    *(".local/bin", ".local/lib", ".local/pipx", ".local/share/uv", ".local/share/pipx", ".local/share/mise"),
    *(".local/share/fnm", ".local/share/pnpm", ".local/share/virtualenvs", ".nvm", ".volta", ".bun"),
    *(".deno", ".pyenv", ".rbenv", ".asdf", ".sdkman", ".jenv", ".rustup", ".nix-profile", ".gem"),
    *(".cargo/bin", ".cargo/registry", ".cargo/git", ".cargo/config.toml", ".cargo/env", "go"),
    *(".m2/repository", ".gradle/wrapper", "miniconda3", "miniforge3", "anaconda3"),
    *(".gitconfig", ".config/git/config", ".config/git/ignore"),
)
"""Paths of the home that stay visible: programs, what they need, and the user's git settings."""

SECRETS = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".oci", ".config/gcloud", ".config/gh"),
    *(".config/hub", ".config/op", ".config/sops", ".config/rclone", ".password-store", ".vault-token"),
    *(".local/share/keyrings", ".mozilla", ".config/google-chrome", ".config/chromium", ".terraformrc"),
    *(".netrc", ".npmrc", ".yarnrc.yml", ".pypirc", ".git-credentials", ".config/git/credentials"),
    *(".pgpass", ".my.cnf", ".cargo/credentials", ".cargo/credentials.toml", ".m2/settings.xml"),
    *(".gradle/gradle.properties", ".bash_history", ".zsh_history", ".python_history"),
    *(".claude", ".claude.json", ".codex", ".gemini"),
)
"""Paths that are hidden where the home itself is a directory of the session."""

SOCKETS = ("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR")
"""Variables that are unset, because the sockets they name are not in the sandbox."""

PROTECTED_GIT_FILES = ("hooks", "config")
"""Read-only parts of a repository, because git runs or obeys them also outside of the sandbox."""

TEMPORARY = "/tmp"


SUGGESTION = (
    'In this mode most commands run unasked. bubblewrap works here: with `sandbox = "auto"` under `[coder]` '
    'in your coupler.toml they cannot write outside of the project, nor see your home. With `"off"` you '
    "are not told again."
)


class Sandbox:
    """The sandbox of one session's commands, as the user has set it."""

    def __init__(
        self, session: Session, readable: Sequence[Path] = (), *, setting: SandboxSetting = "off"
    ) -> None:
        self.setting = setting
        """The setting: `off`, `auto` for a sandbox where there is one, or `on` to require one."""
        self.may_be_suggested = False
        """True if the user has not said whether there is to be one, and was not told that there could be."""
        self._session = session
        self._readable = readable
        self._is_looked_for = False
        self._problem: str | None = None
        self._warning: str | None = None
        self._temporary: str | None = None

    async def words(self, command: Sequence[str], directory: str) -> list[str]:
        """Return the command as it is to be run. Raises `SandboxError` if it must not be run at all."""
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
        """Return why there is no sandbox, for the user who wanted one where there is one; told once."""
        warning, self._warning = self._warning, None
        return warning if self.setting == "auto" else None

    async def take_suggestion(self) -> str | None:
        """Return advice for the user, in a mode that asks about few commands; told once, where it works."""
        if not self.may_be_suggested or self._session.mode != AGENTIC:
            return None
        self.may_be_suggested = False
        if await self._looked_for() is not None:
            return None
        return SUGGESTION

    def close(self) -> None:
        """Delete the session's temporary directory."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    async def _looked_for(self) -> str | None:
        """Check for a sandbox, and return the reason if there is none."""
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
        """Find bubblewrap, but not one that came with the project."""
        return find_program_outside("bwrap", self._session.roots)

    def _line(self) -> list[str]:
        program = self._program()
        if program is None:
            raise SandboxError("bubblewrap is not there any more")
        if self._temporary is None:
            self._temporary = tempfile.mkdtemp(prefix="coupler-sandbox-")
        variables = self._session.env
        home = home_directory(variables)
        return bubblewrap_arguments(
            program,
            SandboxView(
                roots=self._session.roots,
                temporary=self._temporary,
                home=None if home is None else Path(home),
                hidden=_own_directories(variables),
                readable=self._readable,
                path=variables.get("PATH", ""),
                unset=sorted(self._session.withheld.union(self._session.kept_from_commands)),
            ),
        )


class SandboxError(OSError):
    """There is no sandbox here, and commands are to run in nothing else."""


def _own_directories(variables: Mapping[str, str]) -> list[Path]:
    """Return where Coupler keeps sessions, keys and settings."""
    settings = config_directory(variables)
    own = [] if settings is None else [Path(settings)]
    with contextlib.suppress(NoHomeError):
        own.append(Path(data_directory()))
    return own


async def _trial(words: Sequence[str], session: Session) -> str | None:
    """Try the sandbox, and return why it fails: containers and hardened systems may not allow it."""
    try:
        async with asyncio.timeout(PATIENCE):
            result = await run_command(
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


class SandboxView(Struct, frozen=True, kw_only=True):
    """The part of the file system that the commands of a session see."""

    roots: Sequence[str]
    """The directories that they can write."""
    temporary: str
    """The directory that is `/tmp` for them."""
    home: Path | None = None
    hidden: Sequence[Path] = ()
    """Directories that are empty for them, wherever they are."""
    readable: Sequence[Path] = ()
    """Directories that they can read, even if those are in hidden ones."""
    path: str = ""
    """The PATH that programs are looked for in."""
    unset: Sequence[str] = ()
    """Variables that are kept from them, also where the sandbox itself is given them."""


def bubblewrap_arguments(program: str, view: SandboxView) -> list[str]:
    """Return bubblewrap with all its options, as they come before `--` and the command.

    Later options cover earlier ones: first the whole system, then what is hidden of it, then what is put
    back.
    """
    return [
        program,
        *("--die-with-parent", "--new-session", "--unshare-user-try", "--unshare-pid", "--unshare-ipc"),
        "--unshare-cgroup-try",
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
        *_run(),
        *("--bind", view.temporary, TEMPORARY, "--setenv", "TMPDIR", TEMPORARY),
        *(word for name in (*SOCKETS, *view.unset) for word in ("--unsetenv", name)),
        *_empty(_homes(view.home)),
        *_tools(view),
        *_empty(view.hidden),
        *(word for root in view.roots for word in _writable(root, view)),
        *(word for place in view.readable for word in ("--ro-bind-try", str(place), str(place))),
    ]


def _run() -> Iterator[str]:
    """Hide the sockets of agents and daemons in /run, but keep name resolution working."""
    yield from ("--tmpfs", "/run")
    resolver = Path("/etc/resolv.conf").resolve()
    if resolver.is_relative_to("/run"):
        yield from ("--ro-bind-try", str(resolver), str(resolver))


def _homes(home: Path | None) -> list[Path]:
    """Return the directories of all users' homes."""
    places = [Path("/home"), Path("/root"), *([] if home is None else [home])]
    return [place for place in places if place.resolve() != Path("/")]


def _empty(places: Iterable[Path]) -> Iterator[str]:
    """Make these directories empty; those inside of another one are left out."""
    real = [*dict.fromkeys(place.resolve() for place in places if place.is_dir())]
    for place in real:
        if not any(place != other and place.is_relative_to(other) for other in real):
            yield from ("--tmpfs", str(place))


def _tools(view: SandboxView) -> Iterator[str]:
    home = view.home
    if home is None:
        return
    yield from ("--dir", str(home))
    on_path = (Path(os.path.normpath(each)) for each in view.path.split(os.pathsep))
    inside = [place for place in on_path if place != home and place.is_relative_to(home)]
    for tool in dict.fromkeys((*(home / name for name in TOOLS), *inside)):
        yield from ("--ro-bind-try", str(tool), str(tool))


def _writable(root: str, view: SandboxView) -> Iterator[str]:
    """Mount a directory of the session, without secrets and with git's hooks and config read-only."""
    real = Path(root).resolve()
    # Its own name may go by a link in a home that is empty now.
    for place in dict.fromkeys((str(real), root)):
        yield from ("--bind", str(real), place)
    yield from _git(real)
    for hidden in view.hidden:
        if hidden.resolve().is_relative_to(real):
            yield from _covered(hidden)
    if view.home is not None and view.home.resolve().is_relative_to(real):
        for name in SECRETS:
            yield from _covered(view.home / name)


def _git(root: Path) -> Iterator[str]:
    """Mount the repository, which is elsewhere if this is a worktree, with hooks and config read-only."""
    git = root / ".git"
    if git.is_file() and (main := _main_repository(git)) is not None:
        git = main
        yield from ("--bind", str(git), str(git))
    for name in PROTECTED_GIT_FILES:
        if git.is_dir() and (git / name).exists():
            yield from ("--ro-bind", str(git / name), str(git / name))


def _main_repository(pointer: Path) -> Path | None:
    """Return the repository that a worktree's `.git` names, if it knows the worktree.

    The model can write that file, and name any directory in it, so the repository has to name it in turn.
    """
    try:
        named = pointer.read_text().removeprefix("gitdir:").strip()
        own = (pointer.parent / named).resolve()
        back = Path((own / "gitdir").read_text().strip()).resolve()
    except (OSError, ValueError):
        return None
    is_worktree = own.parent.name == "worktrees" and own.parents[1].name == ".git"
    return own.parents[1] if is_worktree and back == pointer.resolve() else None


def _covered(place: Path) -> Iterator[str]:
    real = place.resolve()
    if real.is_dir():
        yield from ("--tmpfs", str(real))
    elif real.exists():
        yield from ("--ro-bind", "/dev/null", str(real))
