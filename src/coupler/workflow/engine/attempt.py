"""One try at one step: all that its work needs of the run around it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from coupler.workflow.engine.front import Front
from coupler.workflow.journal.happenings import Decided, Happening, Place
from coupler.workflow.journal.result import Result
from coupler.workflow.language.definition import Json, Template, Workflow

if TYPE_CHECKING:
    from coupler.client.reply import Budget
    from coupler.workflow.agents.agents import Agents
    from coupler.workflow.engine.running import Memory
    from coupler.workflow.expressions.flow_expressions import FlowExpressions


@dataclass(frozen=True)
class Attempt:
    """Belongs to the task that performs the step, and ends with it."""

    place: Place
    workflow: Workflow
    names: Mapping[str, object]
    """What expressions see: inputs, secrets, steps, vars, run, and the names of loops."""
    expressions: FlowExpressions
    cwd: str
    """Where the step works: absolute, and there."""
    env: Mapping[str, str]
    """What its programs get besides our own environment."""
    memory: Memory
    front: Front
    asking: asyncio.Lock
    """Held while somebody is asked, so that questions come one at a time."""
    agents: Agents
    budget: Budget | None = None
    """What is left for all steps of the workflow, if it is called and says so."""
    number: int = 1
    mask: Callable[[str], str] = str
    """Hides secrets in what people see; before a text is cut, because nobody recognises the half of one."""
    interrupted: list[Result] = field(default_factory=list)
    """What there is of the step if it is cancelled, from who performs it: its time may just be up."""

    @property
    def name(self) -> str:
        """What the paths of steps inside of this one begin with; another attempt has others."""
        return str(self.place) if self.number == 1 else f"{self.place}~{self.number}"

    def text(self, template: Template) -> str:
        """A template as text."""
        return self.expressions.text(template, self.names)

    def value(self, template: Json) -> Json:
        """A template as a value: one whole `{{ }}` keeps its type; lists and mappings are rendered inside."""
        return self.expressions.value(template, self.names)

    def emit(self, happening: Happening) -> None:
        """Tell what happens in this step."""
        self.memory.note(msgspec.structs.replace(happening, place=self.place))

    def decision(self, what: str) -> Json:
        """What was decided at this step, maybe by an earlier process, or `UNSET`."""
        return self.memory.decision(self.place, what)

    async def decide(self, what: str, value: Json) -> None:
        """Keep what must come out the same way when the run is resumed; durable when this returns."""
        self.emit(Decided(what=what, value=value))
        await self.memory.durable()
