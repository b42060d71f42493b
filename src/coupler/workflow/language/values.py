"""The shapes of values in a workflow file: each reads a value, names it in words, and gives its JSON Schema.

Whatever is wrong is noted and read as `WRONG`, so that all problems of a file are told at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec

from coupler.config.lookup import printable, suggestion
from coupler.workflow.errors import Problem
from coupler.workflow.language import model
from coupler.workflow.language.model import NamedFile, SourcePosition, advice_about, key_meant_by
from coupler.workflow.language.yaml_source import (
    YamlList,
    YamlMapping,
    YamlNode,
    YamlScalar,
    plain_value,
    type_in_words,
)


class Anything(msgspec.Struct, frozen=True):
    """Any value. Its texts are templates or expressions, or nothing but texts."""

    words: str = "any value"
    kind: Literal["template", "expression"] | None = None

    def is_like(self, node: YamlNode) -> bool:
        return True

    def read(self, node: YamlNode, key: str, notes: Notes) -> Any:
        self._note(node, notes)
        return plain_value(node)

    def _note(self, node: YamlNode, notes: Notes) -> None:
        match node:
            case YamlScalar(value=str()) if self.kind is not None:
                notes.written.append(Written(self.kind, node.text, node, notes.owner))
            case YamlList() if self.kind == "template":
                for each in node.nodes:
                    self._note(each, notes)
            case YamlMapping() if self.kind == "template":
                for each in node.values.values():
                    self._note(each, notes)
            case _:
                pass

    def schema(self) -> Schema:
        return {}


class JsonSchema(msgspec.Struct, frozen=True):
    """A JSON Schema, written in place."""

    words: str = "a JSON Schema"

    def is_like(self, node: YamlNode) -> bool:
        return isinstance(node, YamlMapping)

    def read(self, node: YamlNode, key: str, notes: Notes) -> Any:
        return plain_value(node) if isinstance(node, YamlMapping) else unlike(self, node, key, notes)

    def schema(self) -> Schema:
        return {"type": "object"}


class ListOf(msgspec.Struct, frozen=True):
    item: Shape
    words: str
    least: int = 0

    def is_like(self, node: YamlNode) -> bool:
        return isinstance(node, YamlList)

    def read(self, node: YamlNode, key: str, notes: Notes) -> Any:
        if not isinstance(node, YamlList):
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

    def is_like(self, node: YamlNode) -> bool:
        return isinstance(node, YamlMapping)

    def read(self, node: YamlNode, key: str, notes: Notes) -> Any:
        if not isinstance(node, YamlMapping):
            return unlike(self, node, key, notes)
        read: dict[str, Any] = {}
        for name, value in node.values.items():
            if not re.search(self.name_pattern.replace("$", r"\Z"), name):
                notes.wrong(node.key(name), f"a name in `{key}` must be {self.name_words}")
                read[name] = WRONG
            else:
                read[name] = self.item.read(value, printable(name, 60), notes)
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

    def is_like(self, node: YamlNode) -> bool:
        return any(shape.is_like(node) for shape in self.shapes)

    def read(self, node: YamlNode, key: str, notes: Notes) -> Any:
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

    def is_like(self, node: YamlNode) -> bool:
        return isinstance(node, YamlList)

    def read(self, node: YamlNode, key: str, notes: Notes) -> Any:
        if not isinstance(node, YamlList):
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


class Text(msgspec.Struct, frozen=True):
    """A text that is not empty; the position of a template or an expression is noted."""

    words: str = "a text"
    pattern: str = r"\S"
    kind: Literal["template", "expression"] | None = None
    wrong_words: str = "must not be empty"

    def is_like(self, node: YamlNode) -> bool:
        return isinstance(node, YamlScalar) and isinstance(node.value, str)

    def read(self, node: YamlNode, key: str, notes: Notes) -> Any:
        if not isinstance(node, YamlScalar) or not isinstance(node.value, str):
            return unlike(self, node, key, notes)
        if not re.search(self.pattern.replace("$", r"\Z"), node.value):
            return notes.wrong(node, f"`{key}` {self.wrong_words}")
        if self.kind is not None:
            notes.written.append(Written(self.kind, node.value, node, notes.owner))
        return node.value

    def schema(self) -> Schema:
        return {"type": "string", "pattern": self.pattern}


class AnyText(msgspec.Struct, frozen=True):
    """A text that may be empty."""

    words: str = "a text"
    is_template: bool = True

    def is_like(self, node: YamlNode) -> bool:
        return isinstance(node, YamlScalar) and isinstance(node.value, str)

    def read(self, node: YamlNode, key: str, notes: Notes) -> Any:
        if not isinstance(node, YamlScalar) or not isinstance(node.value, str):
            return unlike(self, node, key, notes)
        if self.is_template:
            notes.written.append(Written("template", node.value, node, notes.owner))
        return node.value

    def schema(self) -> Schema:
        return {"type": "string"}


class Variable(msgspec.Struct, frozen=True):
    """A text, or a number or boolean that is taken as it is written."""

    words: str = "a text, a number, true or false"

    def is_like(self, node: YamlNode) -> bool:
        return isinstance(node, YamlScalar) and node.value is not None

    def read(self, node: YamlNode, key: str, notes: Notes) -> Any:
        if not isinstance(node, YamlScalar) or node.value is None:
            return unlike(self, node, key, notes)
        notes.written.append(Written("template", node.text, node, notes.owner))
        return node.text

    def schema(self) -> Schema:
        return {"type": ["string", "number", "boolean"]}


class FileName(msgspec.Struct, frozen=True):
    """A file, relative to the directory of the workflow's file."""

    words: str = "the name of a file"
    not_files: tuple[str, ...] = ()
    """Words that mean something else."""

    def is_like(self, node: YamlNode) -> bool:
        return isinstance(node, YamlScalar) and isinstance(node.value, str)

    def read(self, node: YamlNode, key: str, notes: Notes) -> Any:
        if not isinstance(node, YamlScalar) or not isinstance(node.value, str):
            return unlike(self, node, key, notes)
        name = node.value
        if name in self.not_files:
            return name
        if not re.search(r"\S", name) or re.search("[\x00-\x1f\x7f]", name):
            return notes.wrong(node, f"`{key}` must be the name of a file, in one line")
        if name.startswith(("/", "~")):
            return notes.wrong(node, f"`{key}` must be a path that starts in the workflow's directory")
        notes.files.append(NamedFile(name, node.position))
        return name

    def schema(self) -> Schema:
        return {
            "type": "string",
            "pattern": r"^(?![/~])[^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]*$",
        }


class PermissionRule(msgspec.Struct, frozen=True):
    """A permission rule."""

    words: str = "a permission rule, such as `execute(git *)`"

    def is_like(self, node: YamlNode) -> bool:
        return isinstance(node, YamlScalar) and isinstance(node.value, str)

    def read(self, node: YamlNode, key: str, notes: Notes) -> Any:
        from coupler.permission.rules import Rule as PermissionRule

        if not isinstance(node, YamlScalar) or not isinstance(node.value, str):
            return unlike(self, node, key, notes)
        try:
            PermissionRule.parse("ask", node.value, "workflow", f"`{key}`")
        except ValueError as error:
            return notes.wrong(node, printable(str(error)))
        return node.value

    def schema(self) -> Schema:
        return {"type": "string", "pattern": r"\S"}


class Boolean(msgspec.Struct, frozen=True):
    words: str = "true or false"

    def is_like(self, node: YamlNode) -> bool:
        return isinstance(node, YamlScalar) and isinstance(node.value, bool)

    def read(self, node: YamlNode, key: str, notes: Notes) -> Any:
        if not isinstance(node, YamlScalar) or not isinstance(node.value, bool):
            return unlike(self, node, key, notes)
        return node.value

    def schema(self) -> Schema:
        return {"type": "boolean"}


class Yes(msgspec.Struct, frozen=True):
    """The value `true`; an option that is not wanted is left out."""

    words: str = "true"

    def is_like(self, node: YamlNode) -> bool:
        return isinstance(node, YamlScalar) and isinstance(node.value, bool)

    def read(self, node: YamlNode, key: str, notes: Notes) -> Any:
        if not isinstance(node, YamlScalar) or node.value is not True:
            return notes.wrong(node, f"`{key}` must be true here, or be left out")
        return True

    def schema(self) -> Schema:
        return {"const": True}


class Number(msgspec.Struct, frozen=True):
    """A number within bounds; of whole ones, `is_whole`."""

    minimum: float | None = None
    maximum: float | None = None
    is_whole: bool = False
    above: float | None = None
    """It must be more than this."""

    @property
    def words(self) -> str:
        bounds = [
            f"from {self.minimum:,} on" if self.minimum is not None and self.maximum is None else "",
            f"from {self.minimum:,} to {self.maximum:,}" if None not in (self.minimum, self.maximum) else "",
            f"above {self.above:,}" if self.above is not None else "",
        ]
        return " ".join(["a whole number" if self.is_whole else "a number", *filter(None, bounds)])

    def is_like(self, node: YamlNode) -> bool:
        return isinstance(node, YamlScalar) and _is_number(node.value)

    def read(self, node: YamlNode, key: str, notes: Notes) -> Any:
        value = node.value if isinstance(node, YamlScalar) else None
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return unlike(self, node, key, notes)
        if (self.is_whole and value != int(value)) or not self._is_within(value):
            return notes.wrong(node, f"`{key}` must be {self.words}")
        return int(value) if self.is_whole else float(value)

    def _is_within(self, value: float) -> bool:
        return (
            (self.minimum is None or value >= self.minimum)
            and (self.maximum is None or value <= self.maximum)
            and (self.above is None or value > self.above)
        )

    def schema(self) -> Schema:
        bounds = {"minimum": self.minimum, "maximum": self.maximum, "exclusiveMinimum": self.above}
        kind = "integer" if self.is_whole else "number"
        return {"type": kind} | {name: bound for name, bound in bounds.items() if bound is not None}


class Duration(msgspec.Struct, frozen=True):
    """A duration, in seconds."""

    may_be_zero: bool = False
    words: str = model.DURATION_WORDS

    def is_like(self, node: YamlNode) -> bool:
        return isinstance(node, YamlScalar) and (isinstance(node.value, str) or _is_number(node.value))

    def read(self, node: YamlNode, key: str, notes: Notes) -> Any:
        if not isinstance(node, YamlScalar) or not self.is_like(node):
            return unlike(self, node, key, notes)
        value = node.value
        seconds = model.seconds_in(value) if isinstance(value, str) else float(value or 0)
        if seconds is None or not 0 <= seconds <= model.LONGEST_DURATION:
            return notes.wrong(node, f"`{key}` must be {self.words}")
        if seconds == 0 and not self.may_be_zero:
            return notes.wrong(node, f"`{key}` must be more than nothing: leave it out to have no limit")
        return seconds

    def schema(self) -> Schema:
        least: Schema = {"minimum": 0} if self.may_be_zero else {"exclusiveMinimum": 0}
        text: Schema = {"type": "string", "pattern": model.DURATION_PATTERN}
        if not self.may_be_zero:
            text["pattern"] = f"^(?=.*[1-9]){model.DURATION_PATTERN[1:]}"
        return {"anyOf": [{"type": "number", "maximum": model.LONGEST_DURATION, **least}, text]}


class Choice(msgspec.Struct, frozen=True):
    """One of a few words."""

    options: tuple[str, ...]

    @property
    def words(self) -> str:
        *most, last = (f"`{option}`" for option in self.options)
        return f"{', '.join(most)} or {last}" if most else last

    def is_like(self, node: YamlNode) -> bool:
        return isinstance(node, YamlScalar) and isinstance(node.value, str)

    def read(self, node: YamlNode, key: str, notes: Notes) -> Any:
        if not isinstance(node, YamlScalar) or not isinstance(node.value, str):
            return unlike(self, node, key, notes)
        return node.value if self.has(node) else self.refuse(node, key, notes, self.words)

    def has(self, node: YamlNode) -> bool:
        return isinstance(node, YamlScalar) and node.value in self.options

    def refuse(self, node: YamlNode, key: str, notes: Notes, words: str) -> Any:
        """Note that a text is none of them; `words` say all that may stand there."""
        text = str(node.value) if isinstance(node, YamlScalar) else ""
        near = suggestion(text, self.options, self.options)
        return notes.wrong(node, f"`{key}` must be {words}{'; ' + near if near[:3] == 'did' else ''}")

    def schema(self) -> Schema:
        return {"enum": [*self.options]}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_LINK = re.compile(r"\[(.*?)\]\(.*?\)")


class Key(msgspec.Struct, frozen=True):
    """One key, declared once: reading, JSON Schema and the manual follow from here."""

    name: str
    shape: Shape
    sentence: str
    """A sentence that says what the key does, for the manual and the schema."""
    example: str
    """A value in YAML."""
    default: str = ""
    """The default in words, as Markdown; empty if there is none."""
    is_required: bool = False


class KeyRule(Protocol):
    """A rule between the keys of one mapping."""

    def check(self, node: YamlMapping, notes: Notes) -> bool: ...

    def schema(self) -> Schema: ...


class Record(msgspec.Struct, frozen=True):
    """A mapping as it was read: the values of the keys that were written."""

    node: YamlMapping
    values: Mapping[str, Any]

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)

    def only(self, *names: str) -> dict[str, Any]:
        """Return those of these keys that were written, with their values."""
        return {name: self.values[name] for name in names if name in self.values}


class Table(msgspec.Struct, frozen=True):
    """The keys of one kind of mapping, and which go together."""

    name: str
    """Name in the JSON Schema."""
    title: str
    """Title in sentences: "a retry"."""
    keys: tuple[Key, ...]
    rules: tuple[KeyRule, ...] = ()
    sentence: str = ""
    """A sentence that says what the mapping is for."""
    elsewhere: Mapping[str, str] = {}
    """Keys of other tables that people write into this one, and the titles of those."""

    @property
    def words(self) -> str:
        return f"a mapping with {_some(self.names)}"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(key.name for key in self.keys)

    def is_like(self, node: YamlNode) -> bool:
        return isinstance(node, YamlMapping)

    def read(self, node: YamlNode, key: str, notes: Notes) -> Any:
        """Read a mapping; returns a `Record`, or `WRONG`."""
        if not isinstance(node, YamlMapping):
            return notes.wrong(node, f"`{key}` must be {self.words}, not {type_in_words(node)}")
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

    def _unknown(self, name: str, node: YamlMapping, notes: Notes) -> Any:
        message = f"`{printable(name, 60)}` is no key of {self.title}; {self._advice(name)}"
        return notes.wrong(node.key(name), message)

    def _advice(self, name: str) -> str:
        return self._place_for(name) or suggestion(name, self.names, self.names)

    def _place_for(self, name: str) -> str | None:
        """Return a hint for a key of another language, or one that belongs elsewhere, if there is one."""
        if meant := key_meant_by(name, self.names):
            return f"did you mean {meant}?"
        if around := next((key.name for key in self.keys if name in _names_inside(key.shape)), None):
            return f"write it inside of `{around}`"
        return f"it belongs to {self.elsewhere[name]}" if name in self.elsewhere else advice_about(name)

    def _has_all(self, node: YamlMapping, notes: Notes) -> bool:
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
        """Return the definition that `schema` refers to."""
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

    def check(self, node: YamlMapping, notes: Notes) -> bool:
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

    def check(self, node: YamlMapping, notes: Notes) -> bool:
        if self.name in node.values and self.other not in node.values:
            notes.wrong(node.key(self.name), f"`{self.name}` goes with `{self.other}`, which is not here")
            return False
        return True

    def schema(self) -> Schema:
        return {"dependentRequired": {self.name: [self.other]}}


class Alone(msgspec.Struct, frozen=True):
    """A key that stands by itself."""

    name: str

    def check(self, node: YamlMapping, notes: Notes) -> bool:
        if self.name not in node.values or len(node.values) == 1:
            return True
        other = next(name for name in node.values if name != self.name)
        notes.wrong(node.key(other), f"`{printable(other, 60)}` cannot stand beside `{self.name}`")
        return False

    def schema(self) -> Schema:
        return {"if": {"required": [self.name]}, "then": {"maxProperties": 1}}


class Inside(msgspec.Struct, frozen=True):
    """Keys that belong inside of another key's value when that is a mapping, and else beside it."""

    name: str
    others: tuple[str, ...]

    def check(self, node: YamlMapping, notes: Notes) -> bool:
        if not isinstance(node.values.get(self.name), YamlMapping):
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


Schema = dict[str, Any]
"""A JSON Schema."""

MOST_PROBLEMS = 100
"""Problems of one file that are reported; more of them help nobody."""


class _Wrong:
    """Stands for a value that could not be read."""


WRONG: Final = _Wrong()


class Written(NamedTuple):
    """A template or an expression of the file, and its position."""

    kind: Literal["template", "expression"]
    text: str
    node: YamlScalar
    owner: SourcePosition
    """The position of its step; of the whole workflow, if it is in no step."""


@dataclass
class Notes:
    """Collects what is found while a file is read: problems, templates, and the files that it names."""

    file: str
    owner: SourcePosition
    problems: list[Problem] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    files: list[NamedFile] = field(default_factory=list)
    faulty: set[int] = field(default_factory=set)
    """The nodes that problems are about, by their identity."""

    def wrong(self, node: YamlNode, message: str) -> Any:
        """Note a problem; what was read is `WRONG`."""
        self.faulty.add(id(node))
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(Problem(node.position, message))
        return WRONG


class Shape(Protocol):
    """One kind of value."""

    @property
    def words(self) -> str:
        """The kind of value in words: "a list of texts"."""
        ...

    def is_like(self, node: YamlNode) -> bool:
        """True if a node looks like this shape, among others that a key may have; it can still be wrong."""
        ...

    def read(self, node: YamlNode, key: str, notes: Notes) -> Any:
        """The value, or `WRONG`."""
        ...

    def schema(self) -> Schema: ...


def unlike(shape: Shape, node: YamlNode, key: str, notes: Notes) -> Any:
    hint = ""
    if shape.words.startswith("a text") and isinstance(node, YamlScalar) and node.value is not None:
        hint = ": put it in quotes"
    return notes.wrong(node, f"`{key}` must be {shape.words}, not {type_in_words(node)}{hint}")


def listed(names: Sequence[str]) -> str:
    """Join keys as they stand in a sentence."""
    return ", ".join(f"`{name}`" for name in names)
