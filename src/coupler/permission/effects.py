"""Knows what well-known programs do apart from reading files: write, print variables, end processes, install.

A program that is not known here is taken to read the files that it is given, and to do nothing else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from coupler.permission.action import Budget
from coupler.permission.command_words import Word
from coupler.permission.programs import (
    COMMANDS,
    WHOLE,
    inline_code_at,
    is_interpreter,
    is_starter,
    look_through,
    program_name,
)

TEXT_OPTIONS = frozenset(
    {"-m", "-am", "--message", "--title", "--body", "--notes", "--description", "--subject", "--comment"}
)
"""Options whose values are text for people, and neither files nor commands."""

_READS_NOTHING = frozenset(
    {
        *("echo", "printf", "tr", "expr", "basename", "dirname", "test", "[", "sleep", "seq", "true"),
        *("false", ":", "yes", "pwd", "whoami", "id", "uname", "nproc", "exit", "return", "break"),
        *("continue", "shift"),
    }
)
"""Programs whose words are not taken for paths."""
_WRITES_ONLY = frozenset(
    {
        *("rm", "rmdir", "unlink", "shred", "touch", "mkdir", "mkfifo", "tee", "sponge", "truncate"),
        *("chmod", "chown", "chgrp"),
    }
)
"""Programs that change what their words name, and read nothing of it."""
_DELETES = frozenset({"rm", "rmdir", "unlink", "shred"})
_PUTS_LAST = frozenset({"cp", "gcp", "ln", "install", "rsync", "scp", "mv", "gmv"})
"""Programs whose last operand is what they write, or the directory that they put the others in."""
_CHANGED_BY_GIT = frozenset({"rm", "mv", "restore", "checkout"})
WITH_SCRIPT = frozenset({"sed", "gsed", "git"})
"""Programs of which words that may be files they write may also be something else, such as `/one/d`."""
_OUTPUTS = {
    "curl": ("oDc", ("--output", "--dump-header", "--cookie-jar", "--trace", "--trace-ascii", "--stderr")),
    "wget": ("Ooa", ("--output-document", "--output-file", "--append-output", "--save-cookies")),
    "sort": ("o", ("--output",)),
    "pandoc": ("o", ("--output",)),
    **dict.fromkeys(("gcc", "cc", "g++", "c++", "clang", "clang++", "ld", "rustc"), ("o", ("--output",))),
}
"""Letters and names of options whose values are files that a program writes."""
_DIRECTORIES = {
    "curl": ("", ("--output-dir",)),
    "wget": ("P", ("--directory-prefix",)),
    "tar": ("C", ("--directory",)),
    "bsdtar": ("C", ("--directory",)),
    "unzip": ("d", ()),
}
"""Letters and names of options whose values are directories in which a program writes."""
_SHORTEST_OPTION = 4
"""Fewest characters of a long option that is abbreviated: `--o`, which programs rarely tell apart."""
_CLUSTER = re.compile(r"-[A-Za-z0-9#]+")
_SED_IN_PLACE = re.compile(r"-[a-zA-Z]*i.*|--in-place.*")


class Change(NamedTuple):
    """A word of a command that names what the command writes, deletes or moves."""

    kind: str
    at: int
    """The position of the word."""
    skipped: int = 0
    """Characters of the word in front of the path, as in `of=x`."""
    put_in: tuple[str, ...] = ()
    """Names of the files that are put into it if it is a directory."""


def reads_nothing(name: str) -> bool:
    """True if a program of this name reads no file that its words name."""
    return name in _READS_NOTHING


def takes_messages(name: str) -> bool:
    """True if the values of TEXT_OPTIONS are text for people to a program of this name."""
    return name in {"git", "gh", "glab", "hg", "svn", "jj"}


def writes_only(words: Sequence[Word]) -> bool:
    """True if a command changes what its words name without reading it."""
    return bool(words) and program_name(words[0].text) in _WRITES_ONLY


def hands_on(name: str) -> bool:
    """True if a program may print its words, or pass them on; a test only compares them."""
    return name not in {"test", "["}


def changed_words(words: Sequence[Word]) -> Iterator[Change]:
    """Yield the words that name what a command is known to change."""
    name = program_name(words[0].text) if words else ""
    operands = [at for at, word in enumerate(words) if at and not word.text.startswith("-")]
    if name == "dd":
        yield from (Change("edit", at, skipped=3) for at in operands if words[at].text.startswith("of="))
    elif name in {"sed", "gsed"}:
        is_in_place = any(_SED_IN_PLACE.fullmatch(word.text) for word in words[1:])
        yield from (Change("edit", at) for at in operands if is_in_place)
    elif name in _PUTS_LAST:
        yield from _put(name, words, operands)
    elif name in _WRITES_ONLY:
        yield from (Change("delete" if name in _DELETES else "edit", at) for at in operands)
    elif name == "git" and len(words) > 1 and words[1].text in _CHANGED_BY_GIT:
        yield from (Change("edit", at) for at in operands[1:])
    # What is put into a directory may be called anything: it counts like one that is deleted as a whole.
    for kind, known in (("edit", _OUTPUTS), ("delete", _DIRECTORIES)):
        letters, long = known.get(name, ("", ()))
        yield from (Change(kind, at, skipped) for at, skipped in option_values(words, letters, long))


def option_values(words: Sequence[Word], letters: str, long: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield where options have their values: the position of the word, and the characters before the value.

    Long options may be abbreviated, and short ones may stand behind others: `-so x`, `-sox`.
    """
    for at, word in enumerate(words[1:], 1):
        option, has_value, _ = word.text.partition("=")
        if option.startswith("--"):
            is_meant = len(option) >= _SHORTEST_OPTION and any(each.startswith(option) for each in long)
            skipped = len(option) + 1 if has_value else 0
        else:
            cluster = _CLUSTER.match(word.text)
            found = [place for place, letter in enumerate(cluster[0] if cluster else "") if letter in letters]
            is_meant = bool(found)
            skipped = min(found) + 1 if found and min(found) + 1 < len(word.text) else 0
        if is_meant and skipped:
            yield at, skipped
        elif is_meant and at + 1 < len(words):
            yield at + 1, 0


def _put(name: str, words: Sequence[Word], operands: Sequence[int]) -> Iterator[Change]:
    """Yield what a program like `cp` writes: its last operand, or the directory of `-t`."""
    sources, targets = operands[:-1], [(at, 0) for at in operands[-1:]]
    # To `rsync` and `scp`, `-t` is something else.
    named = () if name in {"rsync", "scp"} else option_values(words, "t", ("--target-directory",))
    for target in named:
        sources, targets = [each for each in operands if each != target[0]], [target]
    put_in = tuple(os.path.basename(words[at].text.rstrip("/")) for at in sources)
    yield from (Change("edit", at, skipped, tuple(filter(None, put_in))) for at, skipped in targets)
    if name in {"mv", "gmv"}:
        yield from (Change("move", at) for at in sources)


_PRIVILEGED = frozenset({"sudo", "doas", "su", "pkexec", "runuser", "run0"})
"""Programs that run others as another user."""
_PRINTS_VARIABLES = frozenset({"printenv", "envsubst"})
_PROCESSES = frozenset(
    {
        *("kill", "killall", "killall5", "pkill", "skill", "xkill", "fuser", "renice", "systemctl"),
        *("service", "launchctl", "initctl", "rc-service", "rc-update", "loginctl", "supervisorctl"),
        *("crontab", "iptables", "ip6tables", "iptables-restore", "nft", "ufw", "firewall-cmd", "pfctl"),
        *("umount", "losetup", "swapon", "swapoff", "modprobe", "insmod", "rmmod", "sysctl", "useradd"),
        *("userdel", "usermod", "groupadd", "groupdel", "passwd", "chpasswd", "chsh", "visudo"),
        *("hostnamectl", "timedatectl", "localectl", "nmcli"),
    }
)
"""Programs that reach other processes, or change the system for all of them."""

_INSTALLING = ("install", "reinstall", "remove", "uninstall", "purge", "autoremove", "update", "upgrade")
_INSTALLERS = {
    **dict.fromkeys(
        ("apt", "apt-get", "aptitude", "dnf", "yum", "zypper", "brew", "port", "snap", "flatpak"),
        frozenset({*_INSTALLING, "dist-upgrade", "full-upgrade", "tap", "link", "unlink", "services"}),
    ),
    **dict.fromkeys(("choco", "winget", "scoop", "luarocks", "opam", "pipx"), frozenset(_INSTALLING)),
    **dict.fromkeys(("gem", "cargo", "go", "deno"), frozenset({"install", "uninstall"})),
    "apk": frozenset({"add", "del", "upgrade", "update", "fix"}),
    "rustup": frozenset({"toolchain", "default", "update", "component", "target", "self", "install"}),
    "corepack": frozenset({"enable", "disable", "install", "prepare"}),
    "yarn": frozenset({"global"}),
    "composer": frozenset({"global"}),
}
"""Subcommands that install programs for more than the project, by program."""
_INSTALLS_ALWAYS = frozenset({"nix-env", "emerge", "cpan", "cpanm", "ghcup", "easy_install", "xbps-install"})
_PACKAGE_LETTERS = {
    "pacman": re.compile(r"-[SRU].*|--sync|--remove|--upgrade"),
    "dpkg": re.compile(r"-[irP]|--install|--remove|--purge|--configure"),
    "rpm": re.compile(r"-[iUFe].*|--install|--upgrade|--erase"),
}
_GLOBAL = frozenset({"-g", "--global", "--location=global"})
_LISTS_OF_NPM = frozenset({"ls", "list", "la", "ll", "root", "bin", "prefix", "outdated", "why"})
_BEYOND_ENVIRONMENT = frozenset({"--user", "--break-system-packages", "--system"})

_ENVIRONMENT_IN_CODE = {
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), re.compile(r"ENVIRON")),
    **dict.fromkeys(("jq", "gojq", "yq"), re.compile(r"\$ENV\b|(?<![\w.\"-])(?:str)?env\b")),
}
MOST_RUNNERS = 4
"""Most programs that start others which are looked through, as in `uv run python -m`."""
_MODULE_OPTION = re.compile(r"-[A-Za-z]*m")
_BSD_LETTERS = re.compile(r"[a-zA-Z]*e[a-zA-Z]*|-[a-zA-Z]*E[a-zA-Z]*")
_VALUED_BY_PS = frozenset(
    {"-C", "-o", "-O", "-p", "-u", "-U", "-g", "-G", "-t", "-s", "-q", "--sort", "--format", "o", "p", "U"}
)


def goes_beyond(words: Sequence[Word], directory: str | None, budget: Budget) -> bool:
    """True if a command does more than a mode means that allows all commands of the project.

    It runs as another user, has code in what it starts, prints the environment, reaches other processes, or
    installs something for more than the project.
    """
    if not words:
        return False
    if inline_code_at(words) is not None and _hides_code(words, budget):
        return True
    started = _started(words)
    name = program_name(started[0].text)
    return (
        name in _PRIVILEGED
        or name in _PROCESSES
        or (name == "mount" and len(started) > 1)
        or (name == "git" and _forces_push(started))
        or _prints_environment(name, started)
        or _installs(name, started, directory)
    )


_FORCING = ("--force", "--delete", "--mirror", "--prune")
_SHORTEST_OPTION = len("--de")


def _forces_push(words: Sequence[Word]) -> bool:
    """True for a `git push` that overwrites or deletes branches elsewhere, however it is written."""
    texts = [word.text for word in words[1:]]
    if "push" not in texts:
        return False
    return any(
        (len(text) >= _SHORTEST_OPTION and any(option.startswith(text) for option in _FORCING))
        or text.startswith(("+", ":", "--force"))
        or (re.fullmatch(r"-[a-z]+", text) is not None and any(letter in text for letter in "fd"))
        for text in texts[texts.index("push") + 1 :]
    )


def _started(words: Sequence[Word]) -> Sequence[Word]:
    """Return the words of the program that `uv run`, `python -m` and the like start, else the same words."""
    for _ in range(MOST_RUNNERS):
        name = program_name(words[0].text)
        start = 1 if name in WHOLE or is_interpreter(words[0]) else 2
        is_runner = start == 1 or (len(words) > 2 and (name, words[1].text) in COMMANDS)
        while is_runner and start < len(words) and words[start].text.startswith("-"):
            start += 1
        if not is_runner or start >= len(words):
            break
        if is_interpreter(words[0]):
            if not _MODULE_OPTION.fullmatch(words[start - 1].text):
                break
            # What tells a virtual environment is where its Python is.
            module = Word(os.path.join(os.path.dirname(words[0].text), words[start].text))
            return (module, *words[start + 1 :])
        words = words[start:]
    return words


def _hides_code(words: Sequence[Word], budget: Budget) -> bool:
    """True if what the command starts has code in its words, or starts others: `uv run python -c …`."""
    for place in range(2, len(words)):
        if not budget.take(words=len(words) - place):
            return True
        if inline_code_at(words[place:]) is not None:
            return True
        if is_starter(program_name(words[place].text)) and _may_be_started(words, place):
            return True
    return False


def _may_be_started(words: Sequence[Word], place: int) -> bool:
    """True if a program's name may stand here: as the third word, or behind an option and its value."""
    return place == 2 or any(word.text.startswith("-") for word in words[place - 2 : place])


def _prints_environment(name: str, words: Sequence[Word]) -> bool:
    if name == "env":
        return not look_through(words).inner
    if name == "set":
        return len(words) == 1
    if name == "ps":
        return any(
            _BSD_LETTERS.fullmatch(word.text) and words[at - 1].text not in _VALUED_BY_PS
            for at, word in enumerate(words)
            if at
        )
    code = _ENVIRONMENT_IN_CODE.get(name)
    return name in _PRINTS_VARIABLES or (
        code is not None and any(code.search(word.text) for word in words[1:])
    )


def _installs(name: str, words: Sequence[Word], directory: str | None) -> bool:
    """True if a command installs or removes something for more than the project."""
    texts = [word.text for word in words[1:]]
    command = next((text for text in texts if not text.startswith("-")), "")
    if re.fullmatch(r"pip[\d.]*", name):
        is_change = command in {"install", "uninstall"}
        return is_change and not (_is_in_environment(words[0].text, directory) and _stays_in_it(texts))
    if name in {"npm", "pnpm", "bun"}:
        is_global = not _GLOBAL.isdisjoint(texts) and command not in _LISTS_OF_NPM
        return is_global or (name != "bun" and command in {"link", "ln"})
    if name == "uv":
        return texts[:1] == ["pip"] and not _stays_in_it(texts)
    if name == "dotnet":
        return texts[:2] in (["tool", "install"], ["tool", "update"]) and not _GLOBAL.isdisjoint(texts)
    letters = _PACKAGE_LETTERS.get(name)
    return (
        name in _INSTALLS_ALWAYS
        or command in _INSTALLERS.get(name, ())
        or (letters is not None and any(letters.fullmatch(text) for text in texts))
    )


def _stays_in_it(texts: Sequence[str]) -> bool:
    return _BEYOND_ENVIRONMENT.isdisjoint(texts)


def _is_in_environment(program: str, directory: str | None) -> bool:
    """True if a program belongs to a virtual environment, by its path or by the process's own variables."""
    if "/" in program:
        home = os.path.dirname(os.path.dirname(os.path.join(directory or os.sep, program)))
        return os.path.isfile(os.path.join(home, "pyvenv.cfg"))
    return bool(os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX"))
