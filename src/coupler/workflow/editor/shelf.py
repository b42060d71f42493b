"""The workflows of a directory as slash commands, and whether their files have changed.

All of it reads the disk and may block: whoever serves others meanwhile does it in a thread.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from coupler.agent.agent import Command
from coupler.config.lookup import ConfigError, project_workflows, shown, workflows_directory
from coupler.runtime.extras import MissingExtraError
from coupler.workflow.editor.arguments import hint_of
from coupler.workflow.language.slash_commands import no_command
from coupler.workflow.packages import need_packages

if TYPE_CHECKING:
    from coupler.workflow.language.definition import Workflow

MOST_PROBLEMS = 3
"""Of a broken file; the others are in `coupler workflows validate`."""

FileState = tuple[str, int, int]
"""A file with its time and size."""

State = tuple[FileState, ...]


@dataclass(frozen=True)
class Shelved:
    """A workflow as it was read, and the state of its file then."""

    workflow: Workflow
    state: FileState | None

    @property
    def is_current(self) -> bool:
        """Whether its file is still the one that was read."""
        return self.state is not None and file_state(self.workflow.file) == self.state


@dataclass(frozen=True)
class Shelf:
    """What there is, and what is to be told about files that are left out."""

    commands: tuple[Command, ...] = ()
    notes: tuple[str, ...] = ()
    workflows: Mapping[str, Shelved] = field(default_factory=dict)
    """Those behind the commands, by their names."""

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
        need_packages()
        from coupler.workflow.language.library import Broken, Library

        states = {state[0]: state for state in state_of(directory)}
        all_found = Library(directory).all()
    except (MissingExtraError, ConfigError) as error:
        return Shelf(notes=(str(error),))
    commands: list[Command] = []
    notes: list[str] = []
    workflows: dict[str, Shelved] = {}
    for found in all_found:
        if isinstance(found, Broken):
            notes.append(_told_broken(found.name, list(map(str, found.problems))))
        elif reason := no_command(found.name):
            notes.append(f"The workflow `{found.name}` in {shown(found.file, 400)} is left out: {reason}")
        else:
            workflow = found.workflow
            about = " ".join(workflow.description.split()) or f"Run the workflow {workflow.name}"
            commands.append(Command(workflow.name, shown(about, 300), hint=hint_of(workflow) or None))
            workflows[workflow.name] = Shelved(workflow, states.get(found.file))
    return Shelf(tuple(commands), tuple(notes), workflows)


def read_alone(file: str) -> Shelved | None:
    """The workflow that is served alone; None if it cannot be read now."""
    try:
        need_packages()
        from coupler.workflow.errors import WorkflowError
        from coupler.workflow.language.reading import read_workflow
    except MissingExtraError:
        return None
    state = file_state(file)
    try:
        return Shelved(read_workflow(file), state)
    except WorkflowError:
        return None


def file_state(path: str) -> FileState | None:
    """What changes with a file; None if there is none."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return path, status.st_mtime_ns, status.st_size


def _told_broken(name: str, problems: list[str]) -> str:
    lines = [f"- {shown(problem, 400)}" for problem in problems[:MOST_PROBLEMS]]
    if len(problems) > MOST_PROBLEMS:
        lines.append(f"- and {len(problems) - MOST_PROBLEMS} more: see `coupler workflows validate`")
    return "\n".join(
        [f"The workflow `{shown(name, 60)}` is left out, because its file is not valid:", *lines]
    )


def _files_in(place: str) -> list[FileState]:
    """Those of any ending: scripts and prompts beside a workflow belong to it, too."""
    try:
        # What has no state is being replaced, or a link to nothing.
        return [state for path in Path(place).iterdir() if (state := file_state(str(path))) is not None]
    except OSError:
        return []  # there is none, or none that this user may look into
