"""In which list of steps a step stands, of all those that a run goes through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from coupler.workflow.journal.happenings import Place
from coupler.workflow.language.definition import Step

if TYPE_CHECKING:
    from coupler.client.reply import Budget
    from coupler.workflow.engine.parts import Part


@dataclass(frozen=True)
class Where:
    """What the paths of a list's steps begin with, and what stands around it."""

    cwd: str
    """Where its steps work, unless they say otherwise."""
    env: Mapping[str, str] = field(default_factory=dict)
    """What the programs of its steps get besides our own environment."""
    prefix: str = ""
    parent: Place | None = None
    part: Part | None = None
    """The branch or the iteration that it is, if it is one."""
    is_afterwards: bool = False
    """It is done when all is over, whatever is left of the run's limits."""
    budget: Budget | None = None
    """What the workflow that is called here may use; None: what the whole run may."""
    is_over: bool = False
    """The step around it is over: nothing in here runs any more, results are gathered from the journal."""

    def place(self, step: Step, visit: int) -> Place:
        return Place(f"{self.prefix}{step.id}", visit)

    def inside(self, parent: Place, prefix: str, part: Part | None = None) -> Where:
        """For a list of steps inside of one of these."""
        return replace(self, parent=parent, prefix=prefix, part=part)
