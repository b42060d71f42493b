"""Resolves paths: where they really lead, and by which names they go.

Links are followed for the part of a path that exists, because what is judged must be what is touched. Between
the judgement and the touch a link can still change: whoever opens the file must refuse links by itself.
"""

from __future__ import annotations

import contextlib
import errno
import os.path
import unicodedata
from collections.abc import Sequence

from msgspec import Struct

LONGEST = 4096
"""Characters of a path; no system opens a longer one."""


MOST_LINKS = 40
"""Links that are followed on one path; the system follows no more either."""

_OF_EACH_PROCESS = frozenset({"/proc", "/dev/fd"})


class UnjudgeablePathError(ValueError):
    """Nobody can say which file a path means; the message says why."""


class Place(Struct, frozen=True):
    """Where a path leads."""

    shown: str
    """The path as it was given."""
    targets: tuple[str, ...]
    """The files it may mean, links resolved. Two where `..` follows a link: shells and editors differ."""
    names: tuple[str, ...]
    """All absolute paths by which it goes, those with links too."""

    def is_inside(self, roots: Sequence[str]) -> bool:
        """Whether each file that it may mean is in one of the directories, whose links are resolved."""
        return all(any(is_below(target, root) for root in roots) for target in self.targets)


def locate(path: str) -> Place:
    """Where an absolute path leads; raises if that cannot be said."""
    if len(path) > LONGEST:
        raise UnjudgeablePathError("is a path that is too long")
    if not path or not path.isprintable():
        raise UnjudgeablePathError("is a path with characters that cannot be shown")
    if not os.path.isabs(path):
        raise UnjudgeablePathError("is not an absolute path")
    plain = os.path.normpath(path)
    if plain.startswith("//"):
        plain = plain[1:]
    targets = dict.fromkeys(_resolved(way) for way in (path, plain))
    return Place(path, tuple(targets), tuple(dict.fromkeys((plain, *targets))))


def real_directories(paths: Sequence[str]) -> tuple[str, ...]:
    """The directories that absolute paths lead to; one of which that cannot be said is left out."""
    found: list[str] = []
    for path in paths:
        with contextlib.suppress(UnjudgeablePathError):
            place = locate(path)
            found += place.targets if len(place.targets) == 1 else ()
    return tuple(found)


def is_below(path: str, directory: str) -> bool:
    """Whether a path is the directory, or in it; `/srv/app2` is not in `/srv/app`."""
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)


def split(path: str) -> tuple[str, ...]:
    """The names of which an absolute path is made."""
    return tuple(name for name in path.split(os.sep) if name)


def split_folded(path: str) -> tuple[str, ...]:
    """The same for comparing with what is denied."""
    return tuple(folded(name) for name in split(path))


def _resolved(path: str) -> str:
    """Follow all links, name by name, as the system does."""
    if os.name != "posix":
        return os.path.realpath(path)
    waiting = [*reversed(split(path))]
    reached = os.sep
    links = 0
    while waiting:
        name = waiting.pop()
        if name == "..":
            reached = os.path.dirname(reached)
        if name in {".", ".."}:
            continue
        step = os.path.join(reached, name)
        if step in _OF_EACH_PROCESS:
            raise UnjudgeablePathError("is a path that means something else to every program")
        target = _link_at(step)
        if target is None:
            reached = step
            continue
        links += 1
        if links > MOST_LINKS:
            raise UnjudgeablePathError("is a path with links that lead in a circle")
        reached = os.sep if target.startswith(os.sep) else reached
        waiting += reversed(split(target))
    return reached


def _link_at(path: str) -> str | None:
    """Where a link leads; None for what is none, or is not there."""
    try:
        return os.readlink(path)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT, errno.ENOTDIR}:
            return None
        raise UnjudgeablePathError("is a path that cannot be followed") from None


def folded(text: str) -> str:
    """The text without what some file system, shell or reader does not tell apart.

    Case, ways to compose a letter, invisible characters, and blanks or dots at the end.
    """
    visible = "".join(character for character in text if unicodedata.category(character) != "Cf")
    composed = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())
    return composed if composed in {".", ".."} else composed.rstrip(" .") or composed
