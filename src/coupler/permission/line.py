"""What a command line would do, part by part, and what about it cannot be known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from coupler.permission.word import Word


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
        """Note why this cannot be judged; once is enough."""
        if reason not in self.doubts:
            self.doubts.append(reason)
