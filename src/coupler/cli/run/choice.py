"""Which workflow is meant, whether it may run, and with which inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from coupler.cli.refusal import complain
from coupler.cli.run.questions import ask_approval, ask_value
from coupler.cli.sessions.wording import one_line
from coupler.cli.workflows.check import relative, seen_from
from coupler.workflow.errors import InputError, InvalidWorkflowError, RunError, need_packages
from coupler.workflow.journal.run_events import unpacked
from coupler.workflow.journal.run_secrets import OPENING
from coupler.workflow.language.inputs import as_input
from coupler.workflow.language.library import Library, is_path, trust_files, untrusted_files
from coupler.workflow.language.model import Input, Json

if TYPE_CHECKING:
    from coupler.cli.question_terminal import QuestionTerminal
    from coupler.store.runs import RunRecord
    from coupler.store.store import Store
    from coupler.workflow.language.library import Bundle
    from coupler.workflow.language.model import Workflow


class Chosen:
    """What the command line names: a name is looked up where the run works, and a path starts here."""

    def __init__(self, given: str, cwd: str) -> None:
        self._given = str(Path(given).absolute()) if is_path(given) else given
        self._library = Library(cwd)

    def read(self, program: str) -> Bundle:
        """Read and check it; raises WorkflowError. Warnings are told."""
        need_packages()
        checked = self._library.check(self._given)
        if checked.bundle is None:
            raise InvalidWorkflowError(checked.errors)
        for problem in checked.problems:
            complain(relative(problem, "."), program)
        return checked.bundle

    async def see_to_trust(self, bundle: Bundle, store: Store, terminal: QuestionTerminal | None) -> None:
        """Ask about files that somebody else may have written; raises RunError unless they are trusted."""
        files = untrusted_files(bundle, self._given, self._library, store.trust)
        if not files:
            return
        named = "\n".join(f"  {one_line(seen_from('.', file.path))}" for file in files)
        if terminal is None:
            raise RunError(
                "these files came with the project, and are not trusted yet: read them, and trust them with "
                f"`coupler trust`\n{named}"
            )
        question = (
            "These files came with the project, can run commands, and are not trusted yet:\n"
            f"{named}\nTrust them as they are now?"
        )
        async with terminal.turn():
            if not await ask_approval(terminal, "", question, None):
                raise RunError("nothing was run: read the files first, and say yes if you trust them")
        trust_files(store.trust, files)


async def fill_in(
    workflow: Workflow, given: Mapping[str, str], terminal: QuestionTerminal | None, cwd: str
) -> dict[str, Json]:
    """The inputs that were given, and those that are missing and somebody can be asked for."""
    missing = [
        declared
        for name, declared in workflow.inputs.items()
        if declared.required and declared.default is msgspec.UNSET and name not in given
    ]
    return {**given, **await _asked_for(missing, terminal, cwd)}


async def fill_in_secrets(
    workflow: Workflow,
    record: RunRecord,
    given: Mapping[str, str],
    terminal: QuestionTerminal | None,
) -> dict[str, Json]:
    """The secret inputs of a run, of which only references are kept; raises InputError for other inputs."""
    secrets = {name: declared for name, declared in workflow.inputs.items() if declared.secret}
    for name in given:
        if name not in secrets:
            listed = f": those are {', '.join(secrets)}" if secrets else ""
            raise InputError(f"a resumed run has its inputs, and takes only secret ones again{listed}")
    kept = unpacked(record.inputs)
    missing = [
        declared for name, declared in secrets.items() if OPENING in str(kept.get(name)) and name not in given
    ]
    if missing and terminal is None:
        raise InputError(f"give the secret input again, which is not kept: -i {missing[0].name}=VALUE")
    read = {name: as_input(secrets[name], text, record.cwd) for name, text in given.items()}
    return {**read, **await _asked_for(missing, terminal, record.cwd)}


async def _asked_for(missing: list[Input], terminal: QuestionTerminal | None, cwd: str) -> dict[str, Json]:
    values: dict[str, Json] = {}
    if terminal is None:
        return values
    for declared in missing:
        async with terminal.turn():
            question = declared.description or "it is needed"
            answer = await ask_value(terminal, declared.name, question, declared, cwd)
        if answer is None:
            break
        values[declared.name] = answer.value
    return values
