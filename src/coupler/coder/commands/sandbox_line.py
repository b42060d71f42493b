"""The options of bubblewrap: what a command in the sandbox sees, and what of it can be written.

Later options cover earlier ones: first the whole system, then what is hidden of it, then what is put back.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

TOOLS = (
    *(".local/bin", ".local/lib", ".local/pipx", ".local/share/uv", ".local/share/pipx", ".local/share/mise"),
    *(".local/share/fnm", ".local/share/pnpm", ".local/share/virtualenvs", ".nvm", ".volta", ".bun"),
    *(".deno", ".pyenv", ".rbenv", ".asdf", ".sdkman", ".jenv", ".rustup", ".nix-profile", ".gem"),
    *(".cargo/bin", ".cargo/registry", ".cargo/git", ".cargo/config.toml", ".cargo/env", "go"),
    *(".m2/repository", ".gradle/wrapper", "miniconda3", "miniforge3", "anaconda3"),
    *(".gitconfig", ".config/git/config", ".config/git/ignore"),
)
"""What is put back into the home, if it is there: programs, what they need, and how git calls the user."""

SECRETS = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".oci", ".config/gcloud", ".config/gh"),
    *(".config/hub", ".config/op", ".config/sops", ".config/rclone", ".password-store", ".vault-token"),
    *(".local/share/keyrings", ".mozilla", ".config/google-chrome", ".config/chromium", ".terraformrc"),
    *(".netrc", ".npmrc", ".yarnrc.yml", ".pypirc", ".git-credentials", ".config/git/credentials"),
    *(".pgpass", ".my.cnf", ".cargo/credentials", ".cargo/credentials.toml", ".m2/settings.xml"),
    *(".gradle/gradle.properties", ".bash_history", ".zsh_history", ".python_history"),
    *(".claude", ".claude.json", ".codex", ".gemini"),
)
"""What is taken out of the home where all of it is a directory of the session."""

SOCKETS = ("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR")
"""Variables that name what is not there."""

RUNS_OUTSIDE = ("hooks", "config")
"""What of a repository git runs or obeys, also for the user, who is in no sandbox: it cannot be changed."""

TEMPORARY = "/tmp"


class View(Struct, frozen=True, kw_only=True):
    """What commands of a session see."""

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
    """Where programs are looked for."""


def sandbox_line(program: str, view: View) -> list[str]:
    """bubblewrap with all its options, as they come before `--` and the command."""
    return [
        program,
        *("--die-with-parent", "--new-session", "--unshare-user-try", "--unshare-pid", "--unshare-ipc"),
        "--unshare-cgroup-try",
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
        *_run(),
        *("--bind", view.temporary, TEMPORARY, "--setenv", "TMPDIR", TEMPORARY),
        *(word for name in SOCKETS for word in ("--unsetenv", name)),
        *_empty(_homes(view.home)),
        *_tools(view),
        *_empty(view.hidden),
        *(word for root in view.roots for word in _writable(root, view)),
        *(word for place in view.readable for word in ("--ro-bind-try", str(place), str(place))),
    ]


def _run() -> Iterator[str]:
    """No sockets of agents and daemons, but names of hosts can be resolved."""
    yield from ("--tmpfs", "/run")
    resolver = Path("/etc/resolv.conf").resolve()
    if resolver.is_relative_to("/run"):
        yield from ("--ro-bind-try", str(resolver), str(resolver))


def _homes(home: Path | None) -> list[Path]:
    """The homes of all users."""
    places = [Path("/home"), Path("/root"), *([] if home is None else [home])]
    return [place for place in places if place.resolve() != Path("/")]


def _empty(places: Iterable[Path]) -> Iterator[str]:
    """Nothing is in these directories; what is in one that is empty already need not be told."""
    real = [*dict.fromkeys(place.resolve() for place in places if place.is_dir())]
    for place in real:
        if not any(place != other and place.is_relative_to(other) for other in real):
            yield from ("--tmpfs", str(place))


def _tools(view: View) -> Iterator[str]:
    home = view.home
    if home is None:
        return
    yield from ("--dir", str(home))
    on_path = (Path(os.path.normpath(each)) for each in view.path.split(os.pathsep))
    inside = [place for place in on_path if place != home and place.is_relative_to(home)]
    for tool in dict.fromkeys((*(home / name for name in TOOLS), *inside)):
        yield from ("--ro-bind-try", str(tool), str(tool))


def _writable(root: str, view: View) -> Iterator[str]:
    """A directory of the session, but for what is secret, or would do something outside of the sandbox."""
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
    """The repository, which is elsewhere if this is a worktree."""
    git = root / ".git"
    if git.is_file() and (main := _main_repository(git)) is not None:
        git = main
        yield from ("--bind", str(git), str(git))
    for name in RUNS_OUTSIDE:
        if git.is_dir() and (git / name).exists():
            yield from ("--ro-bind", str(git / name), str(git / name))


def _main_repository(pointer: Path) -> Path | None:
    """The repository that a worktree's `.git` names, if it knows the worktree.

    The file is the model's to write, and may name anything; what it names is not.
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
