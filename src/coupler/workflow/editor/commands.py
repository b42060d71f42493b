"""Offers the workflows of a directory as slash commands, and finds the workflow that a prompt means.

Everything here but the watcher reads the disk and may block: callers that serve others use a thread.
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
from coupler.agent.session import StoredTrust
from coupler.config.lookup import ConfigError, project_workflows, workflows_directory
from coupler.redaction.masker import Masker
from coupler.redaction.sources import declared_secrets
from coupler.runtime.extras import MissingExtraError
from coupler.runtime.formatting import printable
from coupler.runtime.threads import in_thread
from coupler.workflow.editor.arguments import ask_for_inputs, input_hint, inputs_to_ask, words_in
from coupler.workflow.editor.chat_messages import (
    input_problems,
    not_trusted,
    not_valid,
    unknown_name,
    wrong_inputs,
)
from coupler.workflow.errors import InputError, InvalidWorkflowError, WorkflowError, require_packages
from coupler.workflow.language.inputs import bind_inputs, inputs_in_words, parse_input
from coupler.workflow.language.library import Broken, Library, is_path, untrusted_files, why_no_command

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn
    from coupler.store.runs import RunRecord
    from coupler.workflow.editor.arguments import PromptText
    from coupler.workflow.language.library import Bundle
    from coupler.workflow.language.model import Json, Workflow


log = logging.getLogger("coupler.workflow")

MOST_PROBLEMS = 3
"""Problems of a broken file that are listed; `coupler workflows validate` shows the others."""

WATCH_INTERVAL = 1.0
"""Seconds between two scans of the files, at least."""

WATCH_REST_FACTOR = 10
"""Least time between two scans, as a multiple of the time that a scan takes."""

FIRST_SCAN_TIMEOUT = 0.5
"""Seconds that a new session waits for its commands, so that they come with it."""

FileState = tuple[str, int, int]
"""A file's path, modification time and size."""

DirectoryState = tuple[FileState, ...]


class PromptRefusedError(WorkflowError):
    """A prompt asks for what cannot be done; the message is for the chat."""


class InputsRefusedError(PromptRefusedError):
    """The inputs of a workflow, or the blocks of a prompt, do not fit; `problems` has a sentence for each."""

    def __init__(self, message: str, workflow: str, problems: Sequence[str]) -> None:
        super().__init__(message)
        self.workflow = workflow
        self.problems = (*problems,)


@dataclass(frozen=True)
class LoadedWorkflow:
    """A workflow as it was read, and the state of its file then."""

    workflow: Workflow
    state: FileState | None

    @property
    def is_current(self) -> bool:
        """Tell whether the file is still as it was read."""
        return self.state is not None and file_state(self.workflow.file) == self.state


@dataclass(frozen=True)
class WorkflowCommands:
    """The slash commands of a directory, and notes about files that are left out."""

    commands: tuple[Command, ...] = ()
    notes: tuple[str, ...] = ()
    workflows: Mapping[str, LoadedWorkflow] = field(default_factory=dict)
    """The workflows behind the commands, by their names."""
    left_out: frozenset[str] = frozenset()
    """The names of files that are not valid: who types one means the workflow."""

    @property
    def names(self) -> set[str]:
        return {command.name for command in self.commands}


class WorkflowWatcher:
    """Watches the workflow files of a session's directory; reports the commands each time they change."""

    def __init__(self, session: Session, on_change: Callable[[Session, WorkflowCommands], None]) -> None:
        self._session = session
        self._on_change = on_change
        self._is_known = asyncio.Event()
        self._state: DirectoryState | None = None
        self._watching: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Start watching; a first scan that takes long is not waited for."""
        self._watching = asyncio.create_task(self._watch())
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SCAN_TIMEOUT):
                await self._is_known.wait()

    async def until_known(self) -> None:
        """Wait until the first scan is done, however long that takes."""
        await self._is_known.wait()

    async def scan(self) -> None:
        """Look at the files now, and report the commands if they have changed; a failure is logged."""
        try:
            found = await in_thread(lambda: directory_state(self._session.cwd))
            if found != self._state:
                self._state = found
                self._on_change(self._session, await in_thread(lambda: load_commands(self._session.cwd)))
        except Exception:
            log.exception("the workflows of a session could not be looked at")

    async def end(self) -> None:
        """Stop watching."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    async def _watch(self) -> None:
        while True:
            began = time.monotonic()
            await self.scan()
            self._is_known.set()
            # A clone may have any number of files: looking at them must not keep a processor busy.
            await asyncio.sleep(max(WATCH_INTERVAL, WATCH_REST_FACTOR * (time.monotonic() - began)))


def load_commands(directory: str) -> WorkflowCommands:
    """Read all workflows of a directory; a file that cannot be used hides none of the others."""
    try:
        require_packages()
        states = {state[0]: state for state in directory_state(directory)}
        all_found = Library(directory).all()
    except (MissingExtraError, ConfigError) as error:
        return WorkflowCommands(notes=(str(error),))
    commands: list[Command] = []
    notes: list[str] = []
    workflows: dict[str, LoadedWorkflow] = {}
    for found in all_found:
        if isinstance(found, Broken):
            notes.append(_broken_note(found.name, list(map(str, found.problems))))
        elif reason := why_no_command(found.name):
            notes.append(f"The workflow `{found.name}` in {printable(found.file, 400)} is left out: {reason}")
        else:
            workflow = found.workflow
            commands.append(command_of(workflow))
            workflows[workflow.name] = LoadedWorkflow(workflow, states.get(found.file))
    broken = frozenset(each.name for each in all_found if isinstance(each, Broken))
    return WorkflowCommands(tuple(commands), tuple(notes), workflows, broken)


def command_of(workflow: Workflow) -> Command:
    """Return the slash command of a workflow."""
    about = " ".join(workflow.description.split()) or f"Run the workflow {workflow.name}"
    return Command(workflow.name, printable(about, 300), hint=input_hint(workflow) or None)


def directory_state(directory: str) -> DirectoryState:
    """Return a value that changes when a workflow file is changed, added or removed."""
    try:
        project = project_workflows(directory, os.environ)
    except ConfigError:
        return ()
    places = [workflows_directory(os.environ), None if project is None else project.path]
    return tuple(sorted(each for place in places if place is not None for each in _files_in(place)))


def load_served_workflow(file: str) -> LoadedWorkflow | None:
    """Read the workflow that is served alone; None if it cannot be read now."""
    try:
        require_packages()
        from coupler.workflow.language.reader import read_workflow
    except MissingExtraError:
        return None
    state = file_state(file)
    try:
        return LoadedWorkflow(read_workflow(file), state)
    except WorkflowError:
        return None


def file_state(path: str) -> FileState | None:
    """Return the state of a file; None if there is none."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return path, status.st_mtime_ns, status.st_size


def load_bundle(given: str, directory: str, served: str | None, commands: Sequence[Command]) -> Bundle:
    """Load the workflow of a name, or the file that is `served`, with all that it calls.

    Raises PromptRefusedError. A path is never taken from a chat, where strangers' texts are pasted.
    """
    require_packages()
    library = Library(directory)
    if given != served:
        names = [each.name for each in library.all()]
        if is_path(given) or given not in names:
            near = get_close_matches(given[:60], names, n=3)
            raise PromptRefusedError(unknown_name(given, near, commands))
    try:
        bundle = library.bundle_of(given)
    except InvalidWorkflowError as error:
        raise PromptRefusedError(not_valid(given, str(error))) from None
    if files := untrusted_files(bundle, given, library, StoredTrust()):
        raise PromptRefusedError(not_trusted(file.path for file in files))
    return bundle


def workflow_of_run(record: RunRecord, directory: str, served: str | None) -> str:
    """Return the name of a run's workflow here; raises PromptRefusedError if it is not this session's."""
    if record.file == served:
        return served
    names = {each.name: each.file for each in Library(directory).all()}
    if record.cwd != directory or names.get(record.workflow) != record.file:
        raise PromptRefusedError(
            f"The run `{record.id}` began elsewhere: go on with `coupler resume {record.id}`."
        )
    return record.workflow


async def inputs_from_prompt(
    turn: Turn, typed: PromptText, workflow: Workflow, command: str
) -> dict[str, Json]:
    """Return the inputs that were typed or filled in; raises PromptRefusedError with the usage.

    `command` is the slash command that they stand behind; empty for a message to a workflow that is served
    alone.
    """
    cwd = turn.session.cwd
    try:
        words = words_in(typed.text, workflow, is_message=not command)
        pairs = typed.meant(inputs_in_words(words, workflow), workflow, cwd)
        filled = await ask_for_inputs(turn, f"Inputs of {workflow.name}", inputs_to_ask(workflow, pairs, cwd))
        return bind_inputs(workflow, {**pairs, **(filled or {})}, cwd)
    except InputError as error:
        problems = input_problems(error, workflow)
        told = wrong_inputs(problems, workflow, f"{command} {input_hint(workflow)}".strip())
        # What has no name may be a secret that was meant for an input.
        masker = Masker(declared_secrets(typed.hidden(workflow), shortest=1))
        shown = [masker.mask(typed.expanded(problem)) for problem in problems]
        raise InputsRefusedError(masker.mask(typed.expanded(told)), workflow.name, shown) from None


def repeated_secret_inputs(typed: str, workflow: Workflow, cwd: str) -> dict[str, Json]:
    """Return the secret inputs given again to a run; raises PromptRefusedError for any other."""
    secrets = {name: declared for name, declared in workflow.inputs.items() if declared.secret}
    named = ", ".join(f"`{name}`" for name in secrets) or "none"
    try:
        pairs = inputs_in_words(words_in(typed, workflow), workflow) if typed.strip() else {}
        return {name: parse_input(secrets[name], text, cwd) for name, text in pairs.items()}
    except (InputError, KeyError):
        # What was typed may be a secret, and is not repeated.
        raise PromptRefusedError(
            "A run that goes on has its inputs, and takes only secret ones again, each as name=value: "
            f"here {named}."
        ) from None


def _broken_note(name: str, problems: list[str]) -> str:
    lines = [f"- {printable(problem, 400)}" for problem in problems[:MOST_PROBLEMS]]
    if len(problems) > MOST_PROBLEMS:
        lines.append(f"- and {len(problems) - MOST_PROBLEMS} more: see `coupler workflows validate`")
    return "\n".join(
        [f"The workflow `{printable(name, 60)}` is left out, because its file is not valid:", *lines]
    )


def _files_in(place: str) -> list[FileState]:
    """Return the states of all files of a directory: scripts and prompts beside a workflow count as well."""
    try:
        # What has no state is being replaced, or a link to nothing.
        return [state for path in Path(place).iterdir() if (state := file_state(str(path))) is not None]
    except OSError:
        return []  # there is none, or none that this user may look into
