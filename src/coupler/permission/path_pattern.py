"""Patterns of paths: `src/**`, `~/notes/*.md`, `/etc/hosts`.

`*` and `?` stay within one name, `**` stands for any number of directories. A pattern is relative to the
project; such a one reaches nothing outside of the session's directories. To allow, a pattern is compared with
where a path really leads, and no link in the pattern is followed: an agent could have made it.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Sequence

from msgspec import Struct

from coupler.permission.match import Match, glob, has_wildcard
from coupler.permission.sensitive import is_sensitive
from coupler.runtime.paths import Place, folded, split, split_folded

_ANY_DEPTH = "**"


class PathPattern(Struct, frozen=True):
    """Names to compare with those of a path, below the project or the file system's root."""

    names: tuple[str, ...]
    is_relative: bool

    @classmethod
    def parse(cls, text: str) -> PathPattern:
        """Raises ValueError with what is wrong, and how to write it."""
        if not text or not text.isprintable():
            raise ValueError("its path is empty or cannot be shown: write for example `src/**`")
        path = os.path.expanduser(text)
        if path.startswith("~"):
            raise ValueError("its home directory is not known: write the whole path")
        names = [name for name in path.split("/") if name not in {"", "."}]
        if ".." in names:
            raise ValueError("its path has `..`: write where it leads")
        if any(_ANY_DEPTH in name and name != _ANY_DEPTH for name in names):
            raise ValueError("`**` stands for whole directories: write `src/**/*.py`")
        if path.endswith("/") and (not names or names[-1] != _ANY_DEPTH):
            names.append(_ANY_DEPTH)
        return cls(tuple(names), not os.path.isabs(path))

    def covers(self, place: Place, kind: str, project: str, roots: Sequence[str]) -> bool:
        """Whether a path for certain leads to one of these; wildcards do not mean sensitive names."""
        if self.is_relative and not place.is_inside(roots):
            return False
        names = self._whole(project)
        is_free = _is_free_for(kind, len(split(project)) if self.is_relative else 0)
        return all(_fits(names, split(target), is_free) for target in place.targets)

    def touches(self, place: Place, kind: str, project: str) -> Match:
        """Whether a path leads to one of these by any of its names, or what it takes along may be one."""
        wanted = {self._whole(project), self._whole(os.path.realpath(project)), self._resolved(project)}
        patterns = [tuple(_folded_glob(name) for name in names) for names in wanted]
        paths = [split_folded(name) for name in place.names]
        if any(_fits(pattern, path, _is_free) for pattern in patterns for path in paths):
            return Match.YES
        # Whole directories are searched, deleted and moved: something denied may lie below.
        if kind in {"search", "delete", "move"} and any(
            _may_lie_below(pattern, path) for pattern in patterns for path in paths
        ):
            return Match.MAYBE
        return Match.NO

    def _whole(self, project: str) -> tuple[str, ...]:
        if not self.is_relative:
            return self.names
        return (*(_escaped(name) for name in split(project)), *self.names)

    def _resolved(self, project: str) -> tuple[str, ...]:
        """The same pattern with the links in front of its first wildcard followed."""
        names = self._whole(project)
        fixed = _fixed_part(names)
        plain = [_unescaped(name) for name in names[:fixed]]
        real = os.path.realpath(os.sep + os.sep.join(plain))
        return (*(_escaped(name) for name in split(real)), *names[fixed:])


Freedom = Callable[[str, int], bool]


def _is_free(name: str, place: int) -> bool:
    return True


def _is_free_for(kind: str, inside: int) -> Freedom:
    """Whether a wildcard may stand for a name; the project's own directories are what they are called."""

    def is_free(name: str, place: int) -> bool:
        return place < inside or not is_sensitive(name, kind)

    return is_free


def _fits(pattern: Sequence[str], path: Sequence[str], is_free: Freedom) -> bool:
    """Compare name by name; `states` are the places in the pattern that each name can reach."""
    states = _with_skipped(pattern, {0})
    for place, name in enumerate(path):
        following: set[int] = set()
        for state in states:
            if state == len(pattern):
                continue
            wanted = pattern[state]
            if wanted == _ANY_DEPTH:
                if is_free(name, place):
                    following.add(state)
            elif glob(wanted).match(name) and (is_free(name, place) or not _is_all_wildcard(wanted)):
                following.add(state + 1)
        states = _with_skipped(pattern, following)
    return len(pattern) in states


def _with_skipped(pattern: Sequence[str], states: set[int]) -> set[int]:
    """`**` also stands for no directory at all."""
    reached = set(states)
    for state in sorted(states):
        place = state
        while place < len(pattern) and pattern[place] == _ANY_DEPTH:
            place += 1
            reached.add(place)
    return reached


def _may_lie_below(pattern: Sequence[str], path: Sequence[str]) -> bool:
    """Whether the pattern may fit something in the directory of that path."""
    states = _with_skipped(pattern, {0})
    for name in path:
        following = {state for state in states if state < len(pattern) and pattern[state] == _ANY_DEPTH}
        following |= {
            state + 1
            for state in states
            if state < len(pattern) and pattern[state] != _ANY_DEPTH and glob(pattern[state]).match(name)
        }
        states = _with_skipped(pattern, following)
    return bool(states)


def _is_all_wildcard(name: str) -> bool:
    """Whether a part of a pattern names nothing at all."""
    return not any(character.isalnum() for character in name)


def _fixed_part(names: Sequence[str]) -> int:
    for place, name in enumerate(names):
        if has_wildcard(name.replace("[[]", "").replace("[*]", "").replace("[?]", "")):
            return place
    return len(names)


def _escaped(name: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)


def _unescaped(name: str) -> str:
    return name.replace("[*]", "*").replace("[?]", "?").replace("[[]", "[")


def _folded_glob(name: str) -> str:
    return name if name == _ANY_DEPTH else folded(name)
