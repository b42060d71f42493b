"""What a value in a workflow may look like: read, said in words, and said as JSON Schema, by one object.

Whatever is wrong is noted and read as `WRONG`, so that all problems of a file are told at once.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from coupler.config.lookup import shown
from coupler.workflow.language.notes import WRONG, Notes, Schema, Shape, Written, unlike
from coupler.workflow.language.scalars import Choice
from coupler.workflow.language.source import Fields, Items, Node, Scalar, plain


class Anything(msgspec.Struct, frozen=True):
    """Any value. Its texts are templates or expressions, or nothing but texts."""

    words: str = "any value"
    kind: Literal["template", "expression"] | None = None

    def is_like(self, node: Node) -> bool:
        return True

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        self._note(node, notes)
        return plain(node)

    def _note(self, node: Node, notes: Notes) -> None:
        match node:
            case Scalar(value=str()) if self.kind is not None:
                notes.written.append(Written(self.kind, node.text, node, notes.owner))
            case Items() if self.kind == "template":
                for each in node.nodes:
                    self._note(each, notes)
            case Fields() if self.kind == "template":
                for each in node.values.values():
                    self._note(each, notes)
            case _:
                pass

    def schema(self) -> Schema:
        return {}


class JsonSchema(msgspec.Struct, frozen=True):
    """A JSON Schema, written in place."""

    words: str = "a JSON Schema"

    def is_like(self, node: Node) -> bool:
        return isinstance(node, Fields)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        return plain(node) if isinstance(node, Fields) else unlike(self, node, key, notes)

    def schema(self) -> Schema:
        return {"type": "object"}


class ListOf(msgspec.Struct, frozen=True):
    item: Shape
    words: str
    least: int = 0

    def is_like(self, node: Node) -> bool:
        return isinstance(node, Items)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        if not isinstance(node, Items):
            return unlike(self, node, key, notes)
        if len(node.nodes) < self.least:
            return notes.wrong(node, f"`{key}` must have at least one item")
        items = tuple(self.item.read(each, key, notes) for each in node.nodes)
        return WRONG if any(each is WRONG for each in items) else items

    def schema(self) -> Schema:
        least: Schema = {"minItems": self.least} if self.least else {}
        return {"type": "array", "items": self.item.schema(), **least}


class MappingOf(msgspec.Struct, frozen=True):
    """Values of one shape, by names that the author chooses."""

    item: Shape
    words: str
    name_pattern: str
    name_words: str

    def is_like(self, node: Node) -> bool:
        return isinstance(node, Fields)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        if not isinstance(node, Fields):
            return unlike(self, node, key, notes)
        read: dict[str, Any] = {}
        for name, value in node.values.items():
            if not re.search(self.name_pattern.replace("$", r"\Z"), name):
                notes.wrong(node.key(name), f"a name in `{key}` must be {self.name_words}")
                read[name] = WRONG
            else:
                read[name] = self.item.read(value, shown(name, 60), notes)
        return WRONG if any(value is WRONG for value in read.values()) else read

    def schema(self) -> Schema:
        names = {"propertyNames": {"pattern": self.name_pattern}}
        return {"type": "object", **names, "additionalProperties": self.item.schema()}


class Either(msgspec.Struct, frozen=True):
    """One of several shapes that can be told apart by looking at the value."""

    shapes: tuple[Shape, ...]

    @property
    def words(self) -> str:
        return ", or ".join(shape.words for shape in self.shapes)

    def is_like(self, node: Node) -> bool:
        return any(shape.is_like(node) for shape in self.shapes)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        shape = next((shape for shape in self.shapes if shape.is_like(node)), None)
        if shape is None:
            return unlike(self, node, key, notes)
        if isinstance(shape, Choice) and not shape.has(node):
            # It might be none of the words because something else was meant.
            return shape.refuse(node, key, notes, self.words)
        return shape.read(node, key, notes)

    def schema(self) -> Schema:
        return {"anyOf": [shape.schema() for shape in self.shapes]}


class Steps(msgspec.Struct, frozen=True):
    """A list of steps; it is read by whoever knows the steps around it."""

    words: str = "a list of steps"

    def is_like(self, node: Node) -> bool:
        return isinstance(node, Items)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        if not isinstance(node, Items):
            return unlike(self, node, key, notes)
        if not node.nodes:
            return notes.wrong(node, f"`{key}` must have at least one step")
        return node

    def schema(self) -> Schema:
        return {"$ref": "#/$defs/steps"}


class Branches(Steps, frozen=True):
    """Steps, or lists of steps, that run beside each other."""

    words: str = "a list of steps, or of lists of steps"

    def schema(self) -> Schema:
        branch = {"anyOf": [{"$ref": "#/$defs/step"}, {"$ref": "#/$defs/steps"}]}
        return {"type": "array", "minItems": 1, "items": branch}
