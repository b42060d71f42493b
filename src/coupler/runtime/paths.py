"""Resolves paths: where they really lead, and by which names they go.

Links are followed for the part of a path that exists, because what is judged must be what is touched. Between
the decision and the access a link can still change: whoever opens the file must refuse links by itself.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os.path
import unicodedata
from collections.abc import Sequence

from msgspec import Struct

LONGEST_PATH = 4096
"""Characters of a path; no system opens a longer one."""

MOST_LINKS = 40
"""Links that are followed on one path; the system follows no more either."""

_OF_EACH_PROCESS = frozenset({"/proc", "/dev/fd"})


class UnresolvablePathError(ValueError):
    """It cannot be said which file a path means; the message says why."""


class ResolvedPath(Struct, frozen=True):
    """A path with the files that it leads to."""

    shown: str
    """The path as it was given."""
    targets: tuple[str, ...]
    """The files it may mean, links resolved. Two where `..` follows a link: shells and editors differ."""
    names: tuple[str, ...]
    """All absolute paths by which it goes, those with links too."""

    def is_inside(self, roots: Sequence[str]) -> bool:
        """Return whether each file that it may mean is in one of the directories (with links resolved)."""
        return all(any(is_below(target, root) for root in roots) for target in self.targets)


def resolve_path(
    path: str, known: dict[str, str | None] | None = None, *, is_shown: bool = True
) -> ResolvedPath:
    """Resolve an absolute path; raises UnresolvablePathError if it is unclear where it leads.

    `known` has the links that were looked at before, for whoever resolves many paths at one moment. A path
    that nobody is shown may have any characters.
    """
    if len(path) > (LONGEST_PATH if is_shown else 2 * LONGEST_PATH):
        raise UnresolvablePathError("is a path that is too long")
    if not path or (is_shown and not path.isprintable()):
        raise UnresolvablePathError("is a path with characters that cannot be shown")
    if not os.path.isabs(path):
        raise UnresolvablePathError("is not an absolute path")
    plain = os.path.normpath(path)
    if plain.startswith("//"):
        plain = plain[1:]
    known = {} if known is None else known
    targets = dict.fromkeys(_resolved(way, known) for way in dict.fromkeys((path, plain)))
    return ResolvedPath(path, tuple(targets), tuple(dict.fromkeys((plain, *targets))))


def _resolved(path: str, known: dict[str, str | None]) -> str:
    """Follow all links, name by name, as the system does."""
    if os.name != "posix":
        return os.path.realpath(path)
    waiting = [*reversed(split_path(path))]
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
            raise UnresolvablePathError("is a path that means something else to every program")
        if step not in known:
            known[step] = _link_at(step)
        target = known[step]
        if target is None:
            reached = step
            continue
        links += 1
        if links > MOST_LINKS:
            raise UnresolvablePathError("is a path with links that lead in a circle")
        reached = os.sep if target.startswith(os.sep) else reached
        waiting += reversed(split_path(target))
    return reached


def _link_at(path: str) -> str | None:
    """The target of a link; None for what is no link, or is not there."""
    try:
        return os.readlink(path)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT, errno.ENOTDIR}:
            return None
        raise UnresolvablePathError("is a path that cannot be followed") from None
    except ValueError:
        raise UnresolvablePathError("is a path that no file can have") from None


def real_directories(paths: Sequence[str]) -> tuple[str, ...]:
    """The directories that absolute paths lead to; one that cannot be resolved is left out."""
    found: list[str] = []
    for path in paths:
        with contextlib.suppress(UnresolvablePathError):
            place = resolve_path(path)
            found += place.targets if len(place.targets) == 1 else ()
    return tuple(found)


def is_below(path: str, directory: str) -> bool:
    """Return whether a path is the directory, or in it; `/srv/app2` is not in `/srv/app`."""
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)


def split_path(path: str) -> tuple[str, ...]:
    """The names of which an absolute path is made."""
    return tuple(name for name in path.split(os.sep) if name)


@functools.lru_cache(maxsize=1024)
def split_path_folded(path: str) -> tuple[str, ...]:
    """The same with each name folded, for comparing with what is denied."""
    return tuple(fold_name(name) for name in split_path(path))


def fold_name(text: str) -> str:
    """The name without what some file system, shell or reader does not tell apart.

    Case, ways to compose a letter, invisible characters, and blanks or dots at the end.
    """
    if text.isascii():
        return _without_end(text.lower())
    visible = "".join(character for character in text if unicodedata.category(character) != "Cf")
    composed = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())
    return _without_end(composed)


def _without_end(name: str) -> str:
    return name if name in {".", ".."} else name.rstrip(" .") or name
