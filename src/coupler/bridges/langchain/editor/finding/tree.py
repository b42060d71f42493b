"""The files below a directory, in the order of their names, without what nobody looks for.

Links are not followed, so nothing outside of the directory is seen. Names that begin with a dot are seen.
"""

# A Path for each of very many files would take longer than to look at them.

from __future__ import annotations

import os
from collections.abc import Iterator

from coupler.bridges.langchain.editor.finding.gitignore import Ignored, is_repository, rules_at

SKIPPED = frozenset(
    {".git", ".hg", ".svn", ".jj", "node_modules", ".venv", "venv", "__pycache__", ".mypy_cache"}
    | {".ruff_cache", ".pytest_cache", ".hypothesis", ".tox", ".nox"}
)
"""Directories in which nobody looks for their own work."""


def files_below(directory: str) -> Iterator[str]:
    """The ordinary files; a directory that cannot be read has none."""
    yield from _files(directory, rules_at(directory))


def is_seen(path: str, directory: str) -> bool:
    """Whether `files_below` would find a file, if it were there."""
    reached, rules = directory, rules_at(directory)
    *parents, name = os.path.relpath(path, directory).split(os.sep)
    for parent in parents:
        reached = os.path.join(reached, parent)
        if parent in SKIPPED or (reached, True) in rules:
            return False
        rules = Ignored(reached, rules)
    return (os.path.join(reached, name), False) not in rules


def _files(directory: str, rules: Ignored) -> Iterator[str]:
    try:
        with os.scandir(directory) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in SKIPPED and (entry.path, True) not in rules:
                yield from _files(entry.path, Ignored(entry.path, _above(rules, entry.path)))
        elif entry.is_file(follow_symlinks=False) and (entry.path, False) not in rules:
            yield entry.path


def _above(rules: Ignored, directory: str) -> Ignored | None:
    """A repository inside of another one has rules of its own."""
    return None if is_repository(directory) else rules
