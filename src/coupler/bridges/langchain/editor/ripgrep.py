"""Searches by ripgrep, where it is installed: the same lines as `finder` finds, many times faster.

Its configuration is not read, and of the files that tell it what to pass over only .gitignore. Patterns whose
meaning in its language may differ from that in Python's are left to `finder`.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from coupler.bridges.langchain.editor.finder import LONGEST_OUTPUT, Quest, heard
from coupler.bridges.langchain.editor.finding.gitignore import is_in_repository
from coupler.bridges.langchain.editor.finding.glob import compiled, expanded
from coupler.bridges.langchain.editor.finding.lines import LARGEST, shortened
from coupler.bridges.langchain.editor.finding.tree import SKIPPED
from coupler.bridges.langchain.editor.found import Found, Hit
from coupler.runtime.commands import Job
from coupler.runtime.environment import Environment, find_outside

ALIKE = re.compile(
    r"""\( (?: \?: | (?!\?) ) | \| |
        (?: [^\\\[\](){}*+?|]                       # a character that stands for itself, ^ and $
          | \\ (?: [dDwWsSbBt] | [^\w\s<>] )        # a class, a border, or what is escaped
          | \[ \^? (?: [^\\\[\]&~^-] | \\[^\w\s] | \\[dwst] | [A-Za-z0-9]-[A-Za-z0-9] )+ -? \]
          | \)
        ) (?: [*+?] \?? | \{ \d{1,3} (?: , \d{0,3} )? \} \?? )?""",
    re.VERBOSE,
)
"""A piece of a regular expression that means the same to Python and to ripgrep."""

OPTIONS = (
    *("--no-config", "--json", "--sort=path", "--no-messages", "--crlf", "--hidden"),
    *("--no-ignore-dot", "--no-ignore-exclude", "--no-ignore-global", "--no-ignore-messages"),
    *(f"--glob=!**/{name}/" for name in sorted(SKIPPED)),
)

_SAFE_NAME = re.compile(r"[\w.*?-]+", re.ASCII)


def ripgrep(untrusted: Sequence[str]) -> str | None:
    """Where ripgrep is installed, but not in one of these directories: what is in there may be anybody's."""
    # Looked for anew each time: that is cheap, and somebody may install it because it is missing.
    return find_outside("rg", untrusted)


def can_search(quest: Quest) -> bool:
    """Whether ripgrep means the same by the pattern."""
    if quest.pattern is None or not quest.walks:
        return False
    place = 0
    while place < len(quest.pattern):
        piece = ALIKE.match(quest.pattern, place)
        if piece is None:
            return False
        place = piece.end()
    return True


async def find_lines(program: str, quest: Quest) -> Found | None:
    """The lines on the disk that fit; None if ripgrep cannot say."""
    output = _Output(quest)
    job = Job.start([program, *_arguments(quest)], cwd=str(Path(program).parent), env=Environment.exact({}))
    try:
        await heard(job, output.take)
    except _EnoughError:
        return output.found
    return output.found if output.is_whole else None


def _arguments(quest: Quest) -> Iterator[str]:
    yield from OPTIONS
    if not is_in_repository(quest.directory):
        # A .gitignore file counts there too.
        yield "--no-require-git"
    if quest.ignore_case:
        yield "--ignore-case"
    if quest.context:
        yield f"--context={quest.context}"
    if Path(quest.directory).is_dir():
        yield f"--max-filesize={LARGEST}"
        names = {each.rpartition("/")[2] for each in expanded(quest.glob)}
        if all(_SAFE_NAME.fullmatch(name) for name in names):
            # A type, because a glob would bring back what .gitignore leaves out.
            yield from (f"--type-add=wanted:{name}" for name in sorted(names))
            yield "--type=wanted"
    else:
        yield "--text"
    yield f"--regexp={quest.pattern}"
    yield from ("--", quest.directory)


class _EnoughError(Exception):
    """As much was found as is wanted."""


class _Output:
    """What ripgrep writes: messages in JSON, a line each."""

    def __init__(self, quest: Quest) -> None:
        self.is_whole = False
        self._quest = quest
        self._names = compiled(quest.glob)
        self._is_file = not Path(quest.directory).is_dir()
        self._start = len(quest.directory.rstrip(os.sep)) + 1
        self._rest = b""
        self._hits: list[Hit] = []
        self._of_file: list[Hit] = []

    @property
    def found(self) -> Found:
        """What was found by now, in files that are text to their end."""
        hits, total = [], 0
        for hit in self._hits:
            total += hit.is_match
            if total > self._quest.most:
                break
            hits.append(hit)
        return Found(hits, total)

    async def take(self, chunk: bytes) -> None:
        """Hear another piece."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LONGEST_OUTPUT:
            raise ValueError("a line that fits is too long to be shown: use another pattern or glob")
        for line in lines:
            # What else it writes is a complaint, and then there is no summary.
            if line.startswith(b"{"):
                self._hear(msgspec.json.decode(line))

    def _hear(self, message: dict[str, Any]) -> None:
        data = message["data"]
        match message["type"]:
            case "begin":
                self._of_file = []
            case "match" | "context" as kind:
                self._of_file += self._hits_in(data, is_match=kind == "match")
            case "end":
                if data["binary_offset"] is None:
                    self._hits += self._of_file
                if sum(hit.is_match for hit in self._hits) > self._quest.most:
                    raise _EnoughError
            case "summary":
                self.is_whole = True

    def _hits_in(self, data: dict[str, Any], *, is_match: bool) -> Iterator[Hit]:
        path = data["path"].get("text")
        if path is None or not self._is_wanted(path):
            return
        line = _bytes_of(data["lines"])
        first = data["submatches"][0]["start"] if is_match and data["submatches"] else 0
        place = len(line[:first].decode("utf-8", "replace"))
        text = line.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
        yield Hit(path, data["line_number"], shortened(text, place), is_match)

    def _is_wanted(self, path: str) -> bool:
        if self._is_file:
            return True
        below = path[self._start :].replace(os.sep, "/")
        fits = self._names.fullmatch(below) or self._names.fullmatch(below.rpartition("/")[2])
        return path.isprintable() and fits is not None


def _bytes_of(text: dict[str, str]) -> bytes:
    return text["text"].encode() if "text" in text else base64.b64decode(text["bytes"])
