"""Program that finds files by name, and lines by a regular expression.

A pattern that a model has written can take for ever to match, and Python cannot be interrupted meanwhile: so
this runs in a process that can be ended. It reads what to do from stdin and writes what it found to stdout,
both as JSON. `texts` are files as they are in the editor, whatever the disk has.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

HitTuple = tuple[str, int, str, bool]
"""A file, the number of a line, its text, and whether it fits or only stands near one that does."""

MOST_FILES = 1_000_000
"""Files that are looked at to find the newest."""

LARGEST_GITIGNORE = 1_000_000
"""Most bytes of a .gitignore file that are read."""

MOST_CHOICES = 200
"""Most patterns that braces may stand for."""

LARGEST_FILE = 2_000_000
"""Most bytes of a file that is searched, unless it was named itself."""

LONGEST_LINE = 300
"""Characters of a line that are shown."""

BEFORE = 100
"""Characters that are shown before the match in a long line."""

LONGEST_READ = 1_000_000
"""Most characters of a line that are searched."""

UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks of UTF-16."""

_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_DIRECTORY = _NO_LINK | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_PATH", 0)

SKIPPED = frozenset(
    {".git", ".hg", ".svn", ".jj", "node_modules", ".venv", "venv", "__pycache__", ".mypy_cache"}
    | {".ruff_cache", ".pytest_cache", ".hypothesis", ".tox", ".nox"}
)
"""Directories of caches, installed packages and version control, which are not searched."""


def main() -> None:
    """Carry out the search that stdin describes."""
    task = json.load(sys.stdin)
    found, total = files(task) if task["pattern"] is None else hits(task)
    json.dump([found, total], sys.stdout)


def files(task: dict[str, Any]) -> tuple[list[HitTuple], int]:
    """Return the files with matching names, sorted, and their number; if there are too many, the newest."""
    found = [*islice(_paths(task), MOST_FILES)]
    if len(found) > task["most"]:
        newest = sorted(found, key=lambda path: _time(path, task["texts"]), reverse=True)
        chosen = {*newest[: task["most"]]}
        return [(path, 0, "", True) for path in found if path in chosen], len(found)
    return [(path, 0, "", True) for path in found], len(found)


def hits(task: dict[str, Any]) -> tuple[list[HitTuple], int]:
    """Return the matching lines, no more than are wanted, and how many there are at least."""
    expression = re.compile(task["pattern"], re.IGNORECASE if task["ignore_case"] else 0)
    found: list[HitTuple] = []
    count = 0
    for path in _paths(task):
        for hit in hits_in(path, _lines(path, task), expression, task["context"]):
            count += hit[3]
            if count > task["most"]:
                return found, count
            found.append(hit)
    return found, count


def _paths(task: dict[str, Any]) -> Iterator[str]:
    directory, texts = task["directory"], task["texts"]
    if directory in texts or not os.path.isdir(directory):
        yield directory
        return
    names = compiled(task["glob"])
    unsaved = [path for path in texts if is_seen(path, directory)]
    on_disk = files_below(directory) if task["walks"] else iter(())
    for path in _in_order(on_disk, unsaved):
        below = path[len(directory.rstrip(os.sep)) + 1 :].replace(os.sep, "/")
        # A name that cannot be shown cannot be asked for either.
        if path.isprintable() and (names.fullmatch(below) or names.fullmatch(os.path.basename(path))):
            yield path


def _in_order(on_disk: Iterator[str], unsaved: list[str]) -> Iterator[str]:
    """Yield the files of the disk and those that only the editor has, in one order."""
    left = sorted(unsaved, key=lambda path: path.split(os.sep))
    for path in on_disk:
        place = path.split(os.sep)
        while left and left[0].split(os.sep) < place:
            yield left.pop(0)
        if left and left[0] == path:
            left.pop(0)
        yield path
    yield from left


def _lines(path: str, task: dict[str, Any]) -> Iterator[str]:
    if path in task["texts"]:
        yield from lines_of(task["texts"][path])
    elif path == task["directory"]:
        yield from lines_of_any(path)
    else:
        yield from lines_in(path)


def _time(path: str, texts: dict[str, str]) -> float:
    if path in texts:
        return float("inf")
    try:
        return os.stat(path, follow_symlinks=False).st_mtime
    except OSError:
        return 0.0


def hits_in(path: str, lines: Iterable[str], expression: re.Pattern[str], context: int) -> Iterator[HitTuple]:
    """The lines of a file that fit, and so many around each."""
    before: deque[HitTuple] = deque(maxlen=context)
    left = 0
    for number, line in enumerate(lines, 1):
        fits = expression.search(line)
        if fits is not None:
            yield from before
            before.clear()
            left = context
            yield path, number, shortened(line, fits.start()), True
        elif left > 0:
            left -= 1
            yield path, number, shortened(line, 0), False
        elif context:
            before.append((path, number, shortened(line, 0), False))


def shortened(line: str, place: int) -> str:
    """Return a line, or of a long one the part around a place."""
    line = line.replace("\0", "\ufffd")
    if len(line) <= LONGEST_LINE:
        return line
    start = max(0, min(place - BEFORE, len(line) - LONGEST_LINE))
    end = start + LONGEST_LINE
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


def lines_of(text: str) -> list[str]:
    """The lines of a text, without their ends."""
    lines = text.removeprefix("\ufeff").split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def lines_in(path: str) -> list[str]:
    """The lines of a file; none of one that is too large, no text, or gone."""
    try:
        with open(open_without_links(path), "rb") as file:
            if os.fstat(file.fileno()).st_size > LARGEST_FILE:
                return []
            content = file.read(LARGEST_FILE + 1)
    except OSError:
        return []
    if content[:2] in UTF_16_MARKS:
        return lines_of(content.decode("utf-16", "replace"))
    return [] if b"\0" in content else lines_of(content.decode("utf-8", "replace"))


def lines_of_any(path: str) -> Iterator[str]:
    """The lines of a file that was named itself, text or not; it need not fit in memory, nor its lines."""
    with open(open_without_links(path), "rb") as file:
        is_wide = file.read(2) in UTF_16_MARKS
        file.seek(0)
        encoding = "utf-16" if is_wide else "utf-8-sig"
        text = io.TextIOWrapper(file, encoding, "replace", newline="\n")
        while line := text.readline(LONGEST_READ):
            rest = line
            while not rest.endswith("\n") and (rest := text.readline(LONGEST_READ)):
                pass
            yield line.removesuffix("\n").removesuffix("\r")


def files_below(directory: str) -> Iterator[str]:
    """Return the ordinary files below a directory, in the order of their names.

    What nobody looks for is left out, and a directory that cannot be read has none. Links are not followed,
    so nothing outside of the directory is seen. Names that begin with a dot are seen.
    """
    yield from _files(directory, rules_at(directory))


def is_seen(path: str, directory: str) -> bool:
    """True if `files_below` would find a file, if it were there."""
    reached, rules = directory, rules_at(directory)
    *parents, name = os.path.relpath(path, directory).split(os.sep)
    for parent in parents:
        reached = os.path.join(reached, parent)
        if parent in SKIPPED or (reached, True) in rules:
            return False
        rules = GitignoreRules(reached, rules)
    return (os.path.join(reached, name), False) not in rules


def _files(directory: str, rules: GitignoreRules) -> Iterator[str]:
    try:
        with directory_entries(directory) as entries:
            found = sorted((entry.name, _kind(entry)) for entry in entries)
    except OSError:
        return
    for name, kind in found:
        path = os.path.join(directory, name)
        if kind == "directory":
            if name not in SKIPPED and (path, True) not in rules:
                yield from _files(path, GitignoreRules(path, _above(rules, path)))
        elif kind == "file" and (path, False) not in rules:
            yield path


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if entry.is_file(follow_symlinks=False) else ""


@contextmanager
def directory_entries(directory: str) -> Iterator[Iterator[os.DirEntry[str]]]:
    """Return what is in a directory, reached as by `open_without_links`; an entry knows its name only."""
    if os.scandir not in os.supports_fd:
        with os.scandir(directory) as entries:
            yield entries
        return
    file = open_without_links(directory, getattr(os, "O_DIRECTORY", 0))
    try:
        with os.scandir(file) as entries:
            yield entries
    finally:
        os.close(file)


def open_without_links(path: str, flags: int = 0) -> int:
    """Open a path, whose links are resolved, to be read; raises OSError if a part of it is a link by now.

    Somebody may put one there at any moment, and it could lead out of the session's directories. So each part
    is opened from the one before it. `runtime.files` does the same; this program has to do without it.
    """
    flags |= os.O_RDONLY | _NO_LINK | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    if os.open not in os.supports_dir_fd:
        return os.open(path, flags)
    *parents, name = path.strip(os.sep).split(os.sep)
    reached = os.open(os.sep, _DIRECTORY)
    try:
        for parent in parents:
            outer, reached = reached, os.open(parent, _DIRECTORY, dir_fd=reached)
            os.close(outer)
        return os.open(name or os.sep, flags, dir_fd=reached)
    finally:
        os.close(reached)


def _above(rules: GitignoreRules, directory: str) -> GitignoreRules | None:
    """Return the rules that a directory inherits: none if it is the root of a repository."""
    return None if is_repository(directory) else rules


class GitignoreRules:
    """The .gitignore rules of one directory, as git reads them: its own, then those of directories above."""

    def __init__(self, directory: str, above: GitignoreRules | None) -> None:
        self._start = len(directory.rstrip("/")) + 1
        self._above = above
        self._patterns = _read(os.path.join(directory, ".gitignore"))
        texts = (f"(?:{pattern.expression.pattern})" for pattern in self._patterns)
        self._any = re.compile("|".join(texts), re.DOTALL) if self._patterns else None

    def __contains__(self, entry: tuple[str, bool]) -> bool:
        """True if the rules leave out a path; `entry` also says whether it is a directory's."""
        rules: GitignoreRules | None = self
        while rules is not None:
            verdict = rules._verdict(*entry)
            if verdict is not None:
                return verdict
            rules = rules._above
        return False

    def _verdict(self, path: str, is_directory: bool) -> bool | None:
        below = path[self._start :]
        if self._any is None or not self._any.fullmatch(below):
            return None
        for pattern in reversed(self._patterns):
            if (is_directory or not pattern.is_for_directories) and pattern.expression.fullmatch(below):
                return not pattern.is_against
        return None


class _Pattern(NamedTuple):
    expression: re.Pattern[str]
    is_against: bool
    """True if it includes again what patterns before it have left out."""
    is_for_directories: bool


def rules_at(directory: str) -> GitignoreRules:
    """The rules for a directory's entries, with those from above it, up to the root of its repository."""
    above = os.path.dirname(directory)
    is_last = is_repository(directory) or above == directory
    return GitignoreRules(directory, None if is_last else rules_at(above))


def is_repository(directory: str) -> bool:
    """True if a directory is the root of a repository."""
    return os.path.lexists(os.path.join(directory, ".git"))


def is_in_repository(path: str) -> bool:
    """True if a directory, or one above it, is such a root."""
    above = os.path.dirname(path)
    return is_repository(path) or (above != path and is_in_repository(above))


def _read(path: str) -> list[_Pattern]:
    try:
        with open(path, "rb") as file:
            text = file.read(LARGEST_GITIGNORE).decode("utf-8-sig", "replace")
    except OSError:
        return []
    return [pattern for line in text.split("\n") if (pattern := _parsed(line.removesuffix("\r")))]


def _parsed(line: str) -> _Pattern | None:
    line = re.sub(r"(?<!\\) +$", "", line)
    if not line or line.startswith("#"):
        return None
    is_against = line.startswith("!")
    line = line.removeprefix("!")
    is_for_directories = line.endswith("/")
    line = line.removesuffix("/")
    if not line:
        return None
    # With a slash inside, it is a path from here on; without one, a name anywhere below.
    text = regex(line.removeprefix("/")) if "/" in line else f"(?:.*/)?{regex(line)}"
    try:
        return _Pattern(re.compile(text, re.DOTALL), is_against, is_for_directories)
    except re.error:
        return None


_PARTS = re.compile(
    r"""(?P<deep>(?:(?<=/)|^)\*\*/) | (?P<rest>(?:(?<=/)|^)\*\*$) | (?P<any>\*+) | (?P<one>\?)
      | \[(?P<not>[!^]?)(?P<set>\][^\]/]*|[^\]/]+)\] | \\(?P<escaped>.) | (?P<plain>.)""",
    re.DOTALL | re.VERBOSE,
)
_BRACES = re.compile(r"(\\.|\[[^\]/]*\])|\{([^{}]*)\}", re.DOTALL)


def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of file names, as people and models write them, with names separated by `/`.

    `*` and `?` stay in one directory, `**` does not, `[a-z]` is one of several characters, and `{a,b}` one of
    several texts; .gitignore files have no braces. Raises ValueError if it stands for too much.
    """
    return re.compile("|".join(f"(?:{regex(each)})" for each in expanded(pattern)), re.DOTALL)


def expanded(pattern: str) -> list[str]:
    """The patterns that one with braces stands for."""
    found = [pattern]
    while True:
        more = [each for one in found for each in _choices(one)]
        if len(more) > MOST_CHOICES:
            raise ValueError(f"the glob stands for more than {MOST_CHOICES} patterns: use a simpler one")
        if more == found:
            return found
        found = more


def regex(pattern: str) -> str:
    """One pattern without braces as the text of a regular expression that never backtracks far.

    What stands between two `*` of a name, or between two `**/`, is matched where it fits first and nowhere
    else, because the second of them can stand for whatever is left. So many of them take no longer than one.
    """
    done: list[str] = []
    names: list[str] = []  # what follows the last `**/`
    name: list[str] = []  # what follows the last `*` in a name
    has_deep = has_any = False
    for part in _PARTS.finditer(pattern):
        kind = part.lastgroup
        if kind == "any":
            names += ["(?>[^/]*?", *name, ")"] if has_any else name
            name, has_any = [], True
            continue
        if kind == "deep" or (part["escaped"] or part["plain"]) == "/":
            names += ["[^/]*", *name] if has_any else name
            name, has_any = [], False
        if kind == "deep":
            done += ["(?>(?:[^/]*+/)*?", *names, ")"] if has_deep else names
            names, has_deep = [], True
        else:
            name.append(_translated(part))
    names += ["[^/]*", *name] if has_any else name
    return "".join([*done, "(?:.*/)?" if has_deep else "", *names])


def _choices(pattern: str) -> Iterator[str]:
    for braces in _BRACES.finditer(pattern):
        if braces[1] is None:
            for choice in braces[2].split(","):
                yield f"{pattern[: braces.start()]}{choice}{pattern[braces.end() :]}"
            return
    yield pattern


def _translated(part: re.Match[str]) -> str:
    match part.lastgroup:
        case "rest":
            return ".*"
        case "one":
            return "[^/]"
        case "set":
            return _one_of(part["set"], negated=bool(part["not"]))
    return re.escape(part["escaped"] or part["plain"])


def _one_of(characters: str, *, negated: bool) -> str:
    parts = []
    for each in re.finditer(r"(.)-(.)|(.)", characters, re.DOTALL):
        if each[3] is not None:
            parts.append(re.escape(each[3]))
        elif each[1] <= each[2]:
            parts.append(f"{re.escape(each[1])}-{re.escape(each[2])}")
    if not parts:
        # Only ranges that go backwards, which fit nothing.
        return "[^/]" if negated else "(?!)"
    return f"(?!/)[{'^' if negated else ''}{''.join(parts)}]"


if __name__ == "__main__":
    main()
