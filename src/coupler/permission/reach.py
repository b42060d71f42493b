"""The files that the words of a command name: a mode that allows commands means those in the project.

What a program does with its words is not judged elsewhere: rules allow a command with any words. But a mode
is chosen for all commands at once, so what they reach for is looked at.
"""

from __future__ import annotations

import glob
import itertools
import os.path
import re
from collections.abc import Iterator, Sequence

from coupler.permission.floor.place import UNKNOWN
from coupler.permission.floor.scope import Scope
from coupler.permission.inline_code import inline_code_at
from coupler.permission.word import Word
from coupler.permission.wrapper import is_starter, program_name
from coupler.runtime.paths import LONGEST, Place, UnjudgeablePathError, locate

PRIVILEGED = frozenset({"sudo", "doas", "su", "pkexec", "runuser", "run0"})
"""Programs that make others run as somebody else."""

_TEXTUAL = frozenset({"echo", "printf", "tr", "cut", "expr", "basename", "dirname", "test", "["})
"""Programs to which a path is only text."""
MOST_FOUND = 2000
"""Files that the wildcards of one word may stand for."""
_DEVICES = re.compile(r"/dev/(?:null|zero|full|u?random|std(?:in|out|err)|tty|fd/\d+)")


def named_places(words: Sequence[Word], scope: Scope, directories: Sequence[str]) -> tuple[Place, ...]:
    """The files that these words may name, from any of the directories in which the command may run."""
    if not words or program_name(words[0].text) in _TEXTUAL:
        return ()
    texts = dict.fromkeys(text for word in words[1:] for text in _texts(word, scope))
    return tuple(
        place
        for directory in directories
        for text in texts
        for path in _paths(text, directory)
        if (place := _place(path)) is not None
    )


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
    """The parts of a word that may be paths, with the wildcards that the shell replaces."""
    for reading in (reading for words in scope.readings(word) for reading in words):
        for text in _parts(reading.text):
            plain = os.path.expanduser(text).split(UNKNOWN)[0]
            yield plain if reading.is_pattern else glob.escape(plain)


def _parts(text: str) -> Iterator[str]:
    """A word as programs may take it apart: `--file=x`, `-ox`, `-d@x`, `host:x`, `file://x`."""
    if "://" in text:
        _, is_file, path = text.partition("file://")
        yield from [path.removeprefix("localhost")] if is_file else ()
        return
    for part in re.split(r"[=:,@]", text):
        if not part.startswith("-"):
            yield part
        elif not part.startswith("--"):
            yield part[2:]


def _paths(pattern: str, directory: str) -> Iterator[str]:
    """The files that a text with wildcards means in a directory; the text itself if it means none."""
    plain = _without_escapes(pattern)
    if not plain:
        return
    if plain != pattern or not glob.has_magic(pattern):
        yield from [path] if _is_path(plain, path := os.path.join(directory, plain)) else ()
        return
    before = plain.split("*")[0]
    whole = os.path.join(glob.escape(directory), pattern.replace("[^", "[!"))
    found = [*itertools.islice(glob.iglob(whole), MOST_FOUND + 1)]
    # Nobody looks at so many: it is as if they were anywhere.
    yield from found if len(found) <= MOST_FOUND else [os.sep]
    if before and _is_path(before, path := os.path.join(directory, before)):
        yield path


def _without_escapes(pattern: str) -> str:
    return re.sub(r"\[([*?[])\]", r"\1", pattern)


def _place(path: str) -> Place | None:
    try:
        return locate(path)
    except UnjudgeablePathError:
        if len(path) > LONGEST or not path.isprintable():
            return None  # a word that no file can be called
        # It means another file to each program, as in `/proc`, and so none of the project's.
        plain = os.path.normpath(path)
        return Place(path, (plain,), (plain,))


def _is_path(text: str, path: str) -> bool:
    if _DEVICES.fullmatch(text):
        return False
    if os.path.isabs(text):
        # An expression like `/one/d` is none, if nothing of that name is at the root.
        first = text.strip(os.sep).split(os.sep)[0]
        return os.path.lexists(os.sep + first)
    return os.sep in text or "." in text or os.path.lexists(path)
