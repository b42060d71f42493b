"""Defines what a kind of step has, for the engine, the checks and the front ends to ask."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from coupler.workflow.expressions.expression import unknown
from coupler.workflow.journal.run_events import Rehearsed, Result
from coupler.workflow.language.model import ApprovalGate, Json, Step, Workflow, inner_lists

if TYPE_CHECKING:
    from coupler.schema.v1 import ToolKind
    from coupler.workflow.engine.attempt import Attempt, StepScope
    from coupler.workflow.engine.blocks import BlockRun
    from coupler.workflow.validation.checks import StepCheck

S = TypeVar("S", bound=Step)


class StepKind(Generic[S]):
    """A kind of step. Has no state: there is one object of it, for all steps of the kind."""

    struct: type[S]
    """Declares the keys of such a step, and is what the reader makes of it."""

    takes_defaults: ClassVar[bool] = False
    """True if the `defaults` of the file hold for it."""
    works: ClassVar[bool] = False
    """True if it does something by itself, which a run that goes step by step asks about before."""
    opens_files: ClassVar[bool] = False
    """True if it opens files of this process while it works, of which there are only so many."""
    is_instant: ClassVar[bool] = False
    """True if nothing can interrupt it in its midst: `once` says nothing about it."""
    is_loop: ClassVar[bool] = False
    """True if it has rounds, whose results are `steps.x.results`."""
    loop_fields: ClassVar[tuple[str, ...]] = ()
    """The fields of `loop` in its rounds."""
    has_branches: ClassVar[bool] = False
    """True if the steps inside are beside it once it is over."""
    sees_last_round: ClassVar[bool] = False
    """True if the steps of a round see those of the round before."""
    asks_user: ClassVar[bool] = False
    """True if somebody answers it: `--answer` may."""
    is_conversation: ClassVar[bool] = False
    """True if its agent gets what the user sends."""
    leaves_list: ClassVar[str] = ""
    """Says what it does if no other step of the list comes after it."""

    call_kind: ClassVar[ToolKind] = "other"
    """The kind of the tool call that stands for it in an editor."""
    is_always_shown: ClassVar[bool] = False
    """True if it is a call of its own in an editor however often it comes."""
    generic_title: ClassVar[re.Pattern[str] | None] = None
    """Matches a title that nobody gave it, so that its id is shown as well."""
    is_detailed: ClassVar[bool] = False
    """True if a dry run shows what it would do in place of its title."""
    conditional_end: ClassVar[str] = ""
    """Said of it by a dry run if its `if` is not decided before the run."""
    shape: ClassVar[tuple[str, str]] = ("[", "]")
    """The node of a flowchart, in Mermaid's language."""

    @property
    def name(self) -> str:
        """The key by which a step says that it is of this kind."""
        return str(self.struct.__struct_config__.tag)

    # Names

    def fields(self, step: S, workflow: Workflow) -> Sequence[str]:
        """Return the fields of `steps.x` that steps of this kind have, besides those of every step."""
        return ()

    def output_names(self, step: S) -> Sequence[str] | None:
        """Return the names in `steps.x.output`; None if they are not known before it runs."""
        return None

    def variables(self, step: S) -> Iterator[str]:
        """Yield the variables that it sets in the list around it."""
        yield from ()

    def is_concurrent(self, step: S) -> bool:
        """Tell whether rounds of a loop may run beside each other."""
        return False

    def loop_names(self, step: S) -> frozenset[str]:
        """Return the names that the steps inside have besides those around it."""
        return frozenset()

    def order(self, step: S) -> Iterator[tuple[int, frozenset[int]]]:
        """Yield the numbers of the lists inside, each after those that it needs, with these."""
        for number, _ in enumerate(inner_lists(step)):
            yield number, frozenset()

    # Checks

    def check(self, step: S, check: StepCheck) -> None:
        """Report what is wrong with it where it stands in the file."""

    def text_file(self, step: S) -> str | None:
        """Return the name of the file whose text is a template of the step."""
        return None

    def schema(self, step: S) -> Json | None:
        """Return the JSON Schema of its output, or the name of a file with one."""
        return None

    def agent(self, step: S) -> str | None:
        """Return the agent that it names."""
        return None

    def called(self, step: S) -> str | None:
        """Return the workflow that it calls."""
        return None

    def own_gate(self, step: S) -> ApprovalGate | None:
        """Return the question that the step itself is."""
        return None

    def check_answers(self, step: S, texts: Sequence[str], cwd: str) -> None:
        """Raise `InputError` for answers that it cannot take."""

    # Titles

    def title(self, step: S) -> str:
        """Return its title, as it was written, if it has no description."""
        raise NotImplementedError

    def outline(self, step: S) -> str:
        """Return its title where the whole file is shown."""
        return self.title(step)

    def box_title(self, step: S) -> str:
        """Return what a flowchart says of the box around the steps inside, behind its name."""
        return self.outline(step)

    def list_title(self, step: S, number: int) -> str | None:
        """Return the line above one of the lists inside, which count from 1."""
        return None

    # Work

    async def perform(self, step: S, attempt: Attempt) -> Result:
        """Do what the step says; raises `StepError`."""
        raise AssertionError(f"{step.id} is made of other steps")

    def rehearsal(self, step: S, attempt: Attempt) -> str:
        """Return what the step would do, with its templates rendered."""
        raise AssertionError(f"{step.id} is made of other steps")

    async def rehearse(self, step: S, attempt: Attempt) -> Result:
        """Report in a dry run what the step would do, and return marks in place of its result."""
        text = self.rehearsal(step, attempt)
        attempt.emit(Rehearsed(text=text, cwd=attempt.cwd, env=dict(attempt.env)))
        return unknown_result(step.id)

    def mocked(self, step: S, content: str, attempt: Attempt) -> Result:
        """Return the result with a file's text as the step's output or answer; raises `StepError`."""
        text = content.removesuffix("\n")
        return Result(status="success", text=text, output=text)

    def result_of_done(self, step: S) -> Result:
        """Return the result if somebody says that the step was done: what came out of it is not known."""
        return Result(status="success", marked_done=True)

    def take_effect(self, step: S, result: Result, scope: StepScope) -> None:
        """Apply a success to the list around it, also when it comes from the journal."""


class BlockKind(StepKind[S]):
    """A kind of step that is made of others."""

    is_recalled: ClassVar[bool] = True
    """True if the results of the steps inside can be read once it is over."""

    async def go_through(self, step: S, block: BlockRun) -> Json:
        """Run what is inside, or take it from the journal; returns `steps.x.output`, or `UNSET`."""
        raise NotImplementedError


def unknown_result(id: str) -> Result:
    """Return the result of a step in a dry run: marks in place of its texts, and no outputs."""
    stdout, stderr, text = (unknown(id, field) for field in ("stdout", "stderr", "text"))
    return Result(status="success", exit_code=0, approved=True, stdout=stdout, stderr=stderr, text=text)


AnyKind = StepKind[Any]
