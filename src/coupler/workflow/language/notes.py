"""What is found on the way through a workflow's file: problems, templates, and the files that it names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol

from coupler.workflow.errors import Problem
from coupler.workflow.language.definition import NamedFile, Position
from coupler.workflow.language.source import Node, Scalar, type_words

Schema = dict[str, Any]
"""Of JSON."""

MOST_PROBLEMS = 100
"""Problems of one file that are told; more of them help nobody."""


class _Wrong:
    """What could not be read."""


WRONG: Final = _Wrong()


class Written(NamedTuple):
    """A template or an expression of the file, and where it stands."""

    kind: Literal["template", "expression"]
    text: str
    node: Scalar
    owner: Position
    """Of the step that it belongs to; of the whole workflow, if it is in no step."""


@dataclass
class Notes:
    """What is found on the way through a file."""

    file: str
    owner: Position
    problems: list[Problem] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    files: list[NamedFile] = field(default_factory=list)
    faulty: set[int] = field(default_factory=set)
    """The nodes that problems are about, by their identity."""

    def wrong(self, node: Node, message: str) -> Any:
        """Note a problem; what was read is `WRONG`."""
        self.faulty.add(id(node))
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(Problem(node.position, message))
        return WRONG


class Shape(Protocol):
    """One kind of value."""

    @property
    def words(self) -> str:
        """What it is: "a list of texts"."""
        ...

    def is_like(self, node: Node) -> bool:
        """Whether this is meant, among others that a key may have; it can still be wrong in itself."""
        ...

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        """The value, or `WRONG`."""
        ...

    def schema(self) -> Schema: ...


def unlike(shape: Shape, node: Node, key: str, notes: Notes) -> Any:
    hint = ""
    if shape.words.startswith("a text") and isinstance(node, Scalar) and node.value is not None:
        hint = ": put it in quotes"
    return notes.wrong(node, f"`{key}` must be {shape.words}, not {type_words(node)}{hint}")


def listed(names: Sequence[str]) -> str:
    """Keys as they stand in a sentence."""
    return ", ".join(f"`{name}`" for name in names)
