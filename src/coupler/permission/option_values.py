"""Finds options of unknown programs whose values may be commands, or are paths elsewhere.

A rule such as `execute(tool *)` allows any further words, but does not mean those that start another program.
The options of well-known programs are listed in `programs`; of others only the shape of a value can tell.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator, Sequence

from coupler.permission.command_words import Word
from coupler.permission.effects import TEXT_OPTIONS
from coupler.permission.programs import has_known_options, program_name

_INERT = frozenset(
    {
        *("cat", "ls", "head", "tail", "wc", "cut", "tr", "uniq", "diff", "cmp", "comm", "join", "paste"),
        *("fold", "fmt", "column", "nl", "od", "xxd", "hexdump", "rev", "tac", "seq", "stat", "file", "du"),
        *("df", "tee", "touch", "mkdir", "rmdir", "cp", "mv", "rm", "ln", "chmod", "chown", "chgrp"),
        *("truncate", "realpath", "readlink", "basename", "dirname", "pwd", "date", "sleep", "true"),
        *("false", "which", "whoami", "id", "uname", "hostname", "echo", "printf", "test", "[", "expr"),
        *("base64", "md5sum", "sha1sum", "sha256sum", "jq", "gojq", "yq", "gzip", "gunzip", "zcat", "bzip2"),
        *("xz", "zstd", "unzip", "dd", "cd", "ps", "kill", "pkill", "killall"),
    }
)
"""Programs that start no other, whatever they are given."""

_RUNS = frozenset(
    {
        *("shell", "exec", "execute", "command", "cmd", "eval", "linker", "extld", "script", "engine"),
        *("interpreter", "rsh"),
    }
)
"""Last words in the names of options whose values are run."""
_MAY_RUN = frozenset(
    {
        *("program", "prog", "editor", "pager", "compiler", "cc", "cxx", "ld", "tool", "runner", "wrapper"),
        *("launcher", "browser", "hook", "run", "bin", "binary", "executable", "before", "after", "pre"),
        *("post", "c", "e", "x", ""),
    }
)
"""Last words in the names of options whose values are run if they are programs; the empty one is `--`."""
_USUAL_VALUES = frozenset(
    {
        *("test", "install", "time", "date", "sort", "link", "file", "split", "join", "env", "users"),
        *("groups", "size", "host", "clear", "reset", "tree", "free", "last", "more", "less", "head"),
        *("tail", "cut", "paste", "true", "false", "yes", "look", "view", "type", "print", "dir", "write"),
        *("id", "service", "top", "w", "all", "build", "dev", "debug", "release", "local", "ci", "lint"),
        *("check", "format", "docs", "script"),
    }
)
"""Names of programs that are usual values of options as well."""
_CODE = re.compile(r"[();|&$<>`\s]")
_OPERATOR = re.compile(r"[;|&$<>`]")
_PAIR = re.compile(r"[A-Za-z_][\w.-]*=")
_RUN_WITHIN = re.compile(rf"(?:^|[-_,.])(?:{'|'.join(sorted(_RUNS))})=", re.IGNORECASE)
_DIRECTORY_OPTIONS = {"tar": ("-C", "--directory")}
"""Options of known programs that choose the directory in which they write."""


def starting_options(
    words: Sequence[Word], directory: str, is_elsewhere: Callable[[str], bool]
) -> Sequence[int]:
    """Return the positions of options that may start a command in a directory, or name a path elsewhere.

    `is_elsewhere` says of a text if it is a path outside of the session's directories.
    """
    name = program_name(words[0].text) if words else ""
    values = _values(words)
    if name in _DIRECTORY_OPTIONS:
        return [
            at for at, option, value in values if option in _DIRECTORY_OPTIONS[name] and is_elsewhere(value)
        ]
    if name in _INERT or name.endswith("grep") or has_known_options(words[0]):
        return ()
    on_path = functools.cache(_programs_on_path)
    return [
        at
        for at, option, value in values
        if option not in TEXT_OPTIONS
        and (is_elsewhere(value) or _may_start(option, value, directory, on_path))
    ]


def _values(words: Sequence[Word]) -> Iterator[tuple[int, str, str]]:
    """Yield each value that an option may have: the option's position, the option and the value."""
    for at in range(1, len(words)):
        text, before = words[at].text, words[at - 1].text
        if text.startswith("-"):
            option, has_value, value = text.partition("=")
            if has_value:
                yield at, option, value
            if not text.startswith("--") and len(text) > 2:
                yield at, text[:2], text[2:]
        elif at > 1 and before.startswith("-") and "=" not in before:
            yield at - 1, before, text


def _may_start(option: str, value: str, directory: str, on_path: Callable[[], frozenset[str]]) -> bool:
    """True if the value of an option may be a command, or the program that is started."""
    kind = re.split(r"[-_.]", option.lstrip("-"))[-1].lower() if option.lstrip("-") else ""
    if (kind in _RUNS and value) or _RUN_WITHIN.search(value):
        return True
    if option in {"-e", "-E"} and _CODE.search(value) and not _PAIR.match(value):
        return True
    first, *further = value.split() or [""]
    is_usual = first in _USUAL_VALUES and not (further and (kind in _MAY_RUN or _OPERATOR.search(value)))
    is_likely = bool(further) or "/" in first or kind in _MAY_RUN
    return is_likely and not is_usual and _is_program(first, directory, on_path)


def _is_program(name: str, directory: str, on_path: Callable[[], frozenset[str]]) -> bool:
    """True if a program of this name is found on PATH, or a path from a directory is an executable file."""
    if "/" in name:
        path = os.path.join(directory, name)
        return os.path.isfile(path) and os.access(path, os.X_OK)
    return name in on_path()


def _programs_on_path() -> frozenset[str]:
    """Return the names of the programs that are found on PATH."""
    directories = os.environ.get("PATH", "").split(os.pathsep)
    return frozenset().union(*(_names_in(directory) for directory in directories if directory))


def _names_in(directory: str) -> frozenset[str]:
    try:
        return _names_at(directory, os.stat(directory).st_mtime_ns)
    except OSError:
        return frozenset()


@functools.lru_cache(maxsize=64)
def _names_at(directory: str, changed: int) -> frozenset[str]:
    """Return the names in a directory, which is read again when it has changed."""
    return frozenset(os.listdir(directory))
