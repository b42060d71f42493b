"""Removes the faulty parts of a workflow's tree, so that the rest can still be checked.

Nothing of it runs: it serves to report all problems of a file at once. What was removed is remembered,
because a name that is missing only for that reason is no problem of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from coupler.fields.nodes import ListNode, MappingNode, Node, ScalarNode
from coupler.workflow.language.model import SourcePosition, step_lists
from coupler.workflow.language.shapes import STEP_ID_PATTERN

_MADE_ID = re.compile(r"[a-z0-9_]+_[0-9]+")
"""Matches an id that a step without one gets, whatever kind of step it is."""


@dataclass
class RemovedParts:
    """The parts that were removed from a file."""

    words: set[str] = field(default_factory=set)
    """All keys and texts in there: one of them may be the name of something."""
    mappings: set[SourcePosition] = field(default_factory=set)
    """The mappings that lost something."""
    places: set[SourcePosition] = field(default_factory=set)
    """The positions of these mappings, of what they still have, and of lists that lost something."""
    has_lost_steps: bool = False

    def hide(self, name: str) -> bool:
        """True if something of this name may have been removed."""
        return name in self.words or (self.has_lost_steps and _MADE_ID.fullmatch(name) is not None)

    def take(self, *nodes: Node) -> None:
        """Remember nodes as removed."""
        for node in nodes:
            self.words.update(_words_in(node))


class ErrorRecovery:
    """Removes faulty nodes from a tree, round by round."""

    def __init__(self) -> None:
        self.gaps = RemovedParts()
        self._faulty: set[int] = set()
        self._mended: dict[int, Node] = {}

    def mended(self, root: MappingNode, faulty: set[int]) -> MappingNode | None:
        """Return the tree without these nodes; None if that is all of it."""
        self._faulty, self._mended = faulty, {}
        if id(root) in faulty:
            return None
        return self._fields(root)

    def _node(self, node: Node, *, has_steps: bool) -> Node:
        """Return a node without its faulty parts; one that an alias repeats stays the same node."""
        if id(node) not in self._mended:
            match node:
                case ScalarNode():
                    left: Node = node
                case ListNode():
                    left = ListNode(node.position, (*self._items(node, has_steps=has_steps),))
                case MappingNode():
                    left = self._fields(node)
            self._mended[id(node)] = left
        return self._mended[id(node)]

    def _items(self, node: ListNode, *, has_steps: bool) -> Iterator[Node]:
        for each in node.nodes:
            if id(each) not in self._faulty:
                yield self._node(each, has_steps=has_steps)
                continue
            self.gaps.take(each)
            if has_steps:
                self.gaps.has_lost_steps = True
                yield self._stand_in(each)
            else:
                self.gaps.places.add(node.position)

    def _fields(self, node: MappingNode) -> MappingNode:
        left = MappingNode(node.position, {}, {})
        for name, value in node.values.items():
            key = node.keys[name]
            if id(key) in self._faulty or id(value) in self._faulty:
                self.gaps.take(key, value)
            else:
                left.keys[name] = key
                left.values[name] = self._node(value, has_steps=name in step_lists())
        if len(left.values) < len(node.values):
            self._note_gap(left)
        return left

    def _stand_in(self, step: Node) -> MappingNode:
        """A step that does nothing, so that the others keep their numbers and find this one's id."""
        left = MappingNode(step.position, {}, {})
        name = step.get("id") if isinstance(step, MappingNode) else None
        if isinstance(name, ScalarNode) and re.fullmatch(STEP_ID_PATTERN, str(name.value)):
            left.keys["id"] = left.values["id"] = name
        left.keys["set"] = ScalarNode(step.position, "set", "set")
        left.values["set"] = MappingNode(step.position, {}, {})
        self._note_gap(left)
        return left

    def _note_gap(self, left: MappingNode) -> None:
        self.gaps.mappings.add(left.position)
        nodes: tuple[Node, ...] = (left, *left.keys.values(), *left.values.values())
        self.gaps.places.update(node.position for node in nodes)


def _words_in(node: Node) -> Iterator[str]:
    match node:
        case ScalarNode():
            yield node.text
        case ListNode():
            for each in node.nodes:
                yield from _words_in(each)
        case MappingNode():
            yield from node.values
            for each in node.values.values():
                yield from _words_in(each)
