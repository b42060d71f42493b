"""Which files of a workflow the user has to trust before it runs: by where they are, and by what is in them.

A name may mean a file of a cloned repository, and needs trust. A path on the command line is the user's word
for that file and for those below its directory, and the user's own workflows need none. The code of Python
agents and the programs of MCP servers are files that a workflow names like any other; what these use in turn
is as unknown as what a command runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from coupler.config.config import TrustedFiles
from coupler.store.choices import Trust
from coupler.workflow.errors import WorkflowError
from coupler.workflow.language.bundle import Bundle
from coupler.workflow.language.definition import Workflow
from coupler.workflow.language.library import Found, Library, is_path
from coupler.workflow.language.programs import programs_of
from coupler.workflow.language.reading import load


class FileToTrust(NamedTuple):
    """A file with the content that would be trusted."""

    path: str
    real_path: str
    content: bytes


def untrusted_files(
    bundle: Bundle, given: str, library: Library, trust: TrustedFiles | None
) -> list[FileToTrust]:
    """The files of a bundle that have to be trusted first; `given` is how the user has named it."""
    consent = os.path.dirname(os.path.realpath(bundle.main.file)) if is_path(given) else None  # noqa: PTH120
    return _untrusted(bundle.workflows, library, trust, consent)


def untrusted_of_project(library: Library, trust: TrustedFiles | None) -> list[FileToTrust]:
    """Those of all workflows of the project."""
    return _untrusted(_of_project(library), library, trust, None)


def untrusted_of(found: Found, library: Library, trust: TrustedFiles | None) -> list[FileToTrust]:
    """Those of one workflow that is called by its name."""
    return _untrusted(library.gathered(found), library, trust, None)


def trust_files(trust: Trust, files: Iterable[FileToTrust]) -> None:
    """Remember them as they were shown, even if they have changed since."""
    for file in files:
        trust.trust(file.real_path, file.content)


def _of_project(library: Library) -> Iterator[Workflow]:
    for found in library.all():
        if isinstance(found, Found) and found.origin == "project":
            yield from library.gathered(found)


def _untrusted(
    workflows: Iterable[Workflow], library: Library, trust: TrustedFiles | None, consent: str | None
) -> list[FileToTrust]:
    """Each file once, and only those that somebody else may have written."""
    needed = {
        file.real_path: file
        for workflow in workflows
        if not _is_below(workflow.file, library.user_directory)
        for file in _files_of(workflow, None if consent is not None else library.directory)
        if not _is_below(file.real_path, consent)
    }
    return [
        file
        for file in needed.values()
        if trust is None or not trust.is_trusted(file.real_path, file.content)
    ]


def _files_of(workflow: Workflow, cwd: str | None) -> Iterator[FileToTrust]:
    """`cwd` is where Python agents are looked for that are not beside the workflow."""
    directory = Path(workflow.file).parent
    paths: Sequence[str] = [workflow.file, *(str(directory / file.name) for file in workflow.files)]
    for path in paths:
        try:
            content = load(path)
        except (WorkflowError, ValueError):
            continue  # it is not there, which the check of the workflow tells
        yield FileToTrust(path, os.path.realpath(path), content)
    for program in programs_of(workflow, [directory, *([] if cwd is None else [Path(cwd)])]):
        with suppress(OSError, ValueError):  # it is not there, and so is not run
            yield FileToTrust(str(program), os.path.realpath(program), program.read_bytes())


def _is_below(path: str, directory: str | None) -> bool:
    return directory is not None and path.startswith(os.path.join(directory, ""))  # noqa: PTH118
