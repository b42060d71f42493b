"""Which file a path means, and that it lies in the session's directories.

Paths are judged by where they really lead, as the permission rules judge them. What cannot be said for sure
is outside.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from coupler.files.errors import OutsideRootsError
from coupler.permission.path import Place, UnjudgeablePathError, is_below, locate, split


class FilePath(NamedTuple):
    """A path inside of the boundary. No part of it was a link when it was judged."""

    root: str
    """The session's directory that it is in, links resolved."""
    below: tuple[str, ...]
    """The way from there."""
    shown: str
    """The path for people and editors: it begins with the directory as the client wrote it."""

    @property
    def real(self) -> str:
        return os.path.join(self.root, *self.below)

    @property
    def name(self) -> str:
        return self.below[-1] if self.below else os.path.basename(self.root) or self.root


def find_inside(path: str | os.PathLike[str], cwd: str, roots: Sequence[str]) -> FilePath:
    """The file that a path means, which may be relative to `cwd`; it need not exist."""
    text = _text(os.fspath(path))
    if "\0" in text:
        raise ValueError(f"the path {text!r} holds a NUL character, which no file name can")
    try:
        targets = locate(os.path.join(cwd, text)).targets
    except UnjudgeablePathError as error:
        raise OutsideRootsError(f"{text!r} {error}: {_advice(roots)}") from None
    if len(targets) > 1:
        message = f"{text!r} goes back out of a link, which can mean two files: write it without '..'"
        raise OutsideRootsError(message)
    for root, real in _resolved(roots):
        if is_below(targets[0], real):
            below = split(targets[0])[len(split(real)) :]
            return FilePath(real, below, os.path.join(root, *below))
    raise OutsideRootsError(f"{text!r} is outside of the session's directories: {_advice(roots)}")


def _text(path: object) -> str:
    if isinstance(path, str):
        return str.__str__(path)
    raise TypeError(f"a path is text, not {type(path).__name__}")


def _resolved(roots: Sequence[str]) -> Iterator[tuple[str, str]]:
    for root in roots:
        try:
            place: Place = locate(root)
        except UnjudgeablePathError:
            continue
        if len(place.targets) == 1:
            yield root, place.targets[0]


def _advice(roots: Sequence[str]) -> str:
    return f"use a path below {' or '.join(repr(root) for root in roots)}"
