"""Finds the kind of a step, or of a name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from coupler.workflow.language.model import inner_lists
from coupler.workflow.steps.agents import AgentKind, ConverseKind
from coupler.workflow.steps.blocks import ForEachKind, ParallelKind, WhileKind
from coupler.workflow.steps.control import BreakKind, CallKind, ContinueKind, SetKind, StopKind
from coupler.workflow.steps.http_request import HttpKind
from coupler.workflow.steps.kind import AnyKind, StepKind
from coupler.workflow.steps.questions import ApproveKind, AskKind
from coupler.workflow.steps.run import RunKind

if TYPE_CHECKING:
    from coupler.workflow.language.model import Step

ALL_KINDS: tuple[AnyKind, ...] = (
    RunKind(),
    HttpKind(),
    AgentKind(),
    ConverseKind(),
    ApproveKind(),
    AskKind(),
    ParallelKind(),
    ForEachKind(),
    WhileKind(),
    CallKind(),
    SetKind(),
    StopKind(),
    BreakKind(),
    ContinueKind(),
)
"""Every kind of step, in the order of the manual."""

_OF_STRUCTS: dict[type, AnyKind] = {kind.struct: kind for kind in ALL_KINDS}
_OF_NAMES = {kind.name: kind for kind in ALL_KINDS}
_UNKNOWN: AnyKind = StepKind()


def kind_of(step: Step) -> AnyKind:
    """Return the kind of a step."""
    return _OF_STRUCTS[type(step)]


def kind_named(name: str) -> AnyKind:
    """Return the kind of a name in a journal; one without particulars if this version does not know it."""
    return _OF_NAMES.get(name, _UNKNOWN)


def title_of(step: Step) -> str:
    """Return a step's title as it was written, with its `{{ }}`."""
    return step.description or kind_of(step).title(step)


def with_branches(step: Step) -> Iterator[Step]:
    """Yield a step, and those that are beside it once it is over."""
    yield step
    if kind_of(step).has_branches:
        for branch in inner_lists(step):
            for each in branch:
                yield from with_branches(each)
