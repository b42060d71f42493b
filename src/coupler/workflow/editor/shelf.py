"""The workflows of a directory as slash commands, and whether their files have changed.

All of it reads the disk and may block: whoever serves others meanwhile does it in a thread.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from coupler.agent.command import Command
from coupler.config.errors import ConfigError, shown
from coupler.config.lookup import project_workflows, workflows_directory
from coupler.extras import MissingExtraError, need
from coupler.workflow.editor.arguments import hint_of

ABORT, RESUME, RUNS = "abort", "resume", "runs"
"""The commands for runs, which are no workflows' names in an editor."""

MOST_PROBLEMS = 3
"""Of a broken file; the others are in `coupler workflows validate`."""

State = tuple[tuple[str, int, int], ...]
"""Files with their times and sizes."""


@dataclass(frozen=True)
class Shelf:
    """What there is, and what is to be told about files that are left out."""

    commands: tuple[Command, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> set[str]:
        return {command.name for command in self.commands}


def state_of(directory: str) -> State:
    """Changes when a file of a workflow does, is added or taken away."""
    try:
        project = project_workflows(directory, os.environ)
    except ConfigError:
        return ()
    places = [workflows_directory(os.environ), None if project is None else project.path]
    return tuple(sorted(each for place in places if place is not None for each in _files_in(place)))


def look_at(directory: str) -> Shelf:
    """Read all of them; a file that cannot be used hides none of the others."""
    try:
        for module in ("yaml", "jinja2"):
            need(module, extra="workflows", feature="Running a workflow")
        from coupler.workflow.language.library import Broken, Library

        all_found = Library(directory).all()
    except (MissingExtraError, ConfigError) as error:
        return Shelf(notes=(str(error),))
    commands: list[Command] = []
    notes: list[str] = []
    for found in all_found:
        if isinstance(found, Broken):
            notes.append(_told_broken(found.name, list(map(str, found.problems))))
        elif found.name in (ABORT, RESUME, RUNS):
            notes.append(f"{found.file} is left out: `/{found.name}` is about runs: give it another `name`")
        else:
            workflow = found.workflow
            about = " ".join(workflow.description.split()) or f"Run the workflow {workflow.name}"
            commands.append(Command(workflow.name, shown(about, 300), hint=hint_of(workflow) or None))
    return Shelf(tuple(commands), tuple(notes))


def _told_broken(name: str, problems: list[str]) -> str:
    lines = [f"- {shown(problem, 400)}" for problem in problems[:MOST_PROBLEMS]]
    if len(problems) > MOST_PROBLEMS:
        lines.append(f"- and {len(problems) - MOST_PROBLEMS} more: see `coupler workflows validate`")
    return "\n".join(
        [f"The workflow `{shown(name, 60)}` is left out, because its file is not valid:", *lines]
    )


def _files_in(place: str) -> list[tuple[str, int, int]]:
    """Those of any ending: scripts and prompts beside a workflow belong to it, too."""
    files: list[tuple[str, int, int]] = []
    try:
        for path in Path(place).iterdir():
            try:
                status = path.stat()
            except OSError:
                continue  # it is being replaced, or a link to nothing
            files.append((str(path), status.st_mtime_ns, status.st_size))
    except OSError:
        return []  # there is none, or none that this user may look into
    return files
