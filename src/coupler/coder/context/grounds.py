"""The directories that have a say in a session: the user's own, and those of the project, top down."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from coupler.config.lookup import is_repository
from coupler.runtime.directories import config_directory, home_directory


class Ground(NamedTuple):
    """A directory, and the one that links in it must not lead out of: None for what is the user's own."""

    directory: str
    bounds: str | None

    @property
    def is_users(self) -> bool:
        """Whether the user has put there what is in it."""
        return self.bounds is None


def project_grounds(cwd: str, roots: Sequence[str], environ: Mapping[str, str]) -> list[Ground]:
    """From the repository's root down to each of the session's directories, each only once."""
    home = home_directory(environ)
    grounds = (ground for root in (cwd, *roots) for ground in _down_to(root, home))
    return [*{os.path.realpath(ground.directory): ground for ground in grounds}.values()]


def user_ground(environ: Mapping[str, str]) -> Ground | None:
    """Coupler's directory of settings; nowhere for a user without a home."""
    directory = config_directory(environ)
    return None if directory is None else Ground(directory, None)


def directories_down(directory: Path, roots: Sequence[str]) -> Iterator[Ground]:
    """The directories on the way from the session's innermost root, without it, down to this one."""
    around = [root for root in roots if directory.is_relative_to(root)]
    if not around:
        return
    root = max(around, key=len)
    reached = Path(root)
    for name in directory.relative_to(root).parts:
        reached /= name
        yield Ground(str(reached), root)


def _down_to(directory: str, home: str | None) -> list[Ground]:
    """Without a repository around it the directory stands for itself; a home is nobody's project."""
    chain = [Path(directory)]
    while not is_repository(str(chain[-1])):
        parent = chain[-1].parent
        if parent == chain[-1] or str(chain[-1]) == home:
            return [Ground(directory, directory)]
        chain.append(parent)
    top = str(chain[-1])
    return [Ground(str(each), top) for each in reversed(chain)]
