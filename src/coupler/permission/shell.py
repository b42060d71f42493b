"""Command lines: from what a tool would run to the parts that are judged.

With `coupler[shell]` a real parser of the shell's language takes the text apart. Without it only a single
command without anything special can be read; everything else is in doubt, and so never allowed unasked.
"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from coupler.permission.line import Command, Line
from coupler.permission.shell_tree import RESERVED, TreeReader
from coupler.permission.word import Word, certain
from coupler.permission.wrapper import look_through

if TYPE_CHECKING:
    from tree_sitter import Language

LONGEST = 20_000
"""Characters of a text that is judged."""

MOST_SPECIAL = 1000
"""Characters that mean something to the shell: the parser's time may grow by their number's square."""

DEEPEST = 6
"""Commands within commands, such as `sh -c` in `env` in `sudo`."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\u2028\u2029\ud800-\udfff]")
_BEYOND_ASCII = re.compile(rb"[\x80-\xff]")
_SPECIAL = re.compile(r"[|<>(){}\[\]$`&;=!#*]")
_JOINED_LINES = re.compile(r"(?<![ \t])\\\n")
_PLAIN = re.compile(r"""(?:[A-Za-z0-9_@%+=:,./ -]|'[^'\n]*'|"[^"\\$`!\n]*")*""")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")


def read_line(command: str | Sequence[str]) -> Line:
    """The parts of a shell's text, or of the words of a program that is started without a shell."""
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
    elif line.depth > DEEPEST:
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
    """The shell's grammar, if it is installed."""
    try:
        import tree_sitter_bash
        from tree_sitter import Language
    except ImportError:
        return None
    return Language(tree_sitter_bash.language())


def _add_command(line: Line, words: Sequence[Word]) -> None:
    """Note a command, and those that it would start."""
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
    if line.depth > DEEPEST:
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
