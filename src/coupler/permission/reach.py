"""The files that the words of a command name: a mode that allows commands means those in the project.

What a program does with its words is not judged elsewhere: rules allow a command with any words. But a mode
is chosen for all commands at once, so what they reach for is looked at.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator, Sequence

from coupler.permission.floor.place import UNKNOWN
from coupler.permission.floor.scope import Scope
from coupler.permission.inline_code import inline_code_at
from coupler.permission.path import Place, UnjudgeablePathError, locate
from coupler.permission.word import Word
from coupler.permission.wrapper import is_starter, program_name

PRIVILEGED = frozenset({"sudo", "doas", "su", "pkexec", "runuser", "run0"})
"""Programs that make others run as somebody else."""

_TEXTUAL = frozenset({"echo", "printf", "tr", "cut", "expr", "basename", "dirname", "test", "["})
"""Programs to which a path is only text."""
_DEVICES = re.compile(r"/dev/(?:null|zero|full|u?random|std(?:in|out|err)|tty|fd/\d+)")


def named_places(words: Sequence[Word], scope: Scope, directory: str | None) -> tuple[Place, ...]:
    """The files that these words may name, from the directory in which the command runs."""
    if not words or program_name(words[0].text) in _TEXTUAL:
        return ()
    found: list[Place] = []
    for text in dict.fromkeys(text for word in words[1:] for text in _texts(word, scope)):
        path = os.path.join(directory or os.sep, text)
        try:
            found += [locate(path)] if _is_path(text, path) else []
        except UnjudgeablePathError:
            continue  # a word that no file can be called
    return tuple(found)


def hides_code(words: Sequence[Word]) -> bool:
    """Whether something that is started by the way has a program in its words, as in `uv run python -c …`."""
    return any(
        inline_code_at(words[place:]) is not None
        or (is_starter(program_name(words[place].text)) and _may_be_started(words, place))
        for place in range(2, len(words))
    )


def _may_be_started(words: Sequence[Word], place: int) -> bool:
    """Whether a word stands where a program's name may stand: first, or behind options and their values."""
    return place == 2 or any(word.text.startswith("-") for word in words[place - 2 : place])


def _texts(word: Word, scope: Scope) -> Iterator[str]:
    """The parts of a word that may be paths."""
    for reading in (reading for words in scope.readings(word) for reading in words):
        for text in re.split(r"[=:,]", reading.text) if "://" not in reading.text else ():
            plain = os.path.expanduser(text).split(UNKNOWN)[0].split("*")[0]
            if plain and not plain.startswith("-"):
                yield plain


def _is_path(text: str, path: str) -> bool:
    if _DEVICES.fullmatch(text):
        return False
    if os.path.isabs(text):
        # An expression like `/one/d` is none, if nothing of that name is at the root.
        first = text.strip(os.sep).split(os.sep)[0]
        return os.path.lexists(os.sep + first)
    return os.sep in text or "." in text or os.path.lexists(path)
