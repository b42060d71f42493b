"""Holds the words, redirections and variables of a parsed command line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple


class Word(NamedTuple):
    """A word that the program will be given, as far as it can be known before the shell runs."""

    text: str
    """The word itself if it is certain, otherwise the best guess."""
    is_certain: bool = True
    is_one: bool = True
    """True if it stays exactly one word; an unquoted expansion may become none, or many."""
    source: str = ""
    """The word as written in the shell's text, if it is not plain and stands there."""
    is_found: bool = False
    """True if `find` puts the path of what it finds in there."""

    @property
    def is_plain(self) -> bool:
        """True if it is exactly one word, and known."""
        return self.is_certain and self.is_one


ANYTHING = Word("", is_certain=False, is_one=False)
"""Stands for any number of words that are only known when the command runs."""


def certain(*texts: str) -> tuple[Word, ...]:
    """Return the texts as words that are known exactly."""
    return tuple(Word(text) for text in texts)


class Command(NamedTuple):
    """One program with its words."""

    words: tuple[Word, ...]
    is_wrapper: bool = False
    """True if it does nothing by itself (`timeout`, `cd`) and needs no allowance; rules can still deny it."""


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
    """Values that assignments and loops in the line give to variables, by name."""
    fed: list[str] = field(default_factory=list)
    """Here-documents and here-strings, as they are written."""
    expanded: list[Word] = field(default_factory=list)
    """Here-strings, and the expansions in here-documents."""
    moves: int = 0
    """Number of commands that change the directory, after which relative paths mean something else."""
    has_loop: bool = False
    """True if a part of the line may run more than once."""
    depth: int = 0
    """Number of commands around the text that is being read, such as `sh -c` in `env` in `sudo`."""

    def doubt(self, reason: str) -> None:
        """Note a reason why the line cannot be judged, unless it is noted already."""
        if reason not in self.doubts:
            self.doubts.append(reason)
