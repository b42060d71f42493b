"""Commands whose output others read as paths: which these may be, for `xargs`, `read` and the like."""

from __future__ import annotations

import re
from collections.abc import Sequence

from coupler.permission.floor.expansion import Reading
from coupler.permission.floor.place import UNKNOWN
from coupler.permission.floor.program import PROGRAMS, find_starts
from coupler.permission.wrapper import is_starter, program_name

PRINTING = frozenset({"echo", "printf", "yes"})
"""Programs that print their words."""
MOVING = frozenset({"cd", "pushd", "chdir"})
"""Programs that change the directory."""

_LISTING = frozenset({"git", "grep", "rg", "fd", "fdfind", "egrep"})
_NARROWING = frozenset({"-g", "--glob", "--iglob", "-t", "--type"})
_FILTERING = frozenset(
    {"sort", "uniq", "head", "tail", "tr", "sed", "awk", "tee", "xargs", "cut", "wc", "true", "read"}
)


def paths_from(words: Sequence[Reading]) -> list[str]:
    """The paths that a command may print; UNKNOWN if they are only known when it runs."""
    name = program_name(words[0].text) if words else ""
    rest = [*words[1:]]
    if name in {"find", "gfind"}:
        starts, is_narrow = find_starts(rest)
        return [f"{start.text}/{UNKNOWN}" if is_narrow else start.text for start in starts]
    if name in PRINTING:
        return [piece for word in rest for piece in re.split(r"\\n|\\0|\s", word.text)]
    if name == "ls":
        places = [word.text for word in rest if not word.text.startswith("-")] or ["."]
        return [f"{place}/*" for place in places]
    texts = [word.text for word in rest]
    if name in {"tree", "du"} or (name == "rg" and "--files" in texts and not _NARROWING & {*texts}):
        return [text for text in texts if not text.startswith("-")] or ["."]
    if name in _LISTING:
        return [f"./{UNKNOWN}"]
    is_silent = name in _FILTERING or name in PROGRAMS or name in MOVING or is_starter(name)
    return [] if is_silent else [UNKNOWN]


_READ_BY_ITSELF = {
    **dict.fromkeys(("make", "gmake"), ("makefile", "gnumakefile")),
    "just": ("justfile",),
}


def runs_one_of(name: str, files: set[str]) -> bool:
    """Whether a program is one of these files, or runs what stands in one without being told to."""
    return name in files or any(file in files for file in _READ_BY_ITSELF.get(name, ()))
