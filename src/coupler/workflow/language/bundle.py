"""A workflow and all that it calls, read before anything runs.

So that a mistake in the last of them is known first, a run that is resumed has what it began with, and a
workflow that calls itself is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from coupler.workflow.errors import InvalidWorkflowError, Problem, WorkflowError
from coupler.workflow.language.definition import Call, Position, Workflow, all_steps, lists_of
from coupler.workflow.language.programs import programs_of

DEEPEST = 16
"""How many workflows may call each other in a row."""

Find = Callable[[str, Workflow], Workflow]
"""Reads the workflow that another one calls by a name or a path; raises `WorkflowError`."""


@dataclass(frozen=True)
class Bundle:
    """Workflows by the file that calls them and the name by which it does."""

    main: Workflow
    called: Mapping[tuple[str, str], Workflow]

    @property
    def digest(self) -> str:
        """Changes when one of them does, or code beside them that they name."""
        digests = {workflow.file: workflow.digest for workflow in self.workflows}
        for workflow in self.workflows:
            for program in programs_of(workflow, [Path(workflow.file).parent]):
                with suppress(OSError, ValueError):  # one that is not there is told when it is needed
                    digests[str(program)] = hashlib.sha256(program.read_bytes()).hexdigest()
        text = "\n".join(f"{digests[file]}" for file in sorted(digests))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def workflows(self) -> tuple[Workflow, ...]:
        """Each of them once, the main one first."""
        by_file = {self.main.file: self.main}
        by_file.update((workflow.file, workflow) for workflow in self.called.values())
        return tuple(by_file.values())

    def called_by(self, caller: Workflow, name: str) -> Workflow:
        return self.called[caller.file, name]


def gather_bundle(main: Workflow, find: Find) -> Bundle:
    """Read what a workflow calls, and what that calls; raises `InvalidWorkflowError` with all problems."""
    called: dict[tuple[str, str], Workflow] = {}
    problems: list[Problem] = []
    _gather(main, (main,), find, called, problems)
    if problems:
        raise InvalidWorkflowError(problems)
    return Bundle(main, called)


def _gather(
    caller: Workflow,
    chain: tuple[Workflow, ...],
    find: Find,
    called: dict[tuple[str, str], Workflow],
    problems: list[Problem],
) -> None:
    for step in calls_in(caller):
        key = (caller.file, step.workflow)
        try:
            workflow = called.get(key) or find(step.workflow, caller)
        except InvalidWorkflowError as error:
            problems.extend(error.problems)
            continue
        except WorkflowError as error:
            problems.append(Problem(step.position, str(error)))
            continue
        problem = _wrong_chain(step.position, chain, workflow)
        if problem is not None:
            problems.append(problem)
        elif key not in called:
            called[key] = workflow
            _gather(workflow, (*chain, workflow), find, called, problems)


def _wrong_chain(position: Position, chain: tuple[Workflow, ...], workflow: Workflow) -> Problem | None:
    names = " → ".join(each.name for each in (*chain, workflow))
    if any(workflow.file == each.file for each in chain):
        return Problem(position, f"a workflow must not call itself: {names}")
    if len(chain) >= DEEPEST:
        return Problem(position, f"more than {DEEPEST} workflows call each other in a row: {names}")
    return None


def calls_in(workflow: Workflow) -> list[Call]:
    """The steps of a workflow that call another one."""
    return [step for steps in lists_of(workflow) for step in all_steps(steps) if isinstance(step, Call)]
