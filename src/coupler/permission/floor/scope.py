"""What the words of one line may become: its variables, its directories, what its commands print."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from coupler.permission.floor.decoding import decodings, unescaped
from coupler.permission.floor.expansion import DEEPEST, Reading, Values, expanded
from coupler.permission.floor.place import EMPTY, UNKNOWN, Places
from coupler.permission.floor.rough import rough_commands
from coupler.permission.line import Line
from coupler.permission.word import Word
from coupler.permission.wrapper import program_name

MOST_SPELLINGS = 40
"""Ways to read one command that are looked at."""

_NOT_KNOWN = (EMPTY, UNKNOWN)
_PLACE = re.compile(r"%[-0-9.]*[a-zA-Z]")
_PASSING = frozenset({"cat", "head", "tail", "sort", "uniq", "tee"})
_DECODING = frozenset({"base64", "base32", "xxd", "rev", "openssl", "tr", "uudecode"})
_SHORTEST_WITH_WORDS = 4
"""`sh -c text` has three words, and those behind them are what the text is given."""


class Scope:
    """What is known of one line, while it is read from its beginning to its end."""

    def __init__(self, line: Line, places: Places, depth: int = 0) -> None:
        self.places = places
        self.literals: list[str] = [
            word.text for command in line.commands for word in command.words[1:] if word.is_plain
        ]
        """Words that stand in the line: what a script or function in it may be given."""
        self._is_given_words = depth > 0 or _gives_words(line)
        self._variables: dict[str, list[str]] = {
            name: [word.source or _quoted(word.text) for word in words]
            for name, words in line.variables.items()
        }
        self._being_read: set[str] = set()
        self._values = Values(self._variable, self._output)

    def give(self, name: str, source: str) -> None:
        """A variable may also be this, as it is written."""
        self._variables.setdefault(name, []).append(source)

    def sources(self, *, without: frozenset[str] = frozenset()) -> list[str]:
        """All that variables are given, as far as it can be told."""
        return [text for name in self._variables if name not in without for text in self._variable(name)]

    def readings(self, word: Word) -> list[list[Reading]]:
        """What a word may become: alternatives, of which each is a list of words."""
        if word.is_plain:
            return [[Reading(word.text)]]
        if word.source:
            return expanded(word.source, self._values)
        return [[Reading(UNKNOWN)]]

    def texts(self, word: Word) -> list[str]:
        """What a word may become, as texts."""
        return [" ".join(reading.text for reading in words) for words in self.readings(word)]

    def spellings(self, words: Sequence[Word]) -> list[list[Reading]]:
        """What a command may become: the usual way, and each other reading of each word."""
        ways = [self.readings(word) for word in words]
        usual = [way[0] for way in ways]
        found = [usual]
        for place, way in enumerate(ways):
            found += [[*usual[:place], other, *usual[place + 1 :]] for other in way[1:]]
        self._values.is_cut = self._values.is_cut or len(found) > MOST_SPELLINGS
        return [[reading for words in spelling for reading in words] for spelling in found[:MOST_SPELLINGS]]

    @property
    def is_cut(self) -> bool:
        """Whether there were more readings than were looked at."""
        return self._values.is_cut

    def _variable(self, name: str) -> Sequence[str]:
        if name in self._being_read or len(self._being_read) > DEEPEST:
            return _NOT_KNOWN
        plain = re.sub(r"\[.*", "", name)
        given = self._variables.get(name) or self._variables.get(plain)
        if given is not None:
            self._being_read.add(name)
            try:
                found = [
                    _as_value(words)
                    for source in given
                    for words in expanded(_in_array(source), self._values)
                ]
            finally:
                self._being_read.discard(name)
            together = ["".join(found)] if len(found) > 1 else []
            return [*dict.fromkeys([*found, *together])]
        return self._usual(name)

    def _usual(self, name: str) -> Sequence[str]:
        """What a variable is that the line does not set."""
        match name:
            case "HOME":
                return self.places.homes or _NOT_KNOWN
            case "PWD":
                return self.places.directories[::-1] or _NOT_KNOWN
            case "OLDPWD":
                return [*self.places.directories, *_NOT_KNOWN]
            case "IFS":
                return [" "]
            case "#" | "?" | "$" | "-" | "RANDOM" | "UID" | "EUID" | "LINENO" | "SECONDS":
                return ["0"]
            case "@" | "*" | "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9" if not self._is_given_words:
                return [EMPTY, *self.literals, UNKNOWN]
            case "@" | "*" | "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9" | "_":
                return [*self.literals, UNKNOWN]
        known = os.environ.get(name)
        # What this process has, a terminal of the editor may not have.
        return [known] if known else _NOT_KNOWN

    def _output(self, text: str, depth: int) -> Sequence[str]:
        """What a command in `$(…)` may print."""
        stages = rough_commands(text)
        if not stages or depth > DEEPEST:
            return _NOT_KNOWN
        found = self._printed(stages[0].words, depth)
        for stage in stages[1:]:
            name = program_name(stage.words[0]) if stage.words else ""
            if name in _DECODING:
                found = [each for printed in found for each in decodings(printed)]
            elif name not in _PASSING:
                return [*_NOT_KNOWN, *(each for each in found if each)]
        return found

    def _printed(self, sources: Sequence[str], depth: int) -> Sequence[str]:
        words = [
            reading.text
            for source in sources
            for reading in expanded(source, self._values, depth)[0]
        ]  # fmt: skip
        name, operands = (
            program_name(words[0]) if words else "",
            [word for word in words[1:] if not word.startswith("-")],
        )
        match name:
            case "echo":
                return [*dict.fromkeys([" ".join(operands), unescaped(" ".join(operands))])]
            case "printf":
                return [_formatted(operands)]
            case "which" | "command" | "type":
                return operands[-1:] or _NOT_KNOWN
            case "pwd":
                return self._variable("PWD")
            case "mktemp":
                return ["/tmp/tmp.made-by-mktemp"]
            case "git" if "--show-toplevel" in words:
                return self.places.roots or _NOT_KNOWN
            case "dirname":
                return [os.path.dirname(operand.rstrip("/")) or "/" for operand in operands]
            case "realpath" | "readlink":
                return operands
            case "basename":
                return [os.path.basename(operands[0].rstrip("/")) if operands else ""]
        return _NOT_KNOWN


def _gives_words(line: Line) -> bool:
    """Whether something in the line may be given words of its own; otherwise `$1` is empty."""
    if any("function" in doubt for doubt in line.doubts):
        return True
    return any(
        program_name(command.words[0].text) == "set"
        or (len(command.words) >= _SHORTEST_WITH_WORDS and "c" in command.words[1].text)
        for command in line.commands
    )


def _as_value(words: Sequence[Reading]) -> str:
    """The words as a variable has them."""
    return " ".join(reading.text or (EMPTY if reading.is_bare else "") for reading in words)


def _in_array(source: str) -> str:
    return source[1:-1] if source.startswith("(") and source.endswith(")") else source


def _formatted(operands: Sequence[str]) -> str:
    form, *values = operands or [""]
    for value in values:
        before, _, behind = _PLACE.sub(UNKNOWN, form, count=1).partition(UNKNOWN)
        form = before + value + behind
    return unescaped(_PLACE.sub("", form))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
