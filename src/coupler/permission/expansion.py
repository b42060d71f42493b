"""Expands the words of a shell's text into all readings that can be known without running it.

This is generous where the rest of the package is strict: it serves to find what a word may be, and never to
allow it. A reading in which something is only known at run time has UNKNOWN there, and beside it stands the
reading in which that is empty.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from typing import TypeVar

from coupler.permission.action import Budget
from coupler.permission.command_words import Line, Word
from coupler.permission.patterns import glob
from coupler.permission.places import EMPTY, UNKNOWN, Places, Reading
from coupler.permission.programs import program_name
from coupler.permission.shell import UnreadableError, read_ansi_quoted, read_line

MOST_READINGS = 24
"""Most readings of one word that are looked at."""
MOST_SPELLINGS = 40
"""Most readings of one command that are looked at."""
MOST_BRACES = 64
"""Most words that braces make of one."""
DEEPEST = 6
"""Most levels of expansions within expansions."""

_SEPARATOR = "\ue001"
"""Stands in a text where the shell splits an unquoted expansion into words."""
_NOT_KNOWN = (EMPTY, UNKNOWN)
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?!$-]", re.ASCII)
_TILDE = re.compile(r"~([+-]|[A-Za-z_][\w.-]*)?(?=/|$)", re.ASCII)
_BETWEEN = re.compile(r"[\s,;:|]+")
_PARAMETER = re.compile(
    r"([A-Za-z_]\w*|[0-9@*#?!$-])(\[[^\]]*\])?(:?[-=+?]|%%?|##?|$)(.*)", re.ASCII | re.DOTALL
)
_SEQUENCE = re.compile(r"(\w)\.\.(\w)\}")
_First = TypeVar("_First")
_Second = TypeVar("_Second")


class Scope:
    """Expands the words of one line, with its variables, its directories and what its commands print."""

    def __init__(self, line: Line, places: Places, budget: Budget | None = None) -> None:
        self.places = places
        self.is_cut = False
        """True if there were more readings than were looked at."""
        self._budget = budget or Budget()
        self._literals = [word.text for each in line.commands for word in each.words[1:] if word.is_plain]
        self._variables: dict[str, list[str]] = {
            name: [word.source or _quoted(word.text) for word in words]
            for name, words in line.variables.items()
        }
        self._being_read: set[str] = set()

    def give(self, name: str, source: str) -> None:
        """Add a value that a variable may have, as it is written in the line."""
        self._variables.setdefault(name, []).append(source)

    def readings(self, word: Word) -> list[list[Reading]]:
        """Return the alternatives that a word may become, each of which is a list of words."""
        if word.is_plain:
            return [[Reading(word.text)]]
        return self.expanded(word.source) if word.source else [[Reading(UNKNOWN)]]

    def texts(self, word: Word) -> list[str]:
        """Return the texts that a word may become."""
        return [" ".join(reading.text for reading in words) for words in self.readings(word)]

    def spellings(self, words: Sequence[Word]) -> list[list[Reading]]:
        """Return the readings of a command: the first of each word, the last of each, and each other one."""
        ways = [self.readings(word) for word in words]
        usual = [way[0] for way in ways]
        found = [usual]
        for place, way in enumerate(ways):
            found += [[*usual[:place], other, *usual[place + 1 :]] for other in way[1:]]
        self.is_cut = self.is_cut or len(found) > MOST_SPELLINGS
        found[1:1] = [[way[-1] for way in ways]] if len(found) > 1 else []
        return [[reading for words in spelling for reading in words] for spelling in found[:MOST_SPELLINGS]]

    def expanded(self, source: str, depth: int = 0) -> list[list[Reading]]:
        """Return the alternatives that a word may become, as it is written."""
        alternatives: list[list[Reading]] = [[]]
        pieces, are_all = braces(source)
        self.is_cut = self.is_cut or not are_all
        for piece in pieces:
            if not self._budget.take(words=1):
                return [[Reading(UNKNOWN)]]
            found = _Expansion(piece, self, depth).readings()
            alternatives = [[*words, *_split(reading)] for words, reading in self.ways(alternatives, found)]
        return alternatives

    def ways(self, first: Sequence[_First], second: Sequence[_Second]) -> Iterator[tuple[_First, _Second]]:
        """Combine two sequences of alternatives, as far as they are looked at."""
        self.is_cut = self.is_cut or len(first) * len(second) > MOST_READINGS
        return itertools.islice(itertools.product(first, second), MOST_READINGS)

    def variable(self, name: str, depth: int = 0) -> Sequence[str]:
        """Return the values that a variable may have; UNKNOWN is one of them if there may be others."""
        if name in self._being_read or len(self._being_read) + depth > DEEPEST:
            return _NOT_KNOWN
        given = self._variables.get(name) or self._variables.get(name.partition("[")[0])
        if given is None:
            return self._usual(name)
        self._being_read.add(name)
        try:
            found = [_joined(words) for source in given for words in self.expanded(_in_array(source), depth)]
        finally:
            self._being_read.discard(name)
        together = ["".join(found)] if len(found) > 1 else []
        return [*dict.fromkeys([*found, *together])]

    def _usual(self, name: str) -> Sequence[str]:
        """Return the values that a variable may have that the line does not set."""
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
            case _ if name in "@*0123456789_":
                return [*self._literals, *_NOT_KNOWN]
        known = os.environ.get(name)
        # What this process has, a terminal of the editor may not have.
        return [known] if known else _NOT_KNOWN

    def output(self, text: str, depth: int) -> Sequence[str]:
        """Return the texts that a command in `$(…)` may print, for the few of which that can be known."""
        line = read_line(text) if depth <= DEEPEST and self._budget.take(characters=len(text)) else Line()
        if not line.commands or re.search(r"[|;&\n]", text):
            return _NOT_KNOWN
        # Those of substitutions within it come first.
        sources = [word.source or _quoted(word.text) for word in line.commands[-1].words]
        name, *words = [each.text for source in sources for each in self.expanded(source, depth)[0]] or [""]
        operands = [word for word in words if not word.startswith("-")]
        match program_name(name):
            case "echo":
                return [" ".join(operands)]
            case "pwd":
                return self.variable("PWD", depth)
            case "mktemp":
                return ["/tmp/tmp.made-by-mktemp"]
            case "ps" | "pgrep" if lists_every_process(program_name(name), words):
                return ["1"]
            case "git" if "--show-toplevel" in words:
                return self.places.roots or _NOT_KNOWN
            case "dirname":
                return [os.path.dirname(operand.rstrip("/")) or "/" for operand in operands]
            case "which" | "realpath" | "readlink":
                return operands or _NOT_KNOWN
        return _NOT_KNOWN


class _Expansion:
    """Reads one word without braces from left to right."""

    def __init__(self, source: str, scope: Scope, depth: int) -> None:
        self._source = source
        self._scope = scope
        self._depth = depth
        self._texts = [""]
        self._tail: list[str] = []  # what follows them, in all readings
        self._is_pattern = False
        self._is_quoted = False

    def readings(self) -> list[Reading]:
        """Return every text that the word may become."""
        at = self._tilde()
        while at < len(self._source):
            at = self._step(at)
        self._fork(("",))
        return [
            Reading(text.replace(EMPTY, ""), self._is_pattern, EMPTY in text)
            for text in dict.fromkeys(self._texts)
        ]

    def _step(self, at: int) -> int:
        source = self._source
        match source[at]:
            case '"':
                self._is_quoted = not self._is_quoted
            case "$" if source.startswith('$"', at) and not self._is_quoted:
                pass
            case "\\":
                following = source[at + 1 : at + 2]
                is_kept = self._is_quoted and following not in '$`"\\\n'
                self._add(f"\\{following}" if is_kept else following.replace("\n", ""))
                return at + 2
            case "'" if not self._is_quoted:
                end = _find(source, "'", at + 1)
                self._add(source[at + 1 : end])
                return end + 1
            case "$" if source.startswith("$'", at) and not self._is_quoted:
                return self._ansi(at)
            case "$" | "`":
                return self._expansion(at)
            case character:
                is_wild = character in "*?[" or source[at : at + 2] in {"!(", "@(", "+("}
                self._is_pattern = self._is_pattern or (is_wild and not self._is_quoted)
                self._add(character)
        return at + 1

    def _tilde(self) -> int:
        match = _TILDE.match(self._source)
        if match is None:
            return 0
        name = {None: "HOME", "+": "PWD", "-": "OLDPWD"}.get(match[1])
        home = [os.path.expanduser(match[0]), f"/home/{match[1]}"]
        self._fork(self._scope.variable(name, self._depth) if name else home)
        return match.end()

    def _ansi(self, at: int) -> int:
        end = at + 2
        while end < len(self._source) and self._source[end] != "'":
            end += 2 if self._source[end] == "\\" else 1
        try:
            self._add(read_ansi_quoted(self._source[at : end + 1]).text)
        except UnreadableError:
            self._fork(_NOT_KNOWN)
        return end + 1

    def _expansion(self, at: int) -> int:
        source = self._source
        if source[at] == "`":
            end = _find(source, "`", at + 1)
            found = self._output(source[at + 1 : end].replace("\\`", "`"))
        elif source.startswith("$((", at):
            end = _closing(source, at + 1, "(", ")")
            found = ["0"]
        elif source.startswith("$(", at):
            end = _closing(source, at + 1, "(", ")")
            found = self._output(source[at + 2 : end])
        elif source.startswith("${", at):
            end = _closing(source, at + 1, "{", "}")
            found = self._parameter(source[at + 2 : end])
        elif (match := _NAME.match(source, at + 1)) is not None:
            end = match.end() - 1
            found = self._scope.variable(match[0], self._depth)
        else:
            self._add("$")
            return at + 1
        # An unquoted expansion is split at blanks, and as IFS may be set at `,;:|`.
        is_one = self._is_quoted and "[@]" not in source[at:end]
        self._fork(found if is_one else [_BETWEEN.sub(_SEPARATOR, text) for text in found])
        # Also in quotes: what a loop or an assignment has may come from wildcards.
        self._is_pattern = self._is_pattern or any(set("*?[") & {*each} for each in found)
        return end + 1

    def _output(self, text: str) -> Sequence[str]:
        return [each.rstrip("\n") for each in self._scope.output(text, self._depth + 1)]

    def _parameter(self, text: str) -> Sequence[str]:
        """Return the values that `${…}` may have: with a default, or without a beginning or an end."""
        match = _PARAMETER.fullmatch(text)
        if match is None or (match[1] == "#" and match[4]) or self._depth >= DEEPEST:
            return _NOT_KNOWN
        name, index, sign, rest = match.groups()
        values = self._scope.variable(name + (index or ""), self._depth)
        if sign[:1] in {"%", "#"}:
            return [*dict.fromkeys(each for value in values for each in _trimmed(value, sign, rest))]
        if sign.strip(":") == "?":
            # It stops the line if there is no value.
            return [value for value in values if value.strip(EMPTY)] or [UNKNOWN]
        if not sign:
            return values
        others = [_joined(words) for words in self._scope.expanded(rest, self._depth + 1)]
        if sign.strip(":") == "+":
            return ["", *others]
        return [*others, *(value for value in values if value.strip(EMPTY) or ":" not in sign)]

    def _add(self, text: str) -> None:
        self._tail.append(text)

    def _fork(self, found: Sequence[str]) -> None:
        tail = "".join(self._tail)
        self._tail.clear()
        self._texts = [before + tail + text for before, text in self._scope.ways(self._texts, found or ("",))]


def lists_every_process(name: str, words: Sequence[str]) -> bool:
    """True if `ps` or `pgrep` with these words prints every process, and so the first one, which is 1."""
    if name == "pgrep":
        return any(re.fullmatch(r"[.*^$]+", word) for word in words)
    is_bsd = any(re.fullmatch(r"-?\w*(?:a\w*x|x\w*a)\w*", word) for word in words[:1])
    return is_bsd or any(re.fullmatch(r"-\w*[eA]\w*", word) for word in words)


def _trimmed(value: str, sign: str, pattern: str) -> Iterator[str]:
    if UNKNOWN in value or EMPTY in value:
        yield from _NOT_KNOWN
        return
    pattern = pattern.strip("\"'").replace("\\", "")
    cuts = [*range(len(value) + 1)]
    is_end = sign[0] == "%"
    # `%` and `##` try the cuts from the end, `#` and `%%` from the beginning.
    for at in cuts[::-1] if is_end == (len(sign) == 1) else cuts:
        if glob(pattern).match(value[at:] if is_end else value[:at]):
            yield value[:at] if is_end else value[at:]
            return
    yield value


def _split(reading: Reading) -> list[Reading]:
    pieces = reading.text.split(_SEPARATOR)
    return [reading] if len(pieces) == 1 else [reading._replace(text=piece) for piece in pieces if piece]


def _joined(words: Sequence[Reading]) -> str:
    """Join words to the value of a variable that is given them."""
    return " ".join(reading.text or (EMPTY if reading.is_bare else "") for reading in words)


def _in_array(source: str) -> str:
    return source[1:-1] if source.startswith("(") and source.endswith(")") else source


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _find(text: str, character: str, start: int) -> int:
    at = text.find(character, start)
    return at if at >= 0 else len(text)


def _closing(text: str, start: int, opening: str, closing: str) -> int:
    """Return where the bracket closes that opens at `start`; the text's length if it does not."""
    depth = 0
    at = start
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] == "'":
            at = _find(text, "'", at + 1)
        elif text[at] == opening:
            depth += 1
        elif text[at] == closing:
            depth -= 1
            if depth == 0:
                return at
        at += 1
    return len(text)


def braces(source: str) -> tuple[list[str], bool]:
    """Return the words that brace expansion makes of one (`/{bin,usr}` is two), and whether these are all."""
    waiting: list[str] = [source]
    done: list[str] = []
    while waiting and len(waiting) + len(done) < MOST_BRACES:
        word = waiting.pop(0)
        opened = [*itertools.islice((at for at in _positions(word) if word[at] == "{"), MOST_BRACES + 1)]
        if len(opened) > MOST_BRACES:
            return [*done, word, *waiting], False
        groups = ((at, *group) for at in opened if (group := _group(word, at)) is not None)
        if (found := next(groups, None)) is None:
            done.append(word)
        else:
            start, end, parts = found
            waiting = [word[:start] + part + word[end + 1 :] for part in parts] + waiting
    return [*done, *waiting], not waiting


def _group(word: str, start: int) -> tuple[int, list[str]] | None:
    """Return where the braces that open at `start` close, and their parts; None unless there are several.

    As in bash, one that closes before anything has separated two parts is a letter like any other.
    """
    sequence = _SEQUENCE.match(word, start + 1)
    if sequence is not None:
        first, last = sorted((ord(sequence[1]), ord(sequence[2])))
        return sequence.end() - 1, [chr(number) for number in range(first, last + 1)]
    depth, parts, behind = 0, list[str](), start + 1
    for at in _positions(word, start + 1):
        match word[at]:
            case "{":
                depth += 1
            case "}" if depth:
                depth -= 1
            case "}" if parts:
                return at, [*parts, word[behind:at]]
            case "," if not depth:
                parts.append(word[behind:at])
                behind = at + 1
    return None


def _positions(word: str, at: int = 0) -> Iterator[int]:
    """Yield where the characters, quoted pieces and expansions of a word begin."""
    while at < len(word):
        yield at
        if word[at] == "\\":
            at += 2
        elif word[at] in "'\"`":
            at = _find(word, word[at], at + 1) + 1
        elif word.startswith(("${", "$("), at):
            at = _closing(word, at + 1, word[at + 1], "}" if word[at + 1] == "{" else ")") + 1
        else:
            at += 1
