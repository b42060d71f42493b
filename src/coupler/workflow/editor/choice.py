"""Which workflow a prompt means, whether it may run, and with which inputs."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from coupler.agent.session import KeptTrust
from coupler.redaction.masker import Masker
from coupler.redaction.sources import declared_secrets
from coupler.workflow.editor.arguments import hint_of, words_in
from coupler.workflow.editor.input_form import asked_for, wanted
from coupler.workflow.editor.wording import not_trusted, not_valid, unknown_name, wrong_inputs
from coupler.workflow.errors import InputError, InvalidWorkflowError, WorkflowError
from coupler.workflow.language.inputs import as_input, bind, pairs_in
from coupler.workflow.language.library import Library, is_path
from coupler.workflow.language.trusting import untrusted_files
from coupler.workflow.packages import need_packages

if TYPE_CHECKING:
    from coupler.agent.agent import Command
    from coupler.agent.turn import Turn
    from coupler.store.runs import RunRecord
    from coupler.workflow.editor.typed import Typed
    from coupler.workflow.language.bundle import Bundle
    from coupler.workflow.language.definition import Json, Workflow


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
