"""The shapes of values: each reads a node, names itself in words, and gives its JSON Schema.

Whatever is wrong is noted and read as `WRONG`, so that all problems of a file are told at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from functools import cache
from typing import Any, Final, Literal, Protocol

import msgspec

from coupler.fields.nodes import ListNode, MappingNode, Node, Problem, ScalarNode, plain_value
from coupler.runtime.formatting import printable, suggestion

Schema = dict[str, Any]
"""A JSON Schema."""

MOST_PROBLEMS = 100
"""Problems of one file that are reported; more of them help nobody."""

LONGEST_DURATION = 1e9
"""Seconds, about 31 years: more is a slip of the keyboard."""

DURATION_PATTERN = r"^[0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h)$"
DURATION_WORDS = "a duration, such as `500ms`, `30s`, `5m` or `2h`, or a number of seconds"

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PARTS = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h)")

TextKind = Literal["template", "expression", "file"]
"""What a text means beyond its characters; whoever reads the file is told of each."""


class _Wrong:
    """Stands for a value that could not be read."""


WRONG: Final = _Wrong()


class Notes:
    """Collects what is found while a file is read."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.faulty: set[int] = set()
        """The nodes that problems are about, by their identity."""

    def wrong(self, node: Node, message: str) -> Any:
        """Note a problem; what was read is `WRONG`."""
        self.faulty.add(id(node))
        self.add(Problem(node.position, message))
        return WRONG

    def add(self, problem: Problem) -> None:
        """Keep a problem, unless there are too many."""
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)

    def unfit(self, node: Node, key: str, message: str) -> Any:
        """Note a problem with the value of a key, whose name the message goes on after."""
        return self.wrong(node, f"`{printable(key, 60)}` {message}")

    def unknown(self, node: MappingNode, name: str, title: str, advice: Callable[[], str]) -> Any:
        """Note a key that a mapping does not have; advice takes its time."""
        about = "" if len(self.problems) >= MOST_PROBLEMS else advice()
        return self.wrong(node.key(name), f"`{printable(name, 60)}` is no key of {title}; {about}")

    def misnamed(self, node: MappingNode, name: str, key: str, words: str) -> Any:
        """Note a name in the mapping of a key that must be something else."""
        return self.wrong(node.key(name), f"a name in `{printable(key, 60)}` must be {words}")

    def found(self, kind: TextKind, node: ScalarNode) -> None:
        """Take notice of a text that is a template, an expression or the name of a file."""

    def given(self, field: str, node: Node, key: str) -> Any:
        """Return a field of a struct that no key fills: its position, or its name; UNSET for others."""
        return {"position": node.position, "name": key}.get(field, msgspec.UNSET)

    def made(self, value: Any, node: Node) -> None:
        """Note what the fields of a struct are wrong together."""
        problems = getattr(value, "problems", None)
        if problems is not None and isinstance(node, MappingNode):
            for key, message in problems():
                self.wrong(node.values[key], message)

    def meant(self, word: str, keys: Collection[str]) -> str | None:
        """Return the keys that a word of other languages means, as they stand in a sentence."""
        return None

    def advice(self, word: str) -> str | None:
        """Return what to write instead of a word of other languages, as a part of a sentence."""
        return None


class Shape(Protocol):
    """One kind of value."""

    @property
    def words(self) -> str:
        """The kind of value in words: "a list of texts"."""
        ...

    def is_like(self, node: Node) -> bool:
        """True if a node looks like this shape, among others that a key may have; it can still be wrong."""
        ...

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        """The value, or `WRONG`."""
        ...

    def schema(self) -> Schema: ...


def unlike(shape: Shape, node: Node, key: str, notes: Notes) -> Any:
    """Note that a value is of another kind."""
    hint = ""
    if shape.words.startswith("a text") and isinstance(node, ScalarNode) and node.value is not None:
        hint = ": put it in quotes"
    return notes.unfit(node, key, f"must be {shape.words}, not {node.words}{hint}")


class Anything(msgspec.Struct, frozen=True):
    """Any value. Its texts are templates or expressions, or nothing but texts."""

    words: str = "any value"
    kind: Literal["template", "expression"] | None = None

    def is_like(self, node: Node) -> bool:
        return True

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        self._note(node, notes)
        return plain_value(node)

    def _note(self, node: Node, notes: Notes) -> None:
        match node:
            case ScalarNode(value=str()) if self.kind is not None:
                notes.found(self.kind, node)
            case ListNode() if self.kind == "template":
                for each in node.nodes:
                    self._note(each, notes)
            case MappingNode() if self.kind == "template":
                for each in node.values.values():
                    self._note(each, notes)
            case _:
                pass

    def schema(self) -> Schema:
        return {}


class ListOf(msgspec.Struct, frozen=True):
    """A list whose items have one shape."""

    item: Shape
    words: str
    least: int = 0

    def is_like(self, node: Node) -> bool:
        return isinstance(node, ListNode)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        if not isinstance(node, ListNode):
            return unlike(self, node, key, notes)
        if len(node.nodes) < self.least:
            return notes.unfit(node, key, "must have at least one item")
        items = tuple(self.item.read(each, key, notes) for each in node.nodes)
        return WRONG if any(each is WRONG for each in items) else items

    def schema(self) -> Schema:
        least: Schema = {"minItems": self.least} if self.least else {}
        return {"type": "array", "items": self.item.schema(), **least}


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of JSON Schema, whose `$` is the end of the whole text."""
    return re.compile(pattern.replace("$", r"\Z"))


class Names(msgspec.Struct, frozen=True):
    """The names that an author may choose."""

    pattern: str
    words: str

    def fit(self, name: str) -> bool:
        """Tell whether a name is one of them."""
        return compiled(self.pattern).search(name) is not None


class MappingOf(msgspec.Struct, frozen=True):
    """Values of one shape, by names that the author chooses; in a tuple if they know their names."""

    item: Shape
    words: str
    names: Names
    is_tuple: bool = False

    def is_like(self, node: Node) -> bool:
        return isinstance(node, MappingNode)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        if not isinstance(node, MappingNode):
            return unlike(self, node, key, notes)
        read: dict[str, Any] = {}
        for name, value in node.values.items():
            if not self.names.fit(name):
                read[name] = notes.misnamed(node, name, key, self.names.words)
            else:
                read[name] = self.item.read(value, name, notes)
        if any(value is WRONG for value in read.values()):
            return WRONG
        return (*read.values(),) if self.is_tuple else read

    def schema(self) -> Schema:
        names = {"propertyNames": {"pattern": self.names.pattern}}
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
        plain = getattr(shape, "plain", shape)
        if isinstance(plain, Choice) and not plain.has(node):
            # It might be none of the words because something else was meant.
            return plain.refuse(node, key, notes, self.words)
        return shape.read(node, key, notes)

    def schema(self) -> Schema:
        return {"anyOf": [shape.schema() for shape in self.shapes]}


class Text(msgspec.Struct, frozen=True):
    """A text, which is not empty unless its pattern is; whoever reads the file is told of its kind."""

    words: str = "a text"
    pattern: str = r"\S"
    kind: TextKind | None = None
    wrong_words: str = "must not be empty"
    check: Callable[[str], str | None] | None = None
    """Returns what is wrong with a text, as the end of a sentence; `pattern` is for the schema alone then."""

    def is_like(self, node: Node) -> bool:
        return isinstance(node, ScalarNode) and isinstance(node.value, str)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
            return unlike(self, node, key, notes)
        if self.check is None and not compiled(self.pattern).search(node.value):
            return notes.unfit(node, key, self.wrong_words)
        if self.check is not None and (problem := self.check(node.value)):
            return notes.unfit(node, key, problem)
        if self.kind is not None:
            notes.found(self.kind, node)
        return node.value

    def schema(self) -> Schema:
        return {"type": "string", "pattern": self.pattern} if self.pattern else {"type": "string"}


class Boolean(msgspec.Struct, frozen=True):
    """True or false."""

    words: str = "true or false"

    def is_like(self, node: Node) -> bool:
        return isinstance(node, ScalarNode) and isinstance(node.value, bool)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        if not isinstance(node, ScalarNode) or not isinstance(node.value, bool):
            return unlike(self, node, key, notes)
        return node.value

    def schema(self) -> Schema:
        return {"type": "boolean"}


class Number(msgspec.Struct, frozen=True):
    """A number within bounds; of whole ones, `is_whole`."""

    minimum: float | None = None
    maximum: float | None = None
    is_whole: bool = False
    above: float | None = None
    """It must be more than this."""
    unit: str = ""
    """The unit of what is counted, which says more than the bounds."""

    @property
    def words(self) -> str:
        if self.unit:
            return f"a number of {self.unit}"
        return " ".join(["a whole number" if self.is_whole else "a number", *self._bounds()])

    def _bounds(self) -> Iterator[str]:
        if self.minimum is not None:
            yield f"from {self.minimum:,} {'on' if self.maximum is None else f'to {self.maximum:,}'}"
        if self.above is not None:
            yield f"above {self.above:,}"

    def is_like(self, node: Node) -> bool:
        return isinstance(node, ScalarNode) and _is_number(node.value)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        value = node.value if isinstance(node, ScalarNode) else None
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return unlike(self, node, key, notes)
        if (self.is_whole and value % 1 != 0) or not self._is_within(value):
            bounds = " ".join(["", *self._bounds()]) if self.unit else ""
            return notes.unfit(node, key, f"must be {self.words}{bounds}")
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
    words: str = DURATION_WORDS

    def is_like(self, node: Node) -> bool:
        return isinstance(node, ScalarNode) and (isinstance(node.value, str) or _is_number(node.value))

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        if not isinstance(node, ScalarNode) or not self.is_like(node):
            return unlike(self, node, key, notes)
        value = node.value
        seconds = seconds_in(value) if isinstance(value, str) else float(value or 0)
        if seconds is None or not 0 <= seconds <= LONGEST_DURATION:
            return notes.unfit(node, key, f"must be {self.words}")
        if seconds == 0 and not self.may_be_zero:
            return notes.unfit(node, key, "must be more than nothing: leave it out to have no limit")
        return seconds

    def schema(self) -> Schema:
        least: Schema = {"minimum": 0} if self.may_be_zero else {"exclusiveMinimum": 0}
        text: Schema = {"type": "string", "pattern": DURATION_PATTERN}
        if not self.may_be_zero:
            text["pattern"] = f"^(?=.*[1-9]){DURATION_PATTERN[1:]}"
        return {"anyOf": [{"type": "number", "maximum": LONGEST_DURATION, **least}, text]}


class Choice(Text, frozen=True):
    """One of a few words."""

    options: tuple[str, ...] = ()

    @classmethod
    def of(cls, *options: str) -> Choice:
        """One of these words."""
        *most, last = (f"`{option}`" for option in options)
        return cls(f"{', '.join(most)} or {last}" if most else last, options=options)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
            return unlike(self, node, key, notes)
        return node.value if self.has(node) else self.refuse(node, key, notes, self.words)

    def has(self, node: Node) -> bool:
        return isinstance(node, ScalarNode) and node.value in self.options

    def refuse(self, node: Node, key: str, notes: Notes, words: str) -> Any:
        """Note that a text is none of them; `words` say all that may stand there."""
        text = str(node.value) if isinstance(node, ScalarNode) else ""
        near = suggestion(text, self.options, self.options)
        return notes.unfit(node, key, f"must be {words}{'; ' + near if near[:3] == 'did' else ''}")

    def schema(self) -> Schema:
        return {"enum": [*self.options]}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def seconds_in(text: str) -> float | None:
    """Parse a duration, such as `500ms` or `2h`, into seconds; None if it is none."""
    parts = _PARTS.fullmatch(text)
    return float(parts[1]) * _SECONDS[parts[2]] if parts else None
