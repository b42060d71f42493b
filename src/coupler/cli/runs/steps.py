"""The steps of a run as a tree: what is known of each from the log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from coupler.workflow.journal.run_events import (
    AnyHappening,
    Place,
    Result,
    RunResumed,
    StepFinished,
    StepStarted,
)

_LAST = re.compile(r"(~[0-9]+)?(\[[0-9]+\])?[./][^./]*$")
"""What follows the step around it in the path of a step: `[2].fix`, `.security`, `~2/lint`."""


@dataclass
class StepNode:
    """One visit to a step."""

    place: Place
    title: str = ""
    attempt: int = 1
    result: Result | None = None
    inside: list[StepNode] = field(default_factory=list)

    @property
    def has_failed(self) -> bool:
        return self.result is not None and self.result.status == "failed"


def steps_in(told: Iterable[AnyHappening]) -> list[StepNode]:
    """The steps that stand by themselves, each with those inside of it, in the order in which they began."""
    nodes: dict[Place, StepNode] = {}
    for happening in _that_count(told):
        place = happening.place
        assert place is not None
        node = nodes.setdefault(place, StepNode(place))
        if isinstance(happening, StepStarted):
            # It runs again after it was cancelled or interrupted.
            node.title, node.attempt, node.result = happening.title, happening.attempt, None
        else:
            node.result = happening.result
    return [*_rooted(nodes)]


def name_inside(place: Place, parent: Place | None) -> str:
    """What a step is called below the one around it: `[2].fix`, `security`."""
    return str(place) if parent is None else str(place).removeprefix(str(parent)).lstrip("./")


def name_around(place: Place) -> str:
    """The name of the step that a step is inside of; nothing if it is inside of none."""
    name, count = _LAST.subn("", place.path)
    return name if count else ""


def _that_count(told: Iterable[AnyHappening]) -> list[StepStarted | StepFinished]:
    """Without what was forgotten when the run was resumed from a step."""
    counting: list[StepStarted | StepFinished] = []
    for happening in told:
        match happening:
            case StepStarted() | StepFinished() if happening.place is not None:
                counting.append(happening)
            case RunResumed(place=place, forgets=forgets):
                places = [each.place for each in counting]
                if place in places:
                    del counting[places.index(place) :]
                counting = [each for each in counting if each.place not in forgets]
    return counting


def _rooted(nodes: dict[Place, StepNode]) -> Iterator[StepNode]:
    by_name = {str(place): node for place, node in nodes.items()}
    for node in nodes.values():
        around = by_name.get(name_around(node.place))
        if around is None:
            yield node
        else:
            around.inside.append(node)
