"""Builds the scripts of `run` steps: values arrive as words, whatever is in them.

Each value is assigned to a shell variable before the script begins, and the script has an expansion of that
variable in its place, with the quotes that the place needs. A shell does not read again what an expansion
gives: a wrong guess about the quotes splits words, and never runs anything.

Outside of quotes a list that stands by itself becomes its words; everywhere else its items are joined by
spaces. Mappings are JSON, booleans `true` and `false`. Null and NUL characters are errors. `| raw` puts text
into the script as it is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from coupler.workflow.errors import StepError
from coupler.workflow.expressions.values import Bounds, EvaluationError, ShellText, as_text

if TYPE_CHECKING:
    from coupler.workflow.expressions.expression import Expressions


MARK = "\0"
"""Stands around the number of a value in a script with marks; no script and no value has it."""

ShellName = Literal["sh", "bash"]
"""The shells that can run scripts."""

DELIMITER = re.compile(r"[ \t]*((?:'[^']*'|\"[^\"]*\"|\\.|[^\s;&|<>()'\"\\])*)")
"""The text behind `<<`, and in its group the word that is the last line."""

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

_PARAMETER = re.compile(r"[!#]?(?:[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-])?")
_NUMERIC_TEST = re.compile(r"\s-(?:eq|ne|lt|le|gt|ge|v|R)\s")
_REDIRECTION = re.compile(r"<<<|<>|>>|>\||[<>]&|[<>]")
_BLANK = " \t"
_ENDS = ";&|\n"

_LEADING = frozenset({"if", "then", "elif", "else", "do", "while", "until", "!", "{", "time"})


class ShellValue(NamedTuple):
    """A value that an expression has given."""

    texts: tuple[str, ...]
    is_list: bool
    source: str


class PlacementError(Exception):
    """A value stands in a place where it cannot."""


class ShellScript(NamedTuple):
    """The script that a shell reads from a file; values are in it, so the file is for the user alone."""

    text: bytes


def make_script(
    template: str, names: Mapping[str, object], expressions: Expressions, shell: Literal["sh", "bash"]
) -> ShellScript:
    """Build the script of a `run` step; raises StepError("template")."""
    if MARK in template:
        raise StepError("template", "the script has a NUL character, which no shell can read: take it out")
    values: list[ShellValue] = []

    def written(value: object, bounds: Bounds, source: str) -> str:
        if isinstance(value, ShellText):
            return _without_nul(value)
        words = value if isinstance(value, list | tuple) else (value,)
        texts = tuple(_without_nul(as_text(word, bounds)) for word in words)
        values.append(ShellValue(texts, isinstance(value, list | tuple), source))
        return f"{MARK}{len(values) - 1}{MARK}"

    marked = expressions.render(template, names, written)
    variables = _Variables(template, marked)
    try:
        placed = place_values(marked, values, shell, variables.name_of)
        return ShellScript((variables.preamble() + placed).encode("utf-8", "surrogateescape"))
    except PlacementError as error:
        raise StepError("template", str(error)) from None
    except RecursionError:
        raise StepError("template", "the script is nested too deep: split it into steps") from None
    except UnicodeEncodeError:
        raise StepError("template", "a value has half of a character, which cannot be written") from None


def _without_nul(text: str) -> str:
    if MARK in text:
        raise EvaluationError("it has a NUL character, which no shell can hold: hand it over by `stdin`")
    return text


class _Variables:
    """The names of values in the script: not exported, and not among the script's own."""

    def __init__(self, template: str, script: str) -> None:
        digest = hashlib.sha256(template.encode("utf-8", "surrogatepass")).hexdigest()
        self._prefix = f"coupler_{digest[:8]}_"
        while self._prefix in script:
            self._prefix += "_"
        self._names: dict[str, str] = {}

    def name_of(self, text: str) -> str:
        return self._names.setdefault(text, f"{self._prefix}{len(self._names) + 1}")

    def preamble(self) -> str:
        """Assignments of the values, for the script's first line, so that line numbers stay the same."""
        return "".join(f"{name}={_single_quoted(text)}; " for text, name in self._names.items())


def _single_quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def place_values(
    script: str, values: Sequence[ShellValue], shell: ShellName, name_of: Callable[[str], str]
) -> str:
    """Put expansions in place of a script's marks; `name_of` gives the variable of a text.

    One pass over the script follows quotes, substitutions, here-documents and comments. It knows no grammar
    beyond that: what it puts in place of a value is always the expansion of a variable, which a shell never
    reads as script. The places where a shell, or one that it starts, does read the value again (arithmetic,
    `eval`, `sh -c`) take whole numbers or plain words only.
    """
    scan = _Scan(script, values, shell, name_of)
    scan.commands("")
    return "".join(scan.out)


class WordReading(NamedTuple):
    """A way in which a shell evaluates a word, and the texts that are harmless then."""

    harmless: re.Pattern[str]
    problem: str

    def takes(self, texts: Sequence[str]) -> bool:
        return all(map(self.harmless.fullmatch, texts))


NUMBER = WordReading(
    re.compile(r"-?[0-9]+"), "the shell calculates with it: only whole numbers can stand in this place"
)
SCRIPT = WordReading(
    re.compile(r"[A-Za-z0-9_@%+=:,./-]*"),
    "a shell reads it once more there, as script: hand it over as an argument "
    "(`sh -c 'echo \"$1\"' sh VALUE`) or by `env`",
)
NAME = WordReading(
    re.compile(r"[^\[]*", re.DOTALL), "the shell takes it for a variable with an index: take out its `[`"
)


class MarkedText:
    """A text with marks, the position in it, and what has been written so far."""

    def __init__(self, text: str, values: Sequence[ShellValue], name_of: Callable[[str], str]) -> None:
        self.text = text
        self.values = values
        self.name_of = name_of
        """The variable that holds a text."""
        self.at = 0
        self.out: list[str] = []
        self.open: list[SimpleCommand] = []
        """The commands around the place, the innermost last."""

    def is_value(self) -> bool:
        return self.text.startswith(MARK, self.at)

    def take(self) -> ShellValue:
        """Return the value whose mark stands here."""
        end = self.text.index(MARK, self.at + 1)
        number = int(self.text[self.at + 1 : end])
        self.at = end + 1
        return self.values[number]

    def copy(self, length: int) -> None:
        self.out.append(self.text[self.at : self.at + length])
        self.at += length

    def until(self, end: str) -> bool:
        """Tell whether there is more before the sign; the sign itself is copied."""
        if self.at >= len(self.text):
            return False
        if self.text[self.at] == end:
            self.copy(1)
            return False
        return True

    def check(self, value: ShellValue) -> None:
        """Refuse a value where its command would read it as script."""
        if not self.open:
            return
        command = self.open[-1]
        word = "" if command.word_start is None else self.text[command.word_start : self.at]
        reading = command.reading(word)
        if reading is not None:
            self.check_reading(reading, value)

    def check_reading(self, reading: WordReading, value: ShellValue) -> None:
        if not reading.takes(value.texts):
            raise self.refused(value, reading.problem)

    def refused(self, value: ShellValue, why: str) -> PlacementError:
        return PlacementError(f"`{{{{ {value.source[:80]} }}}}` cannot stand there: {why}")

    def joined(self, value: ShellValue) -> str:
        return f"${{{self.name_of(' '.join(value.texts))}}}"


class _Scan(MarkedText):
    """One pass over a text; each method begins at what it is named after, and ends behind it."""

    def __init__(
        self, text: str, values: Sequence[ShellValue], shell: ShellName, name_of: Callable[[str], str]
    ) -> None:
        super().__init__(text, values, name_of)
        self.shell = shell
        self.documents: list[HereDocument] = []

    # Commands

    def commands(self, end: str) -> None:
        """Commands up to the sign that ends them, or all there are."""
        command = SimpleCommand()
        self.open.append(command)
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in _BLANK or char == end:
                self._end_word(command)
            if char == end and not (command.open_cases and char == ")"):
                self.copy(1)
                break
            if char in _BLANK:
                self.copy(1)
            elif char in _ENDS:
                self._end_command(command, char)
            else:
                self._piece(command, char)
        self._end_word(command)
        self.open.pop()

    def _piece(self, command: SimpleCommand, char: str) -> None:
        """Read a part of a word, or a sign between words."""
        starts = command.word_start is None
        match char:
            case "#" if starts:
                self._comment()
            case "<" | ">":
                self._redirection(command)
            case "(":
                self._parenthesis(command, starts)
            case ")":
                # The end of a pattern of `case`.
                command.word_start = None
                self.copy(1)
                command.words.clear()
            case _:
                if command.word_start is None:
                    command.word_start = self.at
                self._part(command, char)

    def _part(self, command: SimpleCommand, char: str) -> None:
        match char:
            case "'":
                self._single()
            case '"':
                self._double()
            case "\\":
                self._backslash(is_quoted=False)
            case "$":
                self._dollar(is_quoted=False)
            case "`":
                self._backquotes()
            case "\0":
                self._word_value(command)
            case _:
                self.copy(1)

    def _parenthesis(self, command: SimpleCommand, starts: bool) -> None:
        if starts and self.shell == "bash" and self.text.startswith("((", self.at):
            self.copy(2)
            self._arithmetic("))")
        else:
            self.copy(1)
            self.commands(")")

    def _end_word(self, command: SimpleCommand) -> None:
        if command.word_start is None:
            return
        word = self.text[command.word_start : self.at]
        command.word_start = None
        if command.is_target:
            command.is_target = False
        elif word.endswith("()"):
            # The head of a function; its body begins a command.
            command.words.clear()
        elif command.words or not (word in _LEADING or ASSIGNMENT.match(word)):
            self._add_word(command, _unquoted(word))

    def _add_word(self, command: SimpleCommand, word: str) -> None:
        if not command.words and word == "case":
            command.open_cases += 1
        elif not command.words and word == "esac" and command.open_cases:
            command.open_cases -= 1
        elif not command.words and word == "[[" and self.shell == "bash":
            test = self.text[self.at : self.text.find("]]", self.at) % (len(self.text) + 1)]
            command.compares_numbers = _NUMERIC_TEST.search(test) is not None
        command.words.append(word)

    def _end_command(self, command: SimpleCommand, char: str) -> None:
        self._end_word(command)
        self.copy(1)
        if char == "\n":
            self._here_documents()
        # Those of here-documents keep their words.
        command.words = []
        command.is_target = command.compares_numbers = False

    def _comment(self) -> None:
        """Read a comment, up to the end of the line."""
        while self.at < len(self.text) and self.text[self.at] != "\n":
            if self.is_value():
                self.out.append(self.joined(self.take()))
            else:
                self.copy(1)

    def _redirection(self, command: SimpleCommand) -> None:
        self._end_word(command)
        if self.text.startswith("<<", self.at) and not self.text.startswith("<<<", self.at):
            self._here_document_begins(command)
            return
        sign = _REDIRECTION.match(self.text, self.at)
        assert sign is not None
        self.copy(len(sign[0]))
        command.is_target = not self.text.startswith("(", self.at)
        command.is_here_string = sign[0] == "<<<"

    # Quotes

    def _single(self) -> None:
        self.copy(1)
        while self.until("'"):
            if self.is_value():
                value = self.take()
                self.check(value)
                self.out.append(f"'\"{self.joined(value)}\"'")
            else:
                self.copy(1)

    def _ansi(self) -> None:
        """Read `$'…'` of bash."""
        self.copy(2)
        while self.until("'"):
            if self.is_value():
                value = self.take()
                self.check(value)
                self.out.append(f"'\"{self.joined(value)}\"$'")
            elif self.text.startswith("\\" + MARK, self.at):
                self.at += 1
                raise self.refused(self.take(), "a backslash stands before it: take that out")
            else:
                self.copy(2 if self.text[self.at] == "\\" else 1)

    def _double(self) -> None:
        self.copy(1)
        while self.until('"'):
            self._expanded()

    def _expanded(self) -> None:
        """Read a character where expansions are done but words are not split."""
        match self.text[self.at]:
            case "\\":
                self._backslash(is_quoted=True)
            case "$":
                self._dollar(is_quoted=True)
            case "`":
                self._backquotes()
            case "\0":
                value = self.take()
                self.check(value)
                self.out.append(self.joined(value))
            case _:
                self.copy(1)

    def _backslash(self, is_quoted: bool) -> None:
        """Read a backslash; before a value it is dropped outside of quotes, and is text inside of them."""
        if not self.text.startswith(MARK, self.at + 1):
            self.copy(2)
            return
        self.at += 1
        value = self.take()
        self.check(value)
        joined = self.joined(value)
        self.out.append(f"\\\\{joined}" if is_quoted else f'"{joined}"')

    def _backquotes(self) -> None:
        """Read backquotes; a value is refused if backslashes are in there, which mean something else."""
        end = self.at + 1
        while end < len(self.text) and self.text[end] != "`":
            end += 2 if self.text[end] == "\\" else 1
        inside = self.text[self.at + 1 : end]
        if MARK in inside and "\\" in inside:
            self.at = self.text.index(MARK, self.at)
            raise self.refused(self.take(), "it stands in backquotes with backslashes: use `$(…)`")
        self.copy(1)
        self._inner(inside).commands("")
        self.at += len(inside)
        self.copy(1)

    # Substitutions

    def _dollar(self, is_quoted: bool) -> None:
        following = self.text[self.at + 1 : self.at + 3]
        if following.startswith(MARK):
            self.at += 1
            raise self.refused(self.take(), "a `$` stands before it: write `\\$` for the sign itself")
        if following == "((":
            self.copy(3)
            self._arithmetic("))")
        elif following.startswith("("):
            self.copy(2)
            self.commands(")")
        elif following.startswith("{"):
            self.copy(2)
            self._parameter(is_quoted)
        elif following.startswith("[") and self.shell == "bash":
            self.copy(2)
            self._arithmetic("]")
        elif following.startswith("'") and self.shell == "bash" and not is_quoted:
            self._ansi()
        else:
            self.copy(1)

    def _arithmetic(self, end: str) -> None:
        """Read arithmetic, where a value must be a number: names in it may run commands."""
        depth = 0
        while self.at < len(self.text):
            if depth == 0 and self.text.startswith(end, self.at):
                self.copy(len(end))
                return
            char = self.text[self.at]
            depth += (char in "([") - (char in ")]")
            if char == MARK:
                self._number()
            else:
                self._expanded()

    def _number(self) -> None:
        value = self.take()
        self.check_reading(NUMBER, value)
        self.out.append(self.joined(value))

    def _parameter(self, is_quoted: bool) -> None:
        """`${…}`: a name, perhaps an index, and what is done with it."""
        name = _PARAMETER.match(self.text, self.at)
        assert name is not None
        self.copy(len(name[0]))
        if self.text.startswith("[", self.at):
            self.copy(1)
            self._arithmetic("]")
        rest = self.text[self.at : self.at + 2]
        if rest.startswith(MARK):
            raise self.refused(self.take(), "it stands where the name of a variable should be")
        if rest.startswith(":") and rest[1:] not in ("-", "=", "?", "+"):
            self._arithmetic("}")
            return
        is_pattern = rest[:1] in ("#", "%", "/", "^", ",")
        while self.until("}"):
            self._parameter_word(is_quoted and not is_pattern)

    def _parameter_word(self, is_quoted: bool) -> None:
        char = self.text[self.at]
        if char == MARK and not is_quoted:
            value = self.take()
            self.check(value)
            self.out.append(f'"{self.joined(value)}"')
        elif char == "'" and not is_quoted:
            self._single()
        elif char == '"':
            end = self.text.find('"', self.at + 1)
            if is_quoted and MARK in self.text[self.at : end]:
                self.at = self.text.index(MARK, self.at)
                raise self.refused(self.take(), "quotes stand in quotes around it: take the inner ones out")
            self._double()
        elif char == "\\" and self.text.startswith(MARK, self.at + 1):
            self.at += 1
            raise self.refused(self.take(), "a backslash stands before it: take that out")
        else:
            self._expanded()

    # Here-documents

    def _here_document_begins(self, command: SimpleCommand) -> None:
        sign = "<<-" if self.text.startswith("<<-", self.at) else "<<"
        self.copy(len(sign))
        found = DELIMITER.match(self.text, self.at)
        assert found is not None
        if MARK in found[1]:
            self.at = self.text.index(MARK, self.at)
            raise self.refused(self.take(), "it stands where a here-document is given its last line")
        self.copy(len(found[0]))
        is_literal = any(char in found[1] for char in "'\"\\")
        self.documents.append(HereDocument(_unquoted(found[1]), sign == "<<-", is_literal, command))

    def _here_documents(self) -> None:
        documents, self.documents = self.documents, []
        for document in documents:
            start = self.at
            end = document.end_in(self.text, start)
            body = self.text[start:end]
            if MARK in body:
                self._check_document(document, start)
            self._inner(body).here_document(document.is_literal)
            self.at = end

    def _check_document(self, document: HereDocument, start: int) -> None:
        self.at = self.text.index(MARK, start)
        if document.is_literal:
            raise self.refused(
                self.take(),
                "it stands in a here-document that is taken as it is: "
                f"write `<<{document.delimiter[:40]}` without quotes",
            )
        if document.command.runs_its_input():
            for number in re.findall(
                f"{MARK}([0-9]+){MARK}", self.text[start : document.end_in(self.text, start)]
            ):
                self.check_reading(SCRIPT, self.values[int(number)])

    def here_document(self, is_literal: bool) -> None:
        while self.at < len(self.text):
            if is_literal:
                self.copy(len(self.text))
            else:
                self._expanded()

    # Values

    def _word_value(self, command: SimpleCommand) -> None:
        """Read a value outside of quotes: one word, or several for a list that stands alone."""
        start = self.at
        value = self.take()
        self.check(value)
        if value.is_list and self._stands_alone(command, start):
            self.out.append(" ".join(f'"${{{self.name_of(text)}}}"' for text in value.texts))
        else:
            self.out.append(f'"{self.joined(value)}"')

    def _stands_alone(self, command: SimpleCommand, start: int) -> bool:
        before, after = self.text[start - 1 : start] or " ", self.text[self.at : self.at + 1] or " "
        is_word = before in " \t\n;&|(" and after in " \t\n;&|)"
        return is_word and not command.is_target and command.words[:1] not in (["case"], ["[["])

    def _inner(self, text: str) -> _Scan:
        """Return a pass over a part of the text, with the same output."""
        inner = _Scan(text, self.values, self.shell, self.name_of)
        inner.out = self.out
        return inner


def _unquoted(word: str) -> str:
    return re.sub(r"['\"\\]", "", word)


@dataclass
class SimpleCommand:
    """The words of a simple command, as far as they have been read.

    Known is only what a shell itself does, and shells that are started with a script. A program that runs its
    arguments in another way (`ssh`, `xargs`, an interpreter) gets the value as it is.
    """

    words: list[str] = field(default_factory=list)
    word_start: int | None = None
    is_target: bool = False
    """True if the word is the target of a redirection."""
    is_here_string: bool = False
    """True if the word follows `<<<`."""
    compares_numbers: bool = False
    """True inside of `[[ ]]` of bash, after an operator that calculates."""
    open_cases: int = 0

    def reading(self, word: str) -> WordReading | None:
        """Return how the word that begins like this is read, if not just as a word."""
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
        """Tell whether its input is a script."""
        return any(_base(word) in _SHELLS or _base(word) == "ssh" for word in self.words)

    def _ends_before_script(self) -> bool:
        """Tell whether a shell is to run the next word: `sh -c`, also behind `sudo` and the like."""
        if not _SHORT_OPTION_C.fullmatch(self.words[-1]):
            return False
        return any(_base(word) in _SHELLS for word in self.words[:-1])


def _base(word: str) -> str:
    return word.rpartition("/")[2]


def _has_option(words: list[str], letter: str) -> bool:
    return any(word.startswith("-") and letter in word for word in words[1:])


class HereDocument(NamedTuple):
    """A here-document whose text begins at the next line."""

    delimiter: str
    strips_tabs: bool
    is_literal: bool
    command: SimpleCommand

    def end_in(self, text: str, start: int) -> int:
        """Return where its last line ends."""
        while start < len(text):
            end = text.find("\n", start)
            line = text[start:] if end < 0 else text[start:end]
            if (line.lstrip("\t") if self.strips_tabs else line) == self.delimiter:
                return start + len(line)
            start += len(line) + 1
        return len(text)
