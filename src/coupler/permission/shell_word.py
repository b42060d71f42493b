"""Reads the words of a shell's syntax tree: what they will be, and which commands run to make them."""

from __future__ import annotations

import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from coupler.permission.line import Line
from coupler.permission.shell_text import (
    UnreadableError,
    read_ansi_quoted,
    read_bare,
    read_in_double_quotes,
    read_single_quoted,
)
from coupler.permission.word import ANYTHING, Word

if TYPE_CHECKING:
    from tree_sitter import Node

DEEPEST = 40
"""Nodes within nodes; nobody writes more by hand, and Python's stack has an end."""

BLANK = re.compile(rb"(?:[ \t\n]|(?<=[ \t\n])\\\n)*")
BLANK_ON_ONE_LINE = re.compile(rb"(?:[ \t]|(?<=[ \t\n])\\\n)*")
NOTHING = re.compile(rb"")

_EMPTY_BRACES = re.compile(r"[\w./=-]*\{\}[\w./=-]*", re.ASCII)
_VARIABLE = re.compile(r"\$(?:[A-Za-z_]\w*|[0-9@*#?!$-])", re.ASCII)
_SIMPLE_EXPANSION = re.compile(r"\$\{[A-Za-z_]\w*(?:(?:%%?|##?|:-|:\+)[\w./*:-]*)?\}", re.ASCII)
_ARITHMETIC = re.compile(r"\$\(\([0-9\s+*/%()-]*\)\)", re.ASCII)


class WordReader(ABC):
    """Reads words; the statements in them are left to who reads statements."""

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
        """A word or a piece of one, with the commands in it noted."""
        self._depth += 1
        try:
            if self._depth > DEEPEST:
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
        """A piece in double quotes: what stands between the expansions is literal."""
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
        """Nothing may stand between the nodes that is not blank to every shell."""
        for before, after in itertools.pairwise(nodes):
            gap = self._source[before.end_byte : after.start_byte]
            # The character before counts too: a backslash at the end of a line only separates after a blank.
            is_blank = blank.fullmatch(self._source, before.end_byte, after.start_byte) is not None
            if not is_blank and gap.strip(b" \t\n") not in may_have:
                self._line.doubt("has text that the parser did not see")

    def _text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode(errors="replace")


def _joined(pieces: Sequence[Word]) -> Word:
    return Word(
        "".join(piece.text for piece in pieces),
        all(piece.is_certain for piece in pieces),
        all(piece.is_one for piece in pieces),
    )


def what_is(kind: str) -> str:
    return f"has {'an' if kind[0] in 'aeiou' else 'a'} {kind.replace('_', ' ')} that cannot be judged"
