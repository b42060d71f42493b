"""`coupler workflows validate`: problems as compilers write them, or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from coupler.cli.sessions.wording import one_line, quiet_json

if TYPE_CHECKING:
    from coupler.workflow.errors import Problem
    from coupler.workflow.language.library import Library


def checked(library: Library, names: Sequence[str]) -> tuple[int, list[Problem]]:
    """How many workflows were checked, and each problem once; without names it is all of them."""
    from coupler.workflow.language.library import is_path

    chosen = names or [found.file if is_path(found.name) else found.name for found in library.all()]
    problems: dict[Problem, None] = {}
    for name in dict.fromkeys(chosen):
        problems.update(dict.fromkeys(library.check(name).problems))
    return len({*chosen}), [*problems]


def write_lines(problems: Sequence[Problem], stream: IO[str], directory: str) -> None:
    """One problem a line."""
    for problem in problems:
        stream.write(f"{relative(problem, directory)}\n")


def relative(problem: Problem, directory: str) -> str:
    """A problem with its file as it is seen from a directory."""
    position = problem.position
    place = f"{seen_from(directory, position.file)}:{position.line}:{position.column}"
    return one_line(f"{place}: {problem.severity}: {problem.message}")


def seen_from(directory: str, file: str) -> str:
    """A path below a directory without the way to that directory."""
    try:
        return str(Path(file).relative_to(Path(directory).absolute()))
    except ValueError:
        return file


def write_json(problems: Sequence[Problem], stream: IO[str]) -> None:
    """One array."""
    encoded = msgspec.json.encode(
        [
            {
                "file": problem.position.file.encode("utf-8", "replace").decode(),
                "line": problem.position.line,
                "column": problem.position.column,
                "severity": problem.severity,
                "message": problem.message,
            }
            for problem in problems
        ]
    )
    stream.write(quiet_json(msgspec.json.format(encoded, indent=2).decode()) + "\n")
