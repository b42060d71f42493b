"""A mapping with keys that the language knows: which they are, and which go together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from coupler.config.lookup import shown, suggestion
from coupler.workflow.language.aliases import meant_by
from coupler.workflow.language.notes import WRONG, Notes, Schema, Shape, listed
from coupler.workflow.language.source import Fields, Node, type_words

_LINK = re.compile(r"\[(.*?)\]\(.*?\)")


class Key(msgspec.Struct, frozen=True):
    """One key, declared once: reading, JSON Schema and the manual follow from here."""

    name: str
    shape: Shape
    sentence: str
    """What it does."""
    example: str
    """A value in YAML."""
    default: str = ""
    """In words, as Markdown; empty: nothing."""
    is_required: bool = False


class Rule(Protocol):
    """What must hold between the keys of one mapping."""

    def check(self, node: Fields, notes: Notes) -> bool: ...

    def schema(self) -> Schema: ...


class Record(msgspec.Struct, frozen=True):
    """A mapping as it was read: the values of the keys that were written."""

    node: Fields
    values: Mapping[str, Any]

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)

    def only(self, *names: str) -> dict[str, Any]:
        """Those of these keys that were written."""
        return {name: self.values[name] for name in names if name in self.values}


class Table(msgspec.Struct, frozen=True):
    """The keys of one kind of mapping."""

    name: str
    """In the JSON Schema."""
    title: str
    """In sentences: "a retry"."""
    keys: tuple[Key, ...]
    rules: tuple[Rule, ...] = ()
    sentence: str = ""
    """What it is for."""
    elsewhere: Mapping[str, str] = {}
    """Keys of other tables that people write into this one, and the titles of those."""

    @property
    def words(self) -> str:
        return f"a mapping with {_some(self.names)}"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(key.name for key in self.keys)

    def is_like(self, node: Node) -> bool:
        return isinstance(node, Fields)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        """A `Record`, or `WRONG`."""
        if not isinstance(node, Fields):
            return notes.wrong(node, f"`{key}` must be {self.words}, not {type_words(node)}")
        keys = {each.name: each for each in self.keys}
        read = {
            name: keys[name].shape.read(value, name, notes)
            if name in keys
            else self._unknown(name, node, notes)
            for name, value in node.values.items()
        }
        is_whole = self._has_all(node, notes)
        fits = [rule.check(node, notes) for rule in self.rules]
        if not is_whole or not all(fits) or any(value is WRONG for value in read.values()):
            return WRONG
        return Record(node, read)

    def _unknown(self, name: str, node: Fields, notes: Notes) -> Any:
        message = f"`{shown(name, 60)}` is no key of {self.title}; {self._advice(name)}"
        return notes.wrong(node.key(name), message)

    def _advice(self, name: str) -> str:
        return self._place_for(name) or suggestion(name, self.names, self.names)

    def _place_for(self, name: str) -> str | None:
        """Where a key belongs that other languages have, or that stands at the wrong place."""
        if meant := meant_by(name, self.names):
            return f"did you mean {meant}?"
        if around := next((key.name for key in self.keys if name in _names_inside(key.shape)), None):
            return f"write it inside of `{around}`"
        return f"it belongs to {self.elsewhere[name]}" if name in self.elsewhere else None

    def _has_all(self, node: Fields, notes: Notes) -> bool:
        missing = [key.name for key in self.keys if key.is_required and key.name not in node.values]
        advice = [self._advice(name) for name in node.values if missing and name not in self.names]
        for name in missing:
            # A key that is only misspelled is told by that.
            if not any(each.startswith("did") and f"`{name}`" in each for each in advice):
                notes.wrong(node, f"{self.title} needs `{name}`")
        return not missing

    def schema(self) -> Schema:
        return {"$ref": f"#/$defs/{self.name}"}

    def own_schema(self) -> Schema:
        """The definition that `schema` refers to."""
        required = [key.name for key in self.keys if key.is_required]
        whole: Schema = {"type": "object"}
        if self.sentence:
            whole["description"] = self.sentence
        whole["properties"] = {key.name: _described(key) for key in self.keys}
        if required:
            whole["required"] = required
        if self.rules:
            whole["allOf"] = [rule.schema() for rule in self.rules]
        return {**whole, "additionalProperties": False}


def _names_inside(shape: Shape) -> tuple[str, ...]:
    """The keys of a mapping that a shape may be."""
    shapes: tuple[Shape, ...] = getattr(shape, "shapes", (shape,))
    return tuple(name for each in shapes if isinstance(each, Table) for name in each.names)


def _described(key: Key) -> Schema:
    sentence = _LINK.sub(r"\1", key.sentence).replace("`", "")
    return {"description": sentence, **key.shape.schema()}


def _some(names: Sequence[str]) -> str:
    return listed(names) if len(names) < 7 else f"{listed(names[:5])} …"


class OneOf(msgspec.Struct, frozen=True):
    """Exactly one of these keys, or at most one."""

    names: tuple[str, ...]
    is_needed: bool = True

    def check(self, node: Fields, notes: Notes) -> bool:
        given = [name for name in self.names if name in node.values]
        if len(given) > 1:
            notes.wrong(node.key(given[1]), f"either {' or '.join(f'`{name}`' for name in given)}, not both")
            return False
        if not given and self.is_needed:
            notes.wrong(node, f"{' or '.join(f'`{name}`' for name in self.names)} is needed here")
            return False
        return True

    def schema(self) -> Schema:
        if self.is_needed:
            return {"oneOf": [{"required": [name]} for name in self.names]}
        return {"not": {"required": [*self.names]}}


class Needs(msgspec.Struct, frozen=True):
    """A key that means something only beside another one."""

    name: str
    other: str

    def check(self, node: Fields, notes: Notes) -> bool:
        if self.name in node.values and self.other not in node.values:
            notes.wrong(node.key(self.name), f"`{self.name}` goes with `{self.other}`, which is not here")
            return False
        return True

    def schema(self) -> Schema:
        return {"dependentRequired": {self.name: [self.other]}}


class Alone(msgspec.Struct, frozen=True):
    """A key that stands by itself."""

    name: str

    def check(self, node: Fields, notes: Notes) -> bool:
        if self.name not in node.values or len(node.values) == 1:
            return True
        other = next(name for name in node.values if name != self.name)
        notes.wrong(node.key(other), f"`{shown(other, 60)}` cannot stand beside `{self.name}`")
        return False

    def schema(self) -> Schema:
        return {"if": {"required": [self.name]}, "then": {"maxProperties": 1}}


class Inside(msgspec.Struct, frozen=True):
    """Keys that belong inside of another key's value when that is a mapping, and else beside it."""

    name: str
    others: tuple[str, ...]

    def check(self, node: Fields, notes: Notes) -> bool:
        if not isinstance(node.values.get(self.name), Fields):
            return True
        beside = [other for other in self.others if other in node.values]
        for other in beside:
            notes.wrong(
                node.key(other), f"write `{other}` inside of `{self.name}`, as that is a mapping here"
            )
        return not beside

    def schema(self) -> Schema:
        is_mapping = {"required": [self.name], "properties": {self.name: {"type": "object"}}}
        return {"if": is_mapping, "then": {"properties": dict.fromkeys(self.others, False)}}
