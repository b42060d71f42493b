"""The workflows of a directory as slash commands, and whether their files have changed.

All of it reads the disk and may block: whoever serves others meanwhile does it in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from coupler.agent.agent import Command
from coupler.agent.session import KeptTrust
from coupler.config.lookup import ConfigError, project_workflows, shown, workflows_directory
from coupler.redaction.masker import Masker
from coupler.redaction.sources import declared_secrets
from coupler.runtime.extras import MissingExtraError
from coupler.runtime.threads import in_thread
from coupler.workflow.editor.arguments import asked_for, hint_of, wanted, words_in
from coupler.workflow.editor.chat_messages import not_trusted, not_valid, unknown_name, wrong_inputs
from coupler.workflow.errors import InputError, InvalidWorkflowError, WorkflowError, need_packages
from coupler.workflow.language.inputs import as_input, bind, pairs_in
from coupler.workflow.language.library import Library, is_path, no_command, untrusted_files

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn
    from coupler.store.runs import RunRecord
    from coupler.workflow.editor.arguments import Typed
    from coupler.workflow.language.library import Bundle
    from coupler.workflow.language.model import Json, Workflow


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
        from coupler.workflow.language.reader import read_workflow
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


# Looks at the workflows of a session's directory: when the session begins, and again while it is open.


log = logging.getLogger("coupler.workflow")

INTERVAL = 1.0
"""Seconds between two looks at the files, at least."""

REST = 10
"""How many times as long as a look the time is until the next one, at least."""

FIRST_LOOK = 0.5
"""Seconds that a new session waits for its commands, so that they come with it."""


class Lookout:
    """Of one session; `put_up` is told what there is, each time that it has changed."""

    def __init__(self, session: Session, put_up: Callable[[Session, Shelf], None]) -> None:
        self._session = session
        self._put_up = put_up
        self._is_known = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Look, and go on with that; a first look that takes long is not waited for."""
        self._watching = asyncio.create_task(self._watch())
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LOOK):
                await self._is_known.wait()

    async def until_known(self) -> None:
        """Wait until there was a first look, however long that takes."""
        await self._is_known.wait()

    async def end(self) -> None:
        """Look no more."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    async def _watch(self) -> None:
        state = None
        while True:
            began = time.monotonic()
            try:
                found = await in_thread(lambda: state_of(self._session.cwd))
                if found != state:
                    state = found
                    self._put_up(self._session, await in_thread(lambda: look_at(self._session.cwd)))
            except Exception:
                log.exception("the workflows of a session could not be looked at")
            self._is_known.set()
            # A clone may have any number of files: looking at them must not keep a processor busy.
            await asyncio.sleep(max(INTERVAL, REST * (time.monotonic() - began)))


# Which workflow a prompt means, whether it may run, and with which inputs.


class RefusedError(WorkflowError):
    """What was asked for cannot be done; the message is for the chat."""


def bundle_of(given: str, directory: str, served: str | None, commands: Sequence[Command]) -> Bundle:
    """The workflow of a name, or the file that is `served`, with all that it calls; reads the disk.

    Raises RefusedError. A path is nobody's word in a chat, where strangers' texts are pasted.
    """
    need_packages()
    library = Library(directory)
    if given != served:
        names = [each.name for each in library.all()]
        if is_path(given) or given not in names:
            near = get_close_matches(given[:60], names, n=3)
            raise RefusedError(unknown_name(given, near, commands))
    try:
        bundle = library.bundle_of(given)
    except InvalidWorkflowError as error:
        raise RefusedError(not_valid(given, str(error))) from None
    if files := untrusted_files(bundle, given, library, KeptTrust()):
        raise RefusedError(not_trusted(file.path for file in files))
    return bundle


def name_of(record: RunRecord, directory: str, served: str | None) -> str:
    """How the workflow of a run is named here; raises RefusedError if it is not one of this session's."""
    if record.file == served:
        return served
    names = {each.name: each.file for each in Library(directory).all()}
    if record.cwd != directory or names.get(record.workflow) != record.file:
        raise RefusedError(f"The run `{record.id}` began elsewhere: go on with `coupler resume {record.id}`.")
    return record.workflow


async def inputs_in(turn: Turn, typed: Typed, workflow: Workflow, command: str) -> dict[str, Json]:
    """The inputs that were typed, or filled in where they were wrong; raises RefusedError with the usage."""
    cwd = turn.session.cwd
    try:
        pairs = typed.meant(pairs_in(words_in(typed.text, workflow), workflow), workflow, cwd)
        filled = await asked_for(turn, f"Inputs of {workflow.name}", wanted(workflow, pairs, cwd))
        return bind(workflow, {**pairs, **(filled or {})}, cwd)
    except InputError as error:
        told = wrong_inputs(error, workflow, f"{command} {hint_of(workflow)}".strip())
        # What has no name may be a secret that was meant for an input.
        masker = Masker(declared_secrets(typed.hidden(workflow)))
        raise RefusedError(masker.mask(typed.spelled(told))) from None


def secrets_again(typed: str, workflow: Workflow, cwd: str) -> dict[str, Json]:
    """The secret inputs that are given again to a run that goes on; raises RefusedError for any other."""
    secrets = {name: declared for name, declared in workflow.inputs.items() if declared.secret}
    named = ", ".join(f"`{name}`" for name in secrets) or "none"
    try:
        pairs = pairs_in(words_in(typed, workflow), workflow) if typed.strip() else {}
        return {name: as_input(secrets[name], text, cwd) for name, text in pairs.items()}
    except (InputError, KeyError):
        # What was typed may be a secret, and is not repeated.
        raise RefusedError(
            "A run that goes on has its inputs, and takes only secret ones again, each as name=value: "
            f"here {named}."
        ) from None
