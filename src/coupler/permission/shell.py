"""Parses command lines into the parts that are judged.

With `coupler[shell]` a real parser of the shell's language reads the text. Without it only a single command
without anything special can be read; everything else is in doubt, and so never allowed unasked.
"""

from __future__ import annotations

import functools
import itertools
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from coupler.permission.command_words import (
    ANYTHING,
    Command,
    Line,
    Target,
    Word,
    certain,
)
from coupler.permission.programs import look_through
from coupler.permission.variables import is_harmless, is_local

if TYPE_CHECKING:
    from tree_sitter import Language, Node


LONGEST = 20_000
"""Most characters of a text that is judged."""

MOST_SPECIAL = 1000
"""Most characters with a meaning to the shell: the parser's time may grow by the square of their number."""

DEEPEST_COMMANDS = 6
"""Most commands within commands, such as `sh -c` in `env` in `sudo`."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\u2028\u2029\ud800-\udfff]")
_BEYOND_ASCII = re.compile(rb"[\x80-\xff]")
_SPECIAL = re.compile(r"[|<>(){}\[\]$`&;=!#*]")
_JOINED_LINES = re.compile(r"(?<![ \t])\\\n")
_PLAIN = re.compile(r"""(?:[A-Za-z0-9_@%+=:,./ -]|'[^'\n]*'|"[^"\\$`!\n]*")*""")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")


def read_line(command: str | Sequence[str]) -> Line:
    """Return the parts of a shell's text, or of the words of a program that is started without a shell."""
    line = Line()
    if isinstance(command, str):
        _read_text(line, command)
    elif any(_CONTROL.search(word.replace("\r", "")) for word in command):
        line.doubt("has control characters")
    else:
        _add_command(line, certain(*command))
    if not line.commands and not line.doubts:
        line.doubt("has no command")
    return line


def _read_text(line: Line, text: str) -> None:
    if len(text) > LONGEST or len(_SPECIAL.findall(text)) > MOST_SPECIAL:
        line.doubt("is too long to be judged")
    elif _CONTROL.search(text):
        line.doubt("has control characters")
    elif line.depth > DEEPEST_COMMANDS:
        line.doubt("is nested too deeply")
    elif _JOINED_LINES.search(text):
        # Shells put `$\` and `(` of two lines together to `$(`, which the parser does not.
        line.doubt("has a word that goes on in the next line")
    elif (language := _language()) is not None:
        _read_tree(line, text, language)
    elif _PLAIN.fullmatch(text) and not _ASSIGNMENT.match(text.lstrip()):
        _add_command(line, certain(*shlex.split(text)))
    else:
        line.doubt('cannot be taken apart without a parser: pip install "coupler[shell]"')


def _read_tree(line: Line, text: str, language: Language) -> None:
    from tree_sitter import Parser

    source = text.encode()
    # For letters like 😀 the grammar's code reads beyond its tables, which may end the process. They have no
    # meaning to a shell, so the parser gets something else of the same length that has none.
    tree = Parser(language).parse(_BEYOND_ASCII.sub(b"%", source))
    TreeReader(source, line, functools.partial(_add_command, line)).read(tree.root_node)


@functools.cache
def _language() -> Language | None:
    """Return the shell's grammar, if it is installed."""
    try:
        import tree_sitter_bash
        from tree_sitter import Language
    except ImportError:
        return None
    return Language(tree_sitter_bash.language())


def _add_command(line: Line, words: Sequence[Word]) -> None:
    """Add a command, and those that it would start."""
    words = tuple(words)
    if not words:
        return
    if not words[0].is_plain or not words[0].text:
        line.doubt("has a command that is only known when it runs")
        line.commands.append(Command(words))
        return
    if words[0].text in RESERVED or _ASSIGNMENT.match(words[0].text):
        # After `time`, which is a word of the shell's own, these are no program's name either.
        line.doubt(f"has a {words[0].text[:40]!r} in an unexpected place")
    line.depth += 1
    if line.depth > DEEPEST_COMMANDS:
        line.doubt("is nested too deeply")
        line.commands.append(Command(words))
    else:
        _add_what_it_starts(line, words)
    line.depth -= 1


def _add_what_it_starts(line: Line, words: tuple[Word, ...]) -> None:
    through = look_through(words)
    line.commands.append(Command(words, is_wrapper=through.is_wrapper))
    line.targets += through.targets
    line.moves += through.moves
    if through.doubt is not None:
        line.doubt(through.doubt)
    for inner in through.inner:
        if isinstance(inner, str):
            _read_text(line, inner)
        else:
            _add_command(line, inner)


_SEQUENCES = frozenset(
    {
        "program",
        "list",
        "pipeline",
        "subshell",
        "compound_statement",
        "negated_command",
        "if_statement",
        "elif_clause",
        "else_clause",
        "while_statement",
        "do_group",
    }
)
_TOKENS = frozenset(
    {
        *("&&", "||", "|", "|&", ";", "&", ";;", "(", ")", "{", "}", "!", "if", "then", "elif"),
        *("else", "fi", "while", "until", "do", "done", "for", "in", "case", "esac", "$(", "`", "<(", ">("),
        "\n",
    }
)
RESERVED = frozenset(
    {
        *("!", "{", "}", "if", "then", "elif", "else", "fi", "while", "until", "do", "done"),
        *("for", "in", "case", "esac", "select", "function", "coproc", "[[", "]]", "(("),
    }
)
_HEREDOC_PIECES = frozenset({"<<", "<<-", "heredoc_start", "heredoc_end", "file_descriptor", "\n"})
_WRITES = frozenset({">", ">>", ">|", "&>", "&>>", "<>"})
_BACKGROUND_ELSEWHERE = frozenset({"&>", "&>>"})
_CLOSES = frozenset({">&-", "<&-"})

_CASE_PATTERN = re.compile(r"[\w.*?/\[\]-]+", re.ASCII)
_PLAIN_TEST = re.compile(r"\[ [\w./ =!-]* \]", re.ASCII)


_SEPARATORS = re.compile(r"[;&|\n(){}`]+")
BLANK = re.compile(rb"(?:[ \t\n]|(?<=[ \t\n])\\\n)*")


class WordReader(ABC):
    """Reads the words of a syntax tree, and the commands that run to make them.

    The statements in words are left to the subclass that reads statements.
    """

    def __init__(self, source: bytes, line: Line) -> None:
        self._source = source
        self._line = line
        self._depth = 0

    @abstractmethod
    def _sequence(self, node: Node) -> None:
        """Read the statements of a node."""

    @abstractmethod
    def _search(self, node: Node) -> None:
        """Look for commands in what cannot be judged."""

    def _word(self, node: Node, *, is_first: bool = True, is_quoted: bool = False) -> Word:
        """Return a word or a piece of one, with the commands in it noted."""
        self._depth += 1
        try:
            if self._depth > DEEPEST_NODES:
                raise UnreadableError("is nested too deeply")
            word = self._read_word(node, is_first, is_quoted)
        except UnreadableError as error:
            self._line.doubt(str(error))
            word = ANYTHING
        finally:
            self._depth -= 1
        return word if word.is_plain else word._replace(source=self._text(node))

    def _read_word(self, node: Node, is_first: bool, is_quoted: bool) -> Word:
        text = self._text(node)
        match node.type:
            case "word" | "number" | "variable_name" if not node.children:
                return read_bare(text, is_first=is_first)
            case "raw_string":
                return read_single_quoted(text)
            case "ansi_c_string":
                return read_ansi_quoted(text)
            case "string":
                return self._string(node)
            case "concatenation":
                return self._concatenation(node, is_first)
            case "simple_expansion" | "expansion" | "arithmetic_expansion":
                return self._expansion(node, text, is_quoted)
            case "command_substitution":
                self._substitution(node, is_quoted)
                return Word("", is_certain=False, is_one=is_quoted)
            case "process_substitution":
                self._sequence(node)
                return Word("/dev/fd/63", is_certain=False)
            case "brace_expression":
                return Word(text, is_certain=False, is_one=False)
        self._search(node)
        raise UnreadableError(what_is(node.type))

    def _concatenation(self, node: Node, is_first: bool) -> Word:
        if _EMPTY_BRACES.fullmatch(self._text(node)):
            return Word(self._text(node))
        self._check_gaps(node.children, NOTHING)
        pieces = [
            self._word(child, is_first=is_first and index == 0) for index, child in enumerate(node.children)
        ]
        return _joined(pieces)

    def _string(self, node: Node) -> Word:
        """Read a piece in double quotes: the text between the expansions is literal."""
        text = self._text(node)
        if len(text) < 2 or text[0] != '"' or text[-1] != '"':
            raise UnreadableError("has quotes that do not match")
        pieces: list[Word] = []
        position = node.start_byte + 1
        for child in node.named_children:
            if child.type != "string_content":
                pieces.append(Word(self._literal(position, child.start_byte)))
                pieces.append(self._word(child, is_first=False, is_quoted=True))
                position = child.end_byte
        pieces.append(Word(self._literal(position, node.end_byte - 1)))
        return _joined(pieces)

    def _literal(self, start: int, end: int) -> str:
        return read_in_double_quotes(self._source[start:end].decode())

    def _expansion(self, node: Node, text: str, is_quoted: bool) -> Word:
        is_simple = any(
            shape.fullmatch(text) is not None for shape in (_VARIABLE, _SIMPLE_EXPANSION, _ARITHMETIC)
        )
        if not is_simple:
            self._line.doubt("has an expansion that cannot be judged")
            self._search(node)
        return Word("", is_certain=False, is_one=is_quoted and "@" not in text)

    def _substitution(self, node: Node, is_quoted: bool) -> None:
        text = self._text(node)
        if text.startswith("`") and ("\\" in text or (is_quoted and '"' in text)):
            self._line.doubt("has backquotes within backquotes")
        self._sequence(node)

    def _check_gaps(
        self, nodes: Sequence[Node], blank: re.Pattern[bytes] = BLANK, may_have: tuple[bytes, ...] = ()
    ) -> None:
        """Note a doubt if anything but blanks, or one of the texts in `may_have`, is between the nodes."""
        for before, after in itertools.pairwise(nodes):
            gap = self._source[before.end_byte : after.start_byte]
            # The character before counts too: a backslash at the end of a line only separates after a blank.
            is_blank = blank.fullmatch(self._source, before.end_byte, after.start_byte) is not None
            if not is_blank and gap.strip(b" \t\n") not in may_have:
                self._line.doubt("has text that the parser did not see")

    def _text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode(errors="replace")


class TreeReader(WordReader):
    """Reads the syntax tree of a shell text into a line, part by part.

    The parser is made for editors: it guesses on where a text is wrong, and is sometimes wrong where the text
    is right. So only what is known here counts: a node of any other kind, an error, text between the nodes,
    or a piece that does not read as what it was taken for, is a doubt. The parts that are found are noted
    even then, because one of them may be denied.
    """

    def __init__(self, source: bytes, line: Line, add_command: Callable[[Sequence[Word]], None]) -> None:
        super().__init__(source, line)
        self._add_command = add_command

    def read(self, program: Node) -> None:
        """Read the parts of the whole text."""
        if program.has_error:
            self._line.doubt("is not a shell text that can be parsed")
            self._read_roughly()
        outside = self._source[: program.start_byte] + b"\n" + self._source[program.end_byte :]
        if program.type != "program" or not BLANK.fullmatch(outside):
            self._line.doubt("has text that the parser did not see")
        self._sequence(program)

    def _read_roughly(self) -> None:
        """Add what may be a command in a text that cannot be parsed: it is asked about, but may be denied."""
        for piece in _SEPARATORS.split(self._source.decode(errors="replace")):
            self._add_command(certain(*piece.split()))

    def _sequence(self, node: Node) -> None:
        """Read statements with what separates them; a newline between two of them separates as well."""
        children = node.children
        self._line.has_loop = self._line.has_loop or node.type == "while_statement"
        if node.type == "compound_statement" and (not children or children[0].type != "{"):
            self._line.doubt("has arithmetic")
        self._check_gaps(children)
        is_after_statement = False
        end = node.start_byte
        for child in children:
            if not child.is_named:
                self._check_token(child)
                is_after_statement = False
                continue
            if is_after_statement and b"\n" not in self._source[end : child.start_byte]:
                self._check_clause(child)
            self._statement(child)
            is_after_statement, end = True, child.end_byte

    def _check_clause(self, node: Node) -> None:
        """Note a doubt about a second statement on a line, unless it is a clause or a comment."""
        if node.type not in {"do_group", "elif_clause", "else_clause", "comment"}:
            self._line.doubt("has two commands that nothing separates")

    def _check_token(self, node: Node) -> None:
        text = self._text(node)
        is_misplaced = node.type == ";;" and (node.parent is None or node.parent.type != "case_item")
        if (
            node.is_missing
            or is_misplaced
            or node.type not in _TOKENS
            or text.strip(" \t\n") not in (node.type, "")
        ):
            self._line.doubt(f"has a {text.strip()!r} that cannot be judged")

    def _statement(self, node: Node) -> None:
        self._depth += 1
        if self._depth > DEEPEST_NODES:
            self._line.doubt("is nested too deeply")
        elif node.is_missing:
            self._line.doubt("is not a shell text that can be parsed")
        elif node.type in _SEQUENCES:
            self._sequence(node)
        elif node.type in _STATEMENTS:
            _STATEMENTS[node.type](self, node)
        else:
            self._line.doubt(what_is(node.type))
            self._search(node)
        self._depth -= 1

    def _search(self, node: Node) -> None:
        """Look for commands in what cannot be judged."""
        for child in node.children:
            if child.is_named:
                self._statement(child)

    def _command(self, node: Node, further: Sequence[Word] = ()) -> None:
        """Read one simple command, with assignments before it and redirections anywhere."""
        self._check_gaps(node.children, BLANK_ON_ONE_LINE)
        words: list[Word] = []
        last: Node | None = None
        for child in node.children:
            match child.type:
                case "variable_assignment" if not words:
                    self._assignment(child, is_harmless)
                case "file_redirect" if words:
                    words += self._file_redirect(child)
                case "file_redirect":
                    self._refuse_extra(self._file_redirect(child))
                case "herestring_redirect":
                    self._herestring(child)
                case "command_name":
                    words.append(self._command_name(child))
                    last = child
                case _ if last is not None and last.end_byte == child.start_byte:
                    # The parser takes some braces for a word of their own.
                    words[-1] = self._glued(words[-1], last, child)
                    last = child
                case _:
                    words.append(self._word(child))
                    last = child
        words += further
        if words:
            self._add_command(words)

    def _glued(self, word: Word, before: Node, node: Node) -> Word:
        """Join two words of the parser that nothing separates; the result is only a guess."""
        text = word.source or self._text(before)
        rest = self._word(node)
        return Word(word.text + rest.text, is_certain=False, is_one=False, source=text + self._text(node))

    def _command_name(self, node: Node) -> Word:
        if self._text(node) in RESERVED or node.child_count != 1:
            self._line.doubt(f"has a {self._text(node)!r} in an unexpected place")
        return self._word(node.children[0]) if node.children else ANYTHING

    def _redirected(self, node: Node) -> None:
        """Read a statement with redirections; words behind the first file belong to the command again."""
        further: list[Word] = []
        body: Node | None = None
        self._check_gaps(node.children, BLANK_ON_ONE_LINE)
        for child in node.children:
            match child.type:
                case "file_redirect":
                    further += self._file_redirect(child)
                case "heredoc_redirect":
                    further += self._heredoc(child)
                case "herestring_redirect":
                    self._herestring(child)
                case _ if body is None and child.is_named:
                    body = child
                case _:
                    self._line.doubt("has a redirection that cannot be judged")
                    self._search(child)
        if body is not None and body.type == "command":
            self._command(body, further)
        else:
            self._refuse_extra(further)
            if body is not None:
                self._statement(body)

    def _lonely_redirect(self, node: Node) -> None:
        self._refuse_extra(self._file_redirect(node))

    def _refuse_extra(self, words: Sequence[Word]) -> None:
        if words:
            self._line.doubt("has words after a redirection that belong to no command")
            self._add_command(words)

    def _file_redirect(self, node: Node) -> list[Word]:
        """Note the file that is opened, and return the words that follow it."""
        children = [child for child in node.children if child.type != "file_descriptor"]
        self._check_gaps(children, BLANK_ON_ONE_LINE)
        operator, *nodes = children
        words = [self._word(child) for child in nodes]
        if operator.type in _CLOSES:
            return words
        if not words:
            self._line.doubt("has a redirection that cannot be judged")
            return words
        target, *further = words
        if operator.type in _BACKGROUND_ELSEWHERE and (further or node.parent is None or _is_within(node)):
            self._line.doubt("has a redirection that other shells read as two commands")
        if operator.type in {">&", "<&"} and re.fullmatch(r"[0-9]+-?|-", target.text) and target.is_plain:
            return further
        if operator.type == "<":
            self._line.targets.append(Target("read", target))
        elif operator.type in _WRITES or operator.type == ">&":
            self._line.targets.append(Target("edit", target))
        else:
            self._line.doubt("has a redirection that cannot be judged")
        return further

    def _heredoc(self, node: Node) -> list[Word]:
        reason = doubt_about(self._source, node)
        if reason is not None:
            self._line.doubt(reason)
        further: list[Word] = []
        header = [child for child in node.children if child.type not in {"heredoc_body", "heredoc_end"}]
        self._check_gaps(header, BLANK_ON_ONE_LINE)
        for child in node.children:
            if child.type == "heredoc_body":
                self._line.fed.append(self._text(child))
                for expansion in child.named_children:
                    if expansion.type != "heredoc_content":
                        self._line.expanded.append(self._word(expansion))
            elif child.type == "file_redirect":
                further += self._file_redirect(child)
            elif child.type in _SEQUENCES or child.type in {"command", "redirected_statement"}:
                self._statement(child)
            elif child.is_named and child.type not in _HEREDOC_PIECES:
                further.append(self._word(child))
            elif child.type not in _HEREDOC_PIECES:
                self._check_token(child)
        return further

    def _herestring(self, node: Node) -> None:
        for child in node.children:
            if child.type not in {"<<<", "file_descriptor"}:
                word = self._word(child)
                self._line.fed.append(word.source or word.text)
                self._line.expanded.append(word)

    def _for(self, node: Node) -> None:
        """Read a loop over words; its variable must be one that no program reads."""
        self._line.has_loop = True
        self._check_gaps(node.children)
        words = [child for child in node.children if child.is_named and child.type != "do_group"]
        self._check_gaps(words, BLANK_ON_ONE_LINE, may_have=(b"in",))
        name = ""
        for child in node.children:
            if child.type == "variable_name":
                name = self._text(child)
                if not is_local(name):
                    self._doubt_variable(name)
            elif child.type in {"do_group", "compound_statement"}:
                self._statement(child)
            elif child.is_named:
                self._give(name, self._word(child))
            else:
                self._check_token(child)

    def _case(self, node: Node) -> None:
        self._check_gaps(node.children)
        is_pattern = True
        for child in node.children:
            if not child.is_named:
                self._check_token(child)
                is_pattern = is_pattern and child.type != ")"
            elif child.type == "case_item" or not is_pattern:
                self._statement(child)
            elif child.type == "extglob_pattern":
                if not _CASE_PATTERN.fullmatch(self._text(child)):
                    self._line.doubt("has a pattern that cannot be judged")
                    self._search(child)
            else:
                self._word(child)

    def _assignments(self, node: Node) -> None:
        for child in node.children if node.type == "variable_assignments" else [node]:
            self._assignment(child, is_local)

    def _assignment(self, node: Node, is_permitted: Callable[[str, str | None], bool]) -> None:
        name, *rest = node.children or [node]
        values = [self._word(child) for child in rest if child.is_named] or [Word("")]
        is_plain = len(values) == 1 and values[0].is_plain and all(child.type != "+=" for child in rest)
        if not is_permitted(self._text(name), values[0].text if is_plain else None):
            self._doubt_variable(self._text(name))
        for value in values:
            self._give(self._text(name), value)
        for child in rest:
            if not child.is_named and child.type not in {"=", "+="}:
                self._line.doubt("has an assignment that cannot be judged")
        if name.type != "variable_name":
            self._search(name)

    def _give(self, name: str, word: Word) -> None:
        self._line.variables.setdefault(name, []).append(word)

    def _doubt_variable(self, name: str) -> None:
        self._line.doubt(f"sets {name}, which may change what a command does")

    def _test(self, node: Node) -> None:
        """Read a test: `[ … ]` is a command like any other.

        `[[ … ]]` means different things to different shells.
        """
        text = self._text(node)
        if _PLAIN_TEST.fullmatch(text) and " -v " not in text:
            self._add_command([Word(word) for word in text.split()])
        else:
            self._line.doubt("has a test that cannot be judged")
            self._search(node)

    def _comment(self, node: Node) -> None:
        if self._source[: node.start_byte][-1:] not in (b"", b" ", b"\t", b"\n", b";", b"&"):
            self._line.doubt("has a # that may begin a comment")


def _is_within(redirect: Node) -> bool:
    """True if a redirection is inside of a command, whose words may go on after it."""
    return redirect.parent is not None and redirect.parent.type == "command"


_STATEMENTS: dict[str, Callable[[TreeReader, Node], None]] = {
    "command": TreeReader._command,
    "redirected_statement": TreeReader._redirected,
    "for_statement": TreeReader._for,
    "case_statement": TreeReader._case,
    "case_item": TreeReader._case,
    "variable_assignment": TreeReader._assignments,
    "variable_assignments": TreeReader._assignments,
    "test_command": TreeReader._test,
    "comment": TreeReader._comment,
    "file_redirect": TreeReader._lonely_redirect,
}

DEEPEST_NODES = 40
"""Most nodes within nodes; nobody writes more by hand, and Python's stack has an end."""
BLANK_ON_ONE_LINE = re.compile(rb"(?:[ \t]|(?<=[ \t\n])\\\n)*")
NOTHING = re.compile(rb"")

_EMPTY_BRACES = re.compile(r"[\w./=-]*\{\}[\w./=-]*", re.ASCII)
_VARIABLE = re.compile(r"\$(?:[A-Za-z_]\w*|[0-9@*#?!$-])", re.ASCII)
_SIMPLE_EXPANSION = re.compile(r"\$\{[A-Za-z_]\w*(?:(?:%%?|##?|:-|:\+)[\w./*:-]*)?\}", re.ASCII)
_ARITHMETIC = re.compile(r"\$\(\([0-9\s+*/%()-]*\)\)", re.ASCII)


def _joined(pieces: Sequence[Word]) -> Word:
    return Word(
        "".join(piece.text for piece in pieces),
        all(piece.is_certain for piece in pieces),
        all(piece.is_one for piece in pieces),
    )


def what_is(kind: str) -> str:
    return f"has {'an' if kind[0] in 'aeiou' else 'a'} {kind.replace('_', ' ')} that cannot be judged"


_META = frozenset(" \t\n;&|<>()'\"`$")
_GLOBS = frozenset("*?[")
_KEPT_AFTER_BACKSLASH = frozenset('$`"\\\n')
_EXPANSION_IN_QUOTES = re.compile(r"\$[\w({@*#?!$'\"-]")
_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    '"': '"',
    "?": "?",
}
_CODED = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3}))")
_LARGEST_CHARACTER = 0x10FFFF


class UnreadableError(ValueError):
    """A piece of the text is not what the parser took it for; the message says what the text has."""


def read_bare(text: str, *, is_first: bool) -> Word:
    """Read a piece without quotes; it may have escaped characters, globs and braces.

    Each piece is read strictly, as a second opinion on the parser's: a piece with a character that would have
    ended it is refused, so that a text that the parser has cut wrongly is never allowed.
    """
    if is_first and text.startswith("#"):
        raise UnreadableError("has a # that may begin a comment")
    characters: list[str] = []
    is_open = False
    position = 0
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 1
            if position == len(text):
                raise UnreadableError("ends with a backslash")
            if text[position] != "\n":
                characters.append(text[position])
        elif character in _META:
            raise UnreadableError(f"has a {character!r} in an unexpected place")
        else:
            is_open = is_open or character in _GLOBS or (character in "{}" and text != "{}")
            characters.append(character)
        position += 1
    has_home = is_first and text.startswith("~")
    return Word("".join(characters), is_certain=not is_open and not has_home, is_one=not is_open)


def read_single_quoted(text: str) -> Word:
    """Read a piece in single quotes."""
    if len(text) < 2 or text[0] != "'" or text[-1] != "'" or "'" in text[1:-1]:
        raise UnreadableError("has quotes that do not match")
    return Word(text[1:-1])


def read_in_double_quotes(text: str) -> str:
    """Read text between double quotes, or between them and an expansion."""
    characters: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 1
            if position == len(text):
                raise UnreadableError("ends with a backslash")
            if text[position] not in _KEPT_AFTER_BACKSLASH:
                characters.append("\\")
            if text[position] != "\n":
                characters.append(text[position])
        elif character in '"`' or _EXPANSION_IN_QUOTES.match(text, position):
            raise UnreadableError(f"has a {character!r} in an unexpected place")
        else:
            characters.append(character)
        position += 1
    return "".join(characters)


def read_ansi_quoted(text: str) -> Word:
    """Read a piece like $'git'. Shells disagree on its escapes, so that with any it is only a guess."""
    if not text.startswith("$'") or not text.endswith("'") or len(text) < 3 or "'" in text[2:-1]:
        raise UnreadableError("has quotes that do not match in every shell")
    inner = text[2:-1]
    if "\\" not in inner:
        return Word(inner)
    decoded = _CODED.sub(_decode, inner)
    return Word(re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), decoded), is_certain=False)


def _decode(match: re.Match[str]) -> str:
    *hexadecimal, octal = match.groups()
    number = int(octal, 8) if octal else int(next(filter(None, hexadecimal)), 16)
    return chr(number) if number <= _LARGEST_CHARACTER else ""


_DELIMITER = re.compile(rb"(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\1")
_HARMLESS_DOLLAR = re.compile(rb"\$(?![({\['\"])")

_ESCAPES_IN_BODY = "has a here-document with backquotes or backslashes"
_EXPANSIONS_IN_BODY = "has a here-document with an expansion that cannot be read"
DOUBTS_ABOUT_BODY = frozenset({_ESCAPES_IN_BODY, _EXPANSIONS_IN_BODY})
"""Doubts about the content of a here-document; any other is about where it ends."""


def doubt_about(source: bytes, redirect: Node) -> str | None:
    """Return why this here-document cannot be judged; None if it can.

    The grammar ends `<<-` at an indented delimiter where a shell goes on, and sees no backquotes in a body.
    So its view counts only for documents whose end is beyond doubt.
    """
    pieces = {child.type: child for child in redirect.children}
    start, body, end = (pieces.get(f"heredoc_{name}") for name in ("start", "body", "end"))
    if start is None or body is None or end is None:
        return "has a here-document without an end"
    delimiter = _DELIMITER.fullmatch(source[start.start_byte : start.end_byte])
    if delimiter is None:
        return "has a here-document with an unusual delimiter"
    first = source.find(b"\n", start.end_byte) + 1
    if first == 0 or not _ends_at(source, first, delimiter[2], end.start_byte, "<<-" in pieces):
        return "has a here-document whose end is not certain"
    if delimiter[1]:
        return None
    return _doubt_about_body(source[first : end.start_byte], first, body)


def _ends_at(source: bytes, first: int, delimiter: bytes, end: int, is_indented: bool) -> bool:
    """True if exactly one line looks like the delimiter, equals it, and is where the parser saw the end."""
    found: list[tuple[int, bytes]] = []
    position = first
    for text in source[first:].split(b"\n"):
        if text.strip() == delimiter:
            found.append((position, text))
        position += len(text) + 1
    if len(found) != 1:
        return False
    [(position, text)] = found
    bare = text.lstrip(b"\t") if is_indented else text
    return bare == delimiter and position <= end < position + len(text)


def _doubt_about_body(text: bytes, offset: int, body: Node) -> str | None:
    if b"`" in text or b"\\" in text:
        return _ESCAPES_IN_BODY
    spans = [
        (node.start_byte - offset, node.end_byte - offset)
        for node in body.children
        if node.type == "command_substitution"
    ]
    for match in re.finditer(rb"\$", text):
        position = match.start()
        is_seen = any(start <= position < end for start, end in spans)
        if not is_seen and not _HARMLESS_DOLLAR.match(text, position):
            return _EXPANSIONS_IN_BODY
    return None
