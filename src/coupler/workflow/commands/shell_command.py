"""A simple command of a shell script, and whether it reads a word of its own as script or as arithmetic.

Only what a shell itself does is known here, and shells that are started with a script. A program that runs
its arguments in another way (`ssh`, `xargs`, an interpreter) gets the value as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Shell = Literal["sh", "bash"]

ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_SHORT_OPTION_C = re.compile(r"-[A-Za-z]*c[A-Za-z]*")
_PREFIXES = frozenset({"command", "builtin", "exec", "env", "sudo", "nohup"})
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "su", "runuser"})
_NAMING = frozenset(
    {
        "declare",
        "export",
        "getopts",
        "local",
        "mapfile",
        "read",
        "readarray",
        "readonly",
        "typeset",
        "unset",
        "wait",
    }
)
"""Commands of bash that evaluate what stands in brackets after a variable's name."""


class Reading(NamedTuple):
    """What a word is read as beyond being a word, and which texts that leaves harmless."""

    harmless: re.Pattern[str]
    problem: str

    def takes(self, texts: Sequence[str]) -> bool:
        return all(map(self.harmless.fullmatch, texts))


NUMBER = Reading(
    re.compile(r"-?[0-9]+"), "the shell calculates with it: only whole numbers can stand in this place"
)
SCRIPT = Reading(
    re.compile(r"[A-Za-z0-9_@%+=:,./-]*"),
    "a shell reads it once more there, as script: hand it over as an argument "
    "(`sh -c 'echo \"$1\"' sh VALUE`) or by `env`",
)
NAME = Reading(
    re.compile(r"[^\[]*", re.DOTALL), "the shell takes it for a variable with an index: take out its `[`"
)


@dataclass
class Command:
    """The words of a simple command, as far as they have been read."""

    words: list[str] = field(default_factory=list)
    word_start: int | None = None
    is_target: bool = False
    """Whether the word is that of a redirection."""
    is_here_string: bool = False
    """`<<<`"""
    compares_numbers: bool = False
    """Inside of `[[ ]]` of bash, with an operator that calculates."""
    open_cases: int = 0

    def reading(self, word: str) -> Reading | None:
        """How the word that begins like this is read, if not just as a word."""
        if self.is_target:
            return SCRIPT if self.is_here_string and self.runs_its_input() else None
        words = [each for each in self.words if each not in _PREFIXES]
        if not words:
            return None
        if words[0] in ("eval", "trap") or self._ends_before_script():
            return SCRIPT
        is_naming = words[0] in _NAMING
        if words[0] == "let" or self.compares_numbers or (is_naming and _has_option(words, "i")):
            return NUMBER
        if is_naming or (words[0] in ("printf", "test", "[") and _has_option(words, "v")):
            return None if ASSIGNMENT.match(word) else NAME
        return None

    def runs_its_input(self) -> bool:
        """Whether what it gets to read is a script."""
        return any(_base(word) in _SHELLS or _base(word) == "ssh" for word in self.words)

    def _ends_before_script(self) -> bool:
        """Whether a shell is told to run the next word: `sh -c`, also behind `sudo` and the like."""
        if not _SHORT_OPTION_C.fullmatch(self.words[-1]):
            return False
        return any(_base(word) in _SHELLS for word in self.words[:-1])


def _base(word: str) -> str:
    return word.rpartition("/")[2]


def _has_option(words: list[str], letter: str) -> bool:
    return any(word.startswith("-") and letter in word for word in words[1:])
