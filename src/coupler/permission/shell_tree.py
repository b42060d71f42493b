"""Reads the syntax tree of a shell text, part by part.

The parser is made for editors: it guesses on where a text is wrong, and is sometimes wrong where the text is
right. So only what is known here counts: a node of any other kind, an error, text between the nodes, or a
piece that does not read as what it was taken for, is a doubt. The parts that are found are noted even then,
because one of them may be denied.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from coupler.permission.line import Line, Target
from coupler.permission.shell_heredoc import doubt_about
from coupler.permission.shell_word import BLANK, BLANK_ON_ONE_LINE, DEEPEST, WordReader, what_is
from coupler.permission.variable import is_harmless, is_local
from coupler.permission.word import ANYTHING, Word

if TYPE_CHECKING:
    from tree_sitter import Node

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


class TreeReader(WordReader):
    """Reads one text into a line."""

    def __init__(self, source: bytes, line: Line, add_command: Callable[[Sequence[Word]], None]) -> None:
        super().__init__(source, line)
        self._add_command = add_command

    def read(self, program: Node) -> None:
        """Note the parts of the whole text."""
        if program.has_error:
            self._line.doubt("is not a shell text that can be parsed")
        outside = self._source[: program.start_byte] + b"\n" + self._source[program.end_byte :]
        if program.type != "program" or not BLANK.fullmatch(outside):
            self._line.doubt("has text that the parser did not see")
        self._sequence(program)

    def _sequence(self, node: Node) -> None:
        """Statements with what separates them; a newline between two of them separates as well."""
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
        """Only a clause that begins with a word of its own, or a comment, may follow on the same line."""
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
        if self._depth > DEEPEST:
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
        """One simple command, with assignments before it and redirections anywhere."""
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
        """One word of what the parser took for two, though nothing stands between them."""
        text = word.source or self._text(before)
        rest = self._word(node)
        return Word(word.text + rest.text, is_certain=False, is_one=False, source=text + self._text(node))

    def _command_name(self, node: Node) -> Word:
        if self._text(node) in RESERVED or node.child_count != 1:
            self._line.doubt(f"has a {self._text(node)!r} in an unexpected place")
        return self._word(node.children[0]) if node.children else ANYTHING

    def _redirected(self, node: Node) -> None:
        """A statement with redirections; words behind the first file belong to the command again."""
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
        """Note the file that is opened; gives the words that follow it."""
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
                        self._word(expansion)
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

    def _for(self, node: Node) -> None:
        """A loop over words; its variable must be one that no program reads."""
        self._line.has_loop = True
        self._check_gaps(node.children)
        words = [child for child in node.children if child.is_named and child.type != "do_group"]
        self._check_gaps(words, BLANK_ON_ONE_LINE, may_have=(b"in",))
        name = ""
        for child in node.children:
            if child.type == "variable_name":
                name = self._text(child)
                self._check_variable(name, is_local)
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

    def _assignment(self, node: Node, is_permitted: Callable[[str], bool]) -> None:
        name, *rest = node.children or [node]
        self._check_variable(self._text(name), is_permitted)
        if not any(child.is_named for child in rest):
            self._give(self._text(name), Word(""))
        for child in rest:
            if child.is_named:
                self._give(self._text(name), self._word(child))
            elif child.type not in {"=", "+="}:
                self._line.doubt("has an assignment that cannot be judged")
        if name.type != "variable_name":
            self._search(name)

    def _give(self, name: str, word: Word) -> None:
        self._line.variables.setdefault(name, []).append(word)

    def _check_variable(self, name: str, is_permitted: Callable[[str], bool]) -> None:
        if not is_permitted(name):
            self._line.doubt(f"sets {name}, which may change what a command does")

    def _test(self, node: Node) -> None:
        """`[ … ]` is a command like any other; `[[ … ]]` means different things to different shells."""
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
    """Whether words of the same command follow a redirection."""
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
