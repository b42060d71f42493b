"""What a text, a number or a boolean in a workflow may look like."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from coupler.config.lookup import shown, suggestion
from coupler.workflow.language import duration
from coupler.workflow.language.definition import NamedFile
from coupler.workflow.language.notes import Notes, Schema, Written, unlike
from coupler.workflow.language.source import Node, Scalar


class Text(msgspec.Struct, frozen=True):
    """A text that says something; a template's and an expression's place is noted."""

    words: str = "a text"
    pattern: str = r"\S"
    kind: Literal["template", "expression"] | None = None
    wrong_words: str = "must not be empty"

    def is_like(self, node: Node) -> bool:
        return isinstance(node, Scalar) and isinstance(node.value, str)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
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

    def is_like(self, node: Node) -> bool:
        return isinstance(node, Scalar) and isinstance(node.value, str)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            return unlike(self, node, key, notes)
        if self.is_template:
            notes.written.append(Written("template", node.value, node, notes.owner))
        return node.value

    def schema(self) -> Schema:
        return {"type": "string"}


class Variable(msgspec.Struct, frozen=True):
    """A text, or a number or boolean that is taken as it is written."""

    words: str = "a text, a number, true or false"

    def is_like(self, node: Node) -> bool:
        return isinstance(node, Scalar) and node.value is not None

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        if not isinstance(node, Scalar) or node.value is None:
            return unlike(self, node, key, notes)
        notes.written.append(Written("template", node.text, node, notes.owner))
        return node.text

    def schema(self) -> Schema:
        return {"type": ["string", "number", "boolean"]}


class FileName(msgspec.Struct, frozen=True):
    """A file, from the directory of the workflow's file on."""

    words: str = "the name of a file"
    not_files: tuple[str, ...] = ()
    """Words that mean something else."""

    def is_like(self, node: Node) -> bool:
        return isinstance(node, Scalar) and isinstance(node.value, str)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
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


class Rule(msgspec.Struct, frozen=True):
    """A permission rule."""

    words: str = "a permission rule, such as `execute(git *)`"

    def is_like(self, node: Node) -> bool:
        return isinstance(node, Scalar) and isinstance(node.value, str)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        from coupler.permission.rules import Rule as PermissionRule

        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            return unlike(self, node, key, notes)
        try:
            PermissionRule.parse("ask", node.value, "workflow", f"`{key}`")
        except ValueError as error:
            return notes.wrong(node, shown(str(error)))
        return node.value

    def schema(self) -> Schema:
        return {"type": "string", "pattern": r"\S"}


class Boolean(msgspec.Struct, frozen=True):
    words: str = "true or false"

    def is_like(self, node: Node) -> bool:
        return isinstance(node, Scalar) and isinstance(node.value, bool)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        if not isinstance(node, Scalar) or not isinstance(node.value, bool):
            return unlike(self, node, key, notes)
        return node.value

    def schema(self) -> Schema:
        return {"type": "boolean"}


class Yes(msgspec.Struct, frozen=True):
    """Only `true`: what is not wanted is left out."""

    words: str = "true"

    def is_like(self, node: Node) -> bool:
        return isinstance(node, Scalar) and isinstance(node.value, bool)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        if not isinstance(node, Scalar) or node.value is not True:
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

    def is_like(self, node: Node) -> bool:
        return isinstance(node, Scalar) and _is_number(node.value)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        value = node.value if isinstance(node, Scalar) else None
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
    """Seconds."""

    may_be_zero: bool = False
    words: str = duration.WORDS

    def is_like(self, node: Node) -> bool:
        return isinstance(node, Scalar) and (isinstance(node.value, str) or _is_number(node.value))

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        if not isinstance(node, Scalar) or not self.is_like(node):
            return unlike(self, node, key, notes)
        value = node.value
        seconds = duration.seconds_in(value) if isinstance(value, str) else float(value or 0)
        if seconds is None or not 0 <= seconds <= duration.LONGEST:
            return notes.wrong(node, f"`{key}` must be {self.words}")
        if seconds == 0 and not self.may_be_zero:
            return notes.wrong(node, f"`{key}` must be more than nothing: leave it out to have no limit")
        return seconds

    def schema(self) -> Schema:
        least: Schema = {"minimum": 0} if self.may_be_zero else {"exclusiveMinimum": 0}
        text: Schema = {"type": "string", "pattern": duration.PATTERN}
        if not self.may_be_zero:
            text["pattern"] = f"^(?=.*[1-9]){duration.PATTERN[1:]}"
        return {"anyOf": [{"type": "number", "maximum": duration.LONGEST, **least}, text]}


class Choice(msgspec.Struct, frozen=True):
    """One of a few words."""

    options: tuple[str, ...]

    @property
    def words(self) -> str:
        *most, last = (f"`{option}`" for option in self.options)
        return f"{', '.join(most)} or {last}" if most else last

    def is_like(self, node: Node) -> bool:
        return isinstance(node, Scalar) and isinstance(node.value, str)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            return unlike(self, node, key, notes)
        return node.value if self.has(node) else self.refuse(node, key, notes, self.words)

    def has(self, node: Node) -> bool:
        return isinstance(node, Scalar) and node.value in self.options

    def refuse(self, node: Node, key: str, notes: Notes, words: str) -> Any:
        """Note that a text is none of them; `words` say all that may stand there."""
        text = str(node.value) if isinstance(node, Scalar) else ""
        near = suggestion(text, self.options, self.options)
        return notes.wrong(node, f"`{key}` must be {words}{'; ' + near if near[:3] == 'did' else ''}")

    def schema(self) -> Schema:
        return {"enum": [*self.options]}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
