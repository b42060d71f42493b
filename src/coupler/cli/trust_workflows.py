"""The workflows of a project, and the files that they name, for `coupler trust`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coupler.cli.sessions.wording import count, one_line

if TYPE_CHECKING:
    from coupler.store.choices import Trust
    from coupler.workflow.language.library import FileToTrust, Library


class ProjectWorkflows:
    """Those of the project that a directory is in; a project without them needs nothing of all this."""

    def __init__(self, directory: str) -> None:
        from coupler.config.lookup import project_workflows

        self._directory = directory
        self.place = project_workflows(directory, os.environ)

    @property
    def are_there(self) -> bool:
        return self.place is not None

    def untrusted(self, trusted: Trust) -> list[FileToTrust]:
        """The files that would have to be trusted before they run."""
        from coupler.runtime.extras import MissingExtraError

        if self.place is None:
            return []
        from coupler.workflow.language.library import untrusted_of_project

        try:
            return untrusted_of_project(self._library, trusted)
        except MissingExtraError as error:
            say(f"Note: the workflows of the project are left out. {error}.")
            self.place = None
            return []

    @cached_property
    def _library(self) -> Library:
        from coupler.workflow.language.library import Library

        return Library(self._directory)

    def show(self, files: Sequence[FileToTrust]) -> None:
        """What a yes would be about."""
        if files and self.place is not None:
            show_files(files, self.place.root)
            self._tell_broken()

    def say_trusted(self) -> None:
        if self.place is not None:
            say(f"The workflows in {one_line(self.place.path)} are trusted already, as they are now.")
            self._tell_broken()

    def _tell_broken(self) -> None:
        from coupler.workflow.language.library import Broken

        for found in self._library.all():
            if isinstance(found, Broken) and found.origin == "project":
                file = os.path.relpath(found.file, self._directory)
                click.echo(f"Note: {one_line(file)} is broken, and is left out.", err=True)


def untrusted_of_file(file: str, trusted: Trust | None) -> list[FileToTrust]:
    """The files that a workflow at a path is made of, which are not trusted; raises `WorkflowError`."""
    from coupler.workflow.language.library import Library, untrusted_files

    library = Library(str(Path(file).parent))
    bundle = library.bundle_of(str(Path(file).absolute()))
    # As if it was called by its name: the path is no consent here, for it is what the question is about.
    return untrusted_files(bundle, bundle.main.name, library, trusted)


def show_files(files: Sequence[FileToTrust], root: str) -> None:
    """What a yes would be about."""
    click.echo("These files are run by workflows; read them first:", err=True)
    for file in files:
        lines = count(len(file.content.splitlines()), "line")
        click.echo(f"  {one_line(os.path.relpath(file.real_path, root))}  ({lines})", err=True)


def remember(files: Sequence[FileToTrust], trusted: Trust) -> None:
    """Trust them as they were shown."""
    from coupler.workflow.language.library import trust_files

    if files:
        trust_files(trusted, files)
        noun = "file of workflows is" if len(files) == 1 else "files of workflows are"
        say(f"{len(files)} {noun} trusted, as shown. `coupler trust --forget` withdraws that.")


def forget_file(file: str, trusted: Trust) -> list[str]:
    """Trust no longer what a workflow at a path is made of; returns which files those were."""
    from coupler.workflow.errors import WorkflowError

    try:
        paths = [each.real_path for each in untrusted_of_file(file, None)]
    except WorkflowError:
        paths = [str(Path(file).resolve())]  # it may be gone, or broken
    return [path for path in paths if trusted.distrust(path)]


def forget_workflows(directory: str, trusted: Trust) -> list[str]:
    """Trust no file of a project's workflows any longer, also one that is gone; returns which they were."""
    from coupler.config.lookup import NAME, project_workflows

    place = project_workflows(str(Path(directory).absolute()), os.environ)
    if place is None:
        return []
    root = os.path.join(os.path.realpath(Path(place.path).parent.parent), "")  # noqa: PTH118
    below = [file.path for file in trusted.files() if file.path.startswith(root)]
    paths = [path for path in dict.fromkeys(below) if Path(path).name != NAME]
    return [path for path in paths if trusted.distrust(path)]


def say(line: str) -> None:
    """Write a line; a character that the stream cannot show is escaped, instead of ending the program."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.stdout.write(f"{line}\n")
