"""Holds the words, redirections and variables of a parsed command line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple


class Word(NamedTuple):
    """A word that the program will be given, as far as it can be known before the shell runs."""

    text: str
    """The word itself if it is certain, otherwise the best guess."""
    is_certain: bool = True
    is_one: bool = True
    """Whether it stays exactly one word; an unquoted expansion may become none, or many."""
    source: str = ""
    """As it is written in the shell's text, if it is not plain and stands there."""

    @property
    def is_plain(self) -> bool:
        """Whether it is one word that is known exactly."""
        return self.is_certain and self.is_one


ANYTHING = Word("", is_certain=False, is_one=False)
"""Words that are only known when the command runs."""


def certain(*texts: str) -> tuple[Word, ...]:
    """Return words that are known."""
    return tuple(Word(text) for text in texts)


class Command(NamedTuple):
    """One program with its words."""

    words: tuple[Word, ...]
    is_wrapper: bool = False
    """Whether it only starts the command that follows as a part of its own: then that one needs the
    allowance, while a rule may still deny this one."""


class Target(NamedTuple):
    """A file that the shell itself opens, or a directory that it enters."""

    kind: Literal["read", "edit", "enter"]
    word: Word


@dataclass
class Line:
    """The parts of a command line. A line with a doubt is never allowed without asking."""

    commands: list[Command] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    variables: dict[str, list[Word]] = field(default_factory=dict)
    """What the line's own assignments and loops give to variables."""
    fed: list[str] = field(default_factory=list)
    """Here-documents and here-strings, as they are written."""
    moves: int = 0
    """How many parts change the directory, after which relative paths mean something else."""
    has_loop: bool = False
    """Whether some part may run more than once."""
    depth: int = 0
    """How many shells deep the text is that is being read."""

    def doubt(self, reason: str) -> None:
        """Note why the line cannot be judged; once is enough."""
        if reason not in self.doubts:
            self.doubts.append(reason)


_HARMLESS = frozenset(
    {
        "CI",
        "CLICOLOR",
        "COLUMNS",
        "FORCE_COLOR",
        "LANG",
        "LANGUAGE",
        "LINES",
        "NODE_ENV",
        "NO_COLOR",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONUNBUFFERED",
        "PYTHONUTF8",
        "RUST_BACKTRACE",
        "TZ",
    }
)
_LOCALE = re.compile(r"LC_[A-Z]+")
_LOCAL = re.compile(r"[a-z][a-z0-9]*")
_TIED_IN_ZSH = frozenset(
    {"path", "fpath", "cdpath", "manpath", "mailpath", "fignore", "psvar", "watch", "prompt", "argv"}
)


def is_harmless(name: str) -> bool:
    """Whether this variable, given to a command, leaves what the command does as it is.

    Almost any variable of the environment makes some program run something (PATH, LD_PRELOAD,
    GIT_SSH_COMMAND, NODE_OPTIONS …), so the harmless ones are listed, not the harmful ones.
    """
    return name in _HARMLESS or _LOCALE.fullmatch(name) is not None


def is_local(name: str) -> bool:
    """Whether this is a plain name of the script's own, such as a loop's variable, that no program reads."""
    return is_harmless(name) or (_LOCAL.fullmatch(name) is not None and name not in _TIED_IN_ZSH)
