"""Expands the words of a shell's text into all readings that can be known without running it.

This is generous where the rest of the package is strict: it serves to find what a word may be, and never to
allow it. A reading in which something is only known at run time has UNKNOWN there, and beside it stands the
reading in which that is empty.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from coupler.permission.command_words import Line, Word
from coupler.permission.floor.hidden_text import decodings, rough_commands, unescaped
from coupler.permission.floor.places import EMPTY, UNKNOWN, Places
from coupler.permission.programs import program_name
from coupler.permission.shell import UnreadableError, read_ansi_quoted

MOST_READINGS = 24
"""Most readings of one word that are looked at."""
DEEPEST = 6
"""Most levels of expansions within expansions."""
MOST_BRACES = 64
"""Most words that braces make of one."""

SEPARATOR = "\ue001"
"""Stands in a text where the shell splits an unquoted expansion into words."""

_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?!$-]", re.ASCII)
_TILDE = re.compile(r"~([+-]|[A-Za-z_][\w.-]*)?(?=/|$)", re.ASCII)
_BETWEEN = re.compile(r"[\s,;:|]+")
_OPERATION = re.compile(r"(!?)([A-Za-z_]\w*|[0-9@*#?!$-])(\[[^\]]*\])?(.*)", re.ASCII | re.DOTALL)
_SEQUENCE = re.compile(r"(\w)\.\.(\w)")


class Reading(NamedTuple):
    """One text that a word may become."""

    text: str
    is_pattern: bool = False
    """True if the shell replaces its wildcards."""
    is_bare: bool = False
    """True if it holds only if something unknown is empty."""

    @property
    def is_open(self) -> bool:
        """True if its beginning is unknown, so that nobody can say where it leads."""
        return self.text.startswith(UNKNOWN)


class Values:
    """Supplies the values that variables and command substitutions may have."""

    def __init__(
        self, variable: Callable[[str], Sequence[str]], output: Callable[[str, int], Sequence[str]]
    ) -> None:
        self.variable = variable
        """Returns the values that a variable may have; UNKNOWN is one of them if there may be others."""
        self.output = output
        """Returns the texts that a command in `$(…)` may print."""
        self.is_cut = False
        """True if there were more readings than are looked at."""


def expanded(source: str, values: Values, depth: int = 0) -> list[list[Reading]]:
    """Return the alternatives that a word may become, each of which is a list of words."""
    alternatives: list[list[Reading]] = [[]]
    pieces, are_all = braces(source)
    values.is_cut = values.is_cut or not are_all
    for piece in pieces:
        found = _Expansion(piece, values, depth).readings()
        values.is_cut = values.is_cut or len(alternatives) * len(found) > MOST_READINGS
        ways = itertools.islice(itertools.product(alternatives, found), MOST_READINGS)
        alternatives = [[*words, *_words(reading)] for words, reading in ways]
    return alternatives


def _words(reading: Reading) -> list[Reading]:
    pieces = reading.text.split(SEPARATOR)
    if len(pieces) == 1:
        return [reading]
    return [reading._replace(text=piece) for piece in pieces if piece]


class _Expansion:
    """Reads one word without braces from left to right."""

    def __init__(self, source: str, values: Values, depth: int) -> None:
        self._source = source
        self._values = values
        self._depth = depth
        self._texts = [""]
        self._is_pattern = False

    def readings(self) -> list[Reading]:
        """Return every text that the word may become."""
        at = self._tilde()
        while at < len(self._source):
            at = self._step(at)
        return [
            Reading(text.replace(EMPTY, ""), self._is_pattern, EMPTY in text)
            for text in dict.fromkeys(self._texts)
        ]

    def _step(self, at: int) -> int:
        source = self._source
        match source[at]:
            case "\\":
                self._add(source[at + 1 : at + 2].replace("\n", ""))
                return at + 2
            case "'":
                end = _find(source, "'", at + 1)
                self._add(source[at + 1 : end])
                return end + 1
            case '"':
                return self._double_quoted(at + 1)
            case "$" if source.startswith("$'", at):
                return self._ansi(at)
            case "$" if source.startswith('$"', at):
                return self._double_quoted(at + 2)
            case "$" | "`":
                return self._expansion(at, is_quoted=False)
            case character:
                is_wild = character in "*?[" or source[at : at + 2] in {"!(", "@(", "+("}
                self._is_pattern = self._is_pattern or is_wild
                self._add(character)
                return at + 1

    def _tilde(self) -> int:
        match = _TILDE.match(self._source)
        if match is None:
            return 0
        name = {None: "HOME", "+": "PWD", "-": "OLDPWD"}.get(match[1])
        self._fork(
            self._values.variable(name) if name else [os.path.expanduser(match[0]), f"/home/{match[1]}"]
        )
        return match.end()

    def _double_quoted(self, at: int) -> int:
        source = self._source
        while at < len(source) and source[at] != '"':
            if source[at] == "\\":
                following = source[at + 1 : at + 2]
                self._add(following if following in '$`"\\' else f"\\{following}")
                at += 2
            elif source[at] in "$`":
                at = self._expansion(at, is_quoted=True)
            else:
                self._add(source[at])
                at += 1
        return at + 1

    def _ansi(self, at: int) -> int:
        end = at + 2
        while end < len(self._source) and self._source[end] != "'":
            end += 2 if self._source[end] == "\\" else 1
        try:
            self._add(read_ansi_quoted(self._source[at : end + 1]).text)
        except UnreadableError:
            self._add(self._source[at + 2 : end])
        return end + 1

    def _expansion(self, at: int, *, is_quoted: bool) -> int:
        source = self._source
        if source[at] == "`":
            end = _find(source, "`", at + 1)
            found = self._output(source[at + 1 : end].replace("\\`", "`"))
        elif source.startswith("$((", at):
            end = _closing(source, at + 1, "(", ")")
            found = [_calculated(source[at + 3 : end - 1])]
        elif source.startswith("$(", at):
            end = _closing(source, at + 1, "(", ")")
            found = self._output(source[at + 2 : end])
        elif source.startswith("${", at):
            end = _closing(source, at + 1, "{", "}")
            found = self._parameter(source[at + 2 : end])
        elif (match := _NAME.match(source, at + 1)) is not None:
            end = match.end() - 1
            found = self._values.variable(match[0])
        else:
            self._add("$")
            return at + 1
        self._fork(found if is_quoted else [_split(text) for text in found])
        # Also in quotes: what a loop or an assignment has may come from wildcards.
        self._is_pattern = self._is_pattern or any(set("*?[") & {*each} for each in found)
        return end + 1

    def _output(self, text: str) -> Sequence[str]:
        if self._depth >= DEEPEST:
            return [EMPTY, UNKNOWN]
        return [each.rstrip("\n") for each in self._values.output(text, self._depth + 1)]

    def _parameter(self, text: str) -> Sequence[str]:
        """Return the values that `${…}` may have."""
        match = _OPERATION.fullmatch(text)
        if match is None or self._depth >= DEEPEST:
            return [EMPTY, UNKNOWN]
        indirect, name, index, operation = match.groups()
        if name == "#" and operation:
            return ["0", "1"]
        values = self._values.variable(name + index) if index else self._values.variable(name)
        if indirect:
            values = [
                each for value in values if value.isidentifier() for each in self._values.variable(value)
            ]
            values = values or [EMPTY, UNKNOWN]
        return [*dict.fromkeys(self._operated(values, operation))] or [""]

    def _operated(self, values: Sequence[str], operation: str) -> Iterator[str]:
        kind, rest = re.match(r":?[-=+?]|%%?|##?|//?[#%]?|\^\^?|,,?|:|@|$", operation), ""
        sign = kind[0] if kind else operation
        rest = operation[len(sign) :]
        others = self._others(rest) if sign.strip(":") in {"-", "=", "+"} else []
        if sign.strip(":") in {"-", "="}:
            yield from others
        if sign.strip(":") == "+":
            yield from ("", *others)
            return
        for value in values:
            if sign in {":-", ":=", ":?", "?", "-", "="}:
                # What asks for a value stops the line if there is none.
                is_missing = not value.strip(EMPTY) and (":" in sign or sign == "?")
                yield from () if is_missing else (value,)
            else:
                yield from _changed(value, sign, rest)

    def _others(self, source: str) -> list[str]:
        found = expanded(source, self._values, self._depth + 1)
        return [" ".join(reading.text for reading in words) for words in found]

    def _add(self, text: str) -> None:
        self._texts = [before + text for before in self._texts]

    def _fork(self, found: Sequence[str]) -> None:
        found = found or ("",)
        self._values.is_cut = self._values.is_cut or len(self._texts) * len(found) > MOST_READINGS
        ways = itertools.islice(itertools.product(self._texts, found), MOST_READINGS)
        self._texts = [before + text for before, text in ways]


def _changed(value: str, sign: str, rest: str) -> Iterator[str]:
    """Yield a variable's value as an operator of `${…}` changes it: cut, replaced or in another case."""
    if not sign:
        yield value
    elif UNKNOWN in value:
        yield from (EMPTY, UNKNOWN)
    elif sign == ":":
        yield _substring(value, rest)
    elif sign[0] in "%#":
        yield _trimmed(value, sign, rest)
    elif sign[0] == "/":
        old, _, new = rest.partition("/")
        yield value.replace(old.replace("\\", ""), new, -1 if sign.startswith("//") else 1) if old else value
    elif sign[0] in "^,":
        yield value.upper() if sign[0] == "^" else value.lower()
    else:
        yield from (EMPTY, UNKNOWN)


def _substring(value: str, rest: str) -> str:
    start, _, length = rest.partition(":")
    try:
        first = int(start.strip() or 0)
        return value[first:] if not length else value[first:][: int(length)]
    except ValueError:
        return UNKNOWN


def _trimmed(value: str, sign: str, pattern: str) -> str:
    pattern = pattern.strip("\"'").replace("[^", "[!").replace("\\", "")
    cuts = range(len(value) + 1)
    is_longest = len(sign) == 2
    if sign[0] == "%":
        for at in cuts if is_longest else reversed(cuts):
            if fnmatchcase(value[at:], pattern):
                return value[:at]
    else:
        for at in reversed(cuts) if is_longest else cuts:
            if fnmatchcase(value[:at], pattern):
                return value[at:]
    return value


def _calculated(text: str) -> str:
    return text.strip() if text.strip().isdigit() else "0"


def _split(text: str) -> str:
    """Put SEPARATOR where an unquoted expansion may be split: at blanks, and as IFS may be set at `,;:|`."""
    return SEPARATOR.join(_BETWEEN.split(text)) if _BETWEEN.search(text) else text


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
        opened = [*itertools.islice(_opened_braces(word), MOST_BRACES + 1)]
        if len(opened) > MOST_BRACES:
            return [*done, word, *waiting], False
        span = next(((at, end) for at in opened if (end := _closing_brace(word, at)) is not None), None)
        if span is None:
            done.append(word)
            continue
        before, inside, behind = word[: span[0]], word[span[0] + 1 : span[1]], word[span[1] + 1 :]
        waiting = [before + part + behind for part in _parts(inside)] + waiting
    return [*done, *waiting], not waiting


def _opened_braces(word: str) -> Iterator[int]:
    at = 0
    while at < len(word):
        if word[at] == "{":
            yield at
        at = _behind(word, at)


def _closing_brace(word: str, start: int) -> int | None:
    """Return where the braces that open at `start` close; None unless there are several parts in them.

    As in bash, one that closes before anything has separated two parts is a letter like any other.
    """
    sequence = _SEQUENCE.match(word, start + 1)
    if sequence is not None and word.startswith("}", sequence.end()):
        return sequence.end()
    depth, has_parts = 0, False
    at = start + 1
    while at < len(word):
        character = word[at]
        if character == "{":
            depth += 1
        elif character == "}" and depth:
            depth -= 1
        elif character == "}" and has_parts:
            return at
        elif character == "," and not depth:
            has_parts = True
        at = _behind(word, at)
    return None


def _behind(word: str, at: int) -> int:
    """Return the position after the character, quoted piece or expansion that begins at `at`."""
    if word[at] == "\\":
        return at + 2
    if word[at] in "'\"`":
        return _find(word, word[at], at + 1) + 1
    if word.startswith(("${", "$("), at):
        return _closing(word, at + 1, word[at + 1], "}" if word[at + 1] == "{" else ")") + 1
    return at + 1


def _parts(inner: str) -> list[str]:
    sequence = _SEQUENCE.fullmatch(inner)
    if sequence is not None:
        first, last = sorted((ord(sequence[1]), ord(sequence[2])))
        return [chr(number) for number in range(first, last + 1)]
    parts, depth = [""], 0
    at = 0
    while at < len(inner):
        end = _behind(inner, at)
        if inner[at] == "," and not depth:
            parts.append("")
        else:
            parts[-1] += inner[at:end]
        depth = max(depth + {"{": 1, "}": -1}.get(inner[at], 0), 0)
        at = end
    return parts


MOST_SPELLINGS = 40
"""Most readings of one command that are looked at."""

_NOT_KNOWN = (EMPTY, UNKNOWN)
_PLACE = re.compile(r"%[-0-9.]*[a-zA-Z]")
_PASSING = frozenset({"cat", "head", "tail", "sort", "uniq", "tee"})
_DECODING = frozenset({"base64", "base32", "xxd", "rev", "openssl", "tr", "uudecode"})
_SHORTEST_WITH_WORDS = 4
"""Fewest words of a `sh -c text …` that passes arguments to its text."""


class Scope:
    """Expands the words of one line, with its variables, its directories and what its commands print."""

    def __init__(self, line: Line, places: Places, depth: int = 0) -> None:
        self.places = places
        self.literals: list[str] = [
            word.text for command in line.commands for word in command.words[1:] if word.is_plain
        ]
        """Known words of the line, which a script or function in it may be given as `$1`, `$2` and so on."""
        self._is_given_words = depth > 0 or _gives_words(line)
        self._variables: dict[str, list[str]] = {
            name: [word.source or _quoted(word.text) for word in words]
            for name, words in line.variables.items()
        }
        self._being_read: set[str] = set()
        self._values = Values(self._variable, self._output)

    def give(self, name: str, source: str) -> None:
        """Add a value that a variable may have, as it is written in the line."""
        self._variables.setdefault(name, []).append(source)

    def sources(self, *, without: frozenset[str] = frozenset()) -> list[str]:
        """Return the values of the line's own variables, except those in `without`."""
        return [text for name in self._variables if name not in without for text in self._variable(name)]

    def readings(self, word: Word) -> list[list[Reading]]:
        """Return the alternatives that a word may become, each of which is a list of words."""
        if word.is_plain:
            return [[Reading(word.text)]]
        if word.source:
            return expanded(word.source, self._values)
        return [[Reading(UNKNOWN)]]

    def texts(self, word: Word) -> list[str]:
        """Return the texts that a word may become."""
        return [" ".join(reading.text for reading in words) for words in self.readings(word)]

    def spellings(self, words: Sequence[Word]) -> list[list[Reading]]:
        """Return the readings of a command: the usual one, and one for each other reading of each word."""
        ways = [self.readings(word) for word in words]
        usual = [way[0] for way in ways]
        found = [usual]
        for place, way in enumerate(ways):
            found += [[*usual[:place], other, *usual[place + 1 :]] for other in way[1:]]
        self._values.is_cut = self._values.is_cut or len(found) > MOST_SPELLINGS
        return [[reading for words in spelling for reading in words] for spelling in found[:MOST_SPELLINGS]]

    @property
    def is_cut(self) -> bool:
        """True if there were more readings than were looked at."""
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
            case "@" | "*" | "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9" if not self._is_given_words:
                return [EMPTY, *self.literals, UNKNOWN]
            case "@" | "*" | "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9" | "_":
                return [*self.literals, UNKNOWN]
        known = os.environ.get(name)
        # What this process has, a terminal of the editor may not have.
        return [known] if known else _NOT_KNOWN

    def _output(self, text: str, depth: int) -> Sequence[str]:
        """Return the texts that a command in `$(…)` may print."""
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
    """True if a function, `set` or `sh -c` in the line may set `$1`; otherwise `$1` may be empty."""
    if any("function" in doubt for doubt in line.doubts):
        return True
    return any(
        program_name(command.words[0].text) == "set"
        or (len(command.words) >= _SHORTEST_WITH_WORDS and "c" in command.words[1].text)
        for command in line.commands
    )


def _as_value(words: Sequence[Reading]) -> str:
    """Join words to the value of a variable that is given them."""
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
