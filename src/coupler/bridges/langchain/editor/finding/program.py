"""Finds files by name, and lines by a regular expression.

A pattern that a model has written can take for ever to match, and Python cannot be interrupted meanwhile: so
this runs in a process that can be ended. It reads what to do from stdin and writes what it found to stdout,
both as JSON. `texts` are files as they are in the editor, whatever the disk has.
"""

# A Path for each of very many files would take longer than to look at them.

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

from coupler.bridges.langchain.editor.finding.glob import compiled
from coupler.bridges.langchain.editor.finding.lines import Hit, hits_in, lines_in, lines_of, lines_of_any
from coupler.bridges.langchain.editor.finding.tree import files_below, is_seen

MOST_FILES = 1_000_000
"""Files that are looked at to find the newest."""


def main() -> None:
    """Do what stdin says."""
    task = json.load(sys.stdin)
    found, total = files(task) if task["pattern"] is None else hits(task)
    json.dump([found, total], sys.stdout)


def files(task: dict[str, Any]) -> tuple[list[Hit], int]:
    """Files with such names, in the order of their names, and how many there are; the newest, if too many."""
    found = [*islice(_paths(task), MOST_FILES)]
    if len(found) > task["most"]:
        newest = sorted(found, key=lambda path: _time(path, task["texts"]), reverse=True)
        chosen = {*newest[: task["most"]]}
        return [(path, 0, "", True) for path in found if path in chosen], len(found)
    return [(path, 0, "", True) for path in found], len(found)


def hits(task: dict[str, Any]) -> tuple[list[Hit], int]:
    """Lines that fit, and how many of them there are at least; no more than are wanted."""
    expression = re.compile(task["pattern"], re.IGNORECASE if task["ignore_case"] else 0)
    found: list[Hit] = []
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
    """The files of the disk, with those that only the editor has in their places."""
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


if __name__ == "__main__":
    main()
