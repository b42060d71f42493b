"""Patterns of file names as regular expressions, for paths whose names are separated by `/`.

`*` and `?` stay in one directory, `**` does not, `[a-z]` is one of several characters, and `{a,b}` one of
several texts where that is wanted: in what people write, but not in .gitignore files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_PARTS = re.compile(
    r"""(?P<deep>(?:(?<=/)|^)\*\*/) | (?P<rest>(?:(?<=/)|^)\*\*$) | (?P<any>\*+) | (?P<one>\?)
      | \[(?P<not>[!^]?)(?P<set>\][^\]/]*|[^\]/]+)\] | \\(?P<escaped>.) | (?P<plain>.)""",
    re.DOTALL | re.VERBOSE,
)
_BRACES = re.compile(r"(\\.|\[[^\]/]*\])|\{([^{}]*)\}", re.DOTALL)

MOST_CHOICES = 200
"""Patterns that braces may stand for."""


def compiled(pattern: str) -> re.Pattern[str]:
    """What a person or a model means by a pattern of names; raises ValueError if it stands for too much."""
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
    """One pattern without braces as the text of a regular expression."""
    return "".join(_translated(part) for part in _PARTS.finditer(pattern))


def _choices(pattern: str) -> Iterator[str]:
    for braces in _BRACES.finditer(pattern):
        if braces[1] is None:
            for choice in braces[2].split(","):
                yield f"{pattern[: braces.start()]}{choice}{pattern[braces.end() :]}"
            return
    yield pattern


def _translated(part: re.Match[str]) -> str:
    match part.lastgroup:
        case "deep":
            return "(?:.*/)?"
        case "rest":
            return ".*"
        case "any":
            return "[^/]*"
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
