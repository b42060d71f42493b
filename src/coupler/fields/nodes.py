"""The values of a file as a tree in which every node knows its line and column."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Json = Any
"""Null, a boolean, a number, a text, a list or a mapping of these."""


class SourcePosition(msgspec.Struct, frozen=True):
    """A position in a file; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Problem(msgspec.Struct, frozen=True):
    """A problem of a file: where it is, and what to do about it."""

    position: SourcePosition
    message: str
    severity: Literal["error", "warning"] = "error"
    """A file with warnings alone can be used."""

    def __str__(self) -> str:
        word = "warning: " if self.severity == "warning" else ""
        return f"{self.position}: {word}{self.message}"


class ScalarNode(msgspec.Struct, frozen=True):
    """A text, a number, true, false or nothing."""

    position: SourcePosition
    value: str | int | float | bool | None
    text: str
    """As it was written, without quotes."""
    is_block: bool = False
    """Written below a `|`, so that its lines are those of the file."""
    indent: int = 0

    @property
    def words(self) -> str:
        """The kind of its value, for people."""
        match self.value:
            case None:
                return "nothing"
            case bool():
                return self.text.lower()
            case str():
                return "a text" if self.text.strip() else "an empty text"
            case _:
                return "a number"

    def position_at(self, line: int, column: int = 1) -> SourcePosition:
        """Return the position in the file of a place within the text; both count from 1."""
        start = self.position
        if self.is_block:
            return SourcePosition(start.file, start.line + line, self.indent + column)
        return start


class ListNode(msgspec.Struct, frozen=True):
    """A list."""

    position: SourcePosition
    nodes: tuple[Node, ...]

    @property
    def words(self) -> str:
        return "a list"


class MappingNode(msgspec.Struct, frozen=True):
    """A mapping, in the order of the file."""

    position: SourcePosition
    keys: dict[str, ScalarNode]
    values: dict[str, Node]

    @property
    def words(self) -> str:
        return "a mapping"

    def get(self, name: str) -> Node | None:
        return self.values.get(name)

    def key(self, name: str) -> ScalarNode:
        """The key itself, for its position."""
        return self.keys[name]


Node = ScalarNode | ListNode | MappingNode


def plain_value(node: Node) -> Json:
    """Return what a node says, without positions."""
    match node:
        case ScalarNode():
            return node.value
        case ListNode():
            return [plain_value(each) for each in node.nodes]
        case MappingNode():
            return {name: plain_value(value) for name, value in node.values.items()}
