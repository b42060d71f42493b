"""Collects the problems of a workflow, and finds their exact positions in the file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Literal

from coupler.fields.nodes import ListNode, MappingNode, Node, ScalarNode
from coupler.runtime.formatting import listed
from coupler.workflow.errors import Problem
from coupler.workflow.language.error_recovery import RemovedParts
from coupler.workflow.language.model import SourcePosition, Step
from coupler.workflow.language.reader import Reading, load

MOST_PROBLEMS = 100
"""Problems of one file that are reported; more of them help nobody."""

MOST_NAMES = 12
"""Names that a sentence lists."""


class ProblemCollector:
    """The problems of one file so far, each of them once."""

    def __init__(self, reading: Reading) -> None:
        self.root = reading.root
        self.gaps = reading.gaps or RemovedParts()
        """The faulty parts that were removed from the file, which are reported already."""
        self._problems: dict[Problem, None] = {}
        self._lines = load(reading.workflow.file).decode("utf-8", "replace").splitlines()
        self._steps = {node.position: node for node in _mappings_in(reading.root)}
        self._hidden = {each.position for each in scalars_in(self.root) if self.gaps.hide(each.text)}

    @property
    def problems(self) -> list[Problem]:
        return [*self._problems]

    @property
    def is_full(self) -> bool:
        """True if no more problems are reported, and so need not be looked for."""
        return len(self._problems) >= MOST_PROBLEMS

    def wrong(self, position: SourcePosition, message: str) -> None:
        """Add an error."""
        self._add(position, message, "error")

    def warn(self, position: SourcePosition, message: str) -> None:
        """Add a warning, for what can run all the same."""
        self._add(position, message, "warning")

    def _add(self, position: SourcePosition, message: str, severity: Literal["error", "warning"]) -> None:
        if not self.is_full and position not in self._hidden:
            self._problems[Problem(position, message, severity)] = None

    def node_of(self, step: Step, *path: str) -> Node | None:
        """Return the node under a key of a step, and the keys inside of that."""
        return node_at(self._steps.get(step.position), *path)

    def place_of(self, step: Step, *path: str) -> SourcePosition:
        """Return the position of that node; without such a key, that of the step."""
        node = self.node_of(step, *path)
        return step.position if node is None else node.position

    def place_in(self, node: ScalarNode, line: int, spelling: re.Pattern[str]) -> SourcePosition:
        """Return the position of something in a line of a text, if it is written so in the file."""
        start = node.position
        if node.is_block:
            place = node.position_at(line)
            return self._found(spelling, place.line, 0, place.line) or place
        last = start.line + node.text.count("\n") + len(node.text) // 20 + 1
        return self._found(spelling, start.line, start.column - 1, last) or start

    def _found(self, spelling: re.Pattern[str], first: int, column: int, last: int) -> SourcePosition | None:
        for number in range(first, min(last, len(self._lines)) + 1):
            text = self._lines[number - 1]
            if found := spelling.search(text, column if number == first else 0):
                return SourcePosition(self.root.position.file, number, found.start() + 1)
        return None


def nearest(wrong: str, known: Sequence[str]) -> str:
    """End a sentence about an unknown name: with the nearest, else with those there are, if few."""
    near = get_close_matches(wrong[:60], known, n=1)
    if near:
        return f"did you mean `{near[0]}`?"
    more = len(known) - MOST_NAMES
    return f"use one of {listed(known[:MOST_NAMES])}{f' or {more} more' if more > 0 else ''}"


def node_at(node: Node | None, *path: str) -> Node | None:
    """Return the node under keys that are inside of each other."""
    for key in path:
        node = node.get(key) if isinstance(node, MappingNode) else None
    return node


def scalars_in(node: Node | None) -> Iterator[ScalarNode]:
    """Yield all values below a node."""
    match node:
        case ScalarNode():
            yield node
        case ListNode():
            for each in node.nodes:
                yield from scalars_in(each)
        case MappingNode():
            for each in node.values.values():
                yield from scalars_in(each)
        case None:
            pass


def _mappings_in(node: Node) -> Iterator[MappingNode]:
    match node:
        case ListNode():
            for each in node.nodes:
                yield from _mappings_in(each)
        case MappingNode():
            yield node
            for each in node.values.values():
                yield from _mappings_in(each)
        case _:
            pass
