"""The shapes of values in a workflow file, and words of other languages that people write for its keys."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, NamedTuple

import msgspec

from coupler.fields.nodes import ListNode, MappingNode, Node, ScalarNode, SourcePosition, plain_value
from coupler.fields.shapes import (
    Boolean,
    Duration,
    ListOf,
    MappingOf,
    Names,
    Notes,
    Number,
    Schema,
    Text,
    TextKind,
    unlike,
)
from coupler.runtime.formatting import printable


class JsonSchema(msgspec.Struct, frozen=True):
    """A JSON Schema, written in place."""

    words: str = "a JSON Schema"

    def is_like(self, node: Node) -> bool:
        return isinstance(node, MappingNode)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        return plain_value(node) if isinstance(node, MappingNode) else unlike(self, node, key, notes)

    def schema(self) -> Schema:
        return {"type": "object"}


class Variable(msgspec.Struct, frozen=True):
    """A text, or a number or boolean that is taken as it is written; a template."""

    words: str = "a text, a number, true or false"

    def is_like(self, node: Node) -> bool:
        return isinstance(node, ScalarNode) and node.value is not None

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        if not isinstance(node, ScalarNode) or node.value is None:
            return unlike(self, node, key, notes)
        notes.found("template", node)
        return node.text

    def schema(self) -> Schema:
        return {"type": ["string", "number", "boolean"]}


class FileName(Text, frozen=True):
    """A file, relative to the directory of the file that names it."""

    words: str = "the name of a file"
    not_files: tuple[str, ...] = ()
    """Words that mean something else."""

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
            return unlike(self, node, key, notes)
        name = node.value
        if name in self.not_files:
            return name
        if not re.search(r"\S", name) or re.search("[\x00-\x1f\x7f]", name):
            return notes.unfit(node, key, "must be the name of a file, in one line")
        if name.startswith(("/", "~")):
            return notes.unfit(node, key, "must be a path that starts in the workflow's directory")
        notes.found("file", node)
        return name

    def schema(self) -> Schema:
        return {
            "type": "string",
            "pattern": r"^(?![/~])[^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]*$",
        }


class Yes(Boolean, frozen=True):
    """The value `true`; an option that is not wanted is left out."""

    words: str = "true"

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        if not isinstance(node, ScalarNode) or node.value is not True:
            return notes.unfit(node, key, "must be true here, or be left out")
        return True

    def schema(self) -> Schema:
        return {"const": True}


class Alone(msgspec.Struct, frozen=True):
    """A key that stands by itself."""

    name: str

    def check(self, node: MappingNode, notes: Notes) -> bool:
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

    def check(self, node: MappingNode, notes: Notes) -> bool:
        if not isinstance(node.values.get(self.name), MappingNode):
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


TemplateText = Annotated[str, Text(kind="template")]
"""Text in which `{{ }}` is replaced; exactly one `{{ }}` keeps the type of its value."""
AgentName = Annotated[str, Text("an agent", kind="template")]

Seconds = Annotated[float, Duration()]
Count = Annotated[int, Number(minimum=1, maximum=1_000_000, is_whole=True)]
ExitCode = Annotated[int, Number(0, 255, is_whole=True)]

EXPRESSION = Text("an expression", kind="expression")
ANY_TEXT = Text(pattern="", kind="template")
"""A template that may be empty."""
PLAIN = Text(pattern="")
FILES = ListOf(FileName(), "a list of file names")

STEP_ID_PATTERN = "^[a-z_][a-z0-9_]{0,63}$"
StepId = Annotated[
    str,
    Text(
        "the id of a step", STEP_ID_PATTERN, wrong_words="must be made of lower-case letters, digits and `_`"
    ),
]

NAMES = Names(
    "^[A-Za-z_][A-Za-z0-9_]{0,63}$",
    "made of letters, digits and `_`, at most 64 of them, and not begin with a digit",
)
"""Names in expressions."""
FREE_NAMES = Names(
    "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$", "made of letters, digits, `_`, `-` and `.`, at most 64 of them"
)
"""Names of workflows, agents and servers."""
VARIABLES = MappingOf(
    Variable(),
    "a mapping of texts",
    Names(r"^[^=\x00-\x1f\x7f]+$", "a variable's name, without `=` and control characters"),
)
TAKEN_NAMES = ("inputs", "secrets", "steps", "vars", "run", "index", "loop")
"""Names that mean something else in expressions."""


class NamedFile(msgspec.Struct, frozen=True):
    """A file that a workflow names, relative to its own directory."""

    name: str
    position: SourcePosition


class Written(NamedTuple):
    """A template or an expression of the file, and its position."""

    kind: TextKind
    text: str
    node: ScalarNode
    owner: SourcePosition
    """The position of its step; of the whole workflow, if it is in no step."""


class WorkflowNotes(Notes):
    """Collects the problems, the templates and the named files of a workflow, and reads its steps."""

    def __init__(self, file: str, owner: SourcePosition) -> None:
        super().__init__()
        self.file = file
        self.owner = owner
        self.written: list[Written] = []
        self.files: list[NamedFile] = []

    def found(self, kind: TextKind, node: ScalarNode) -> None:
        if kind == "file":
            self.files.append(NamedFile(node.text, node.position))
        else:
            self.written.append(Written(kind, node.text, node, self.owner))

    def read_steps(self, node: ListNode) -> Any:
        """Read a list of steps."""
        return node

    def read_branches(self, node: ListNode) -> Any:
        """Read branches: steps, or lists of steps."""
        return node

    def meant(self, word: str, keys: Collection[str]) -> str | None:
        meanings = _MEANINGS.get(_plain(word), ())
        return " or ".join(f"`{key}`" for key in meanings if key in keys) or None

    def advice(self, word: str) -> str | None:
        return _ADVICE.get(_plain(word))


class Steps(msgspec.Struct, frozen=True):
    """A list of steps."""

    words: str = "a list of steps"

    def is_like(self, node: Node) -> bool:
        return isinstance(node, ListNode)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        if not isinstance(node, ListNode):
            return unlike(self, node, key, notes)
        if not node.nodes:
            return notes.unfit(node, key, "must have at least one step")
        assert isinstance(notes, WorkflowNotes)
        return self.read_list(node, notes)

    def read_list(self, node: ListNode, notes: WorkflowNotes) -> Any:
        """Read a list that is not empty."""
        return notes.read_steps(node)

    def schema(self) -> Schema:
        return {"$ref": "#/$defs/steps"}


class Branches(Steps, frozen=True):
    """Steps, or lists of steps, that run beside each other."""

    words: str = "a list of steps, or of lists of steps"

    def read_list(self, node: ListNode, notes: WorkflowNotes) -> Any:
        return notes.read_branches(node)

    def schema(self) -> Schema:
        branch = {"anyOf": [{"$ref": "#/$defs/step"}, {"$ref": "#/$defs/steps"}]}
        return {"type": "array", "minItems": 1, "items": branch}


class PermissionRule(Text, frozen=True):
    """A permission rule."""

    words: str = "a permission rule, such as `execute(git *)`"

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        from coupler.permission.rules import Rule

        if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
            return unlike(self, node, key, notes)
        try:
            Rule.parse("ask", node.value, "workflow", f"`{printable(key, 60)}`")
        except ValueError as error:
            return notes.wrong(node, printable(str(error)))
        return node.value


RULES = ListOf(PermissionRule(), "a list of permission rules")

_MEANINGS: Mapping[str, tuple[str, ...]] = {
    "args": ("inputs",),
    "arguments": ("inputs",),
    "catch": ("on_error",),
    "cmd": ("run",),
    "command": ("run",),
    "concurrency": ("max_concurrent",),
    "dir": ("cwd",),
    "directory": ("cwd",),
    "environment": ("env",),
    "exec": ("run",),
    "file": ("run_file", "prompt_file"),
    "finally": ("hooks",),
    "for": ("for_each",),
    "foreach": ("for_each",),
    "jobs": ("steps",),
    "loop": ("for_each", "while"),
    "message": ("prompt",),
    "name": ("id", "description"),
    "on_failure": ("on_error",),
    "options": ("enum",),
    "parameters": ("inputs",),
    "params": ("inputs",),
    "question": ("ask", "approve"),
    "repeat": ("while",),
    "retries": ("retry",),
    "script": ("run", "run_file"),
    "sh": ("run",),
    "shell": ("run",),
    "stages": ("steps",),
    "tasks": ("steps",),
    "title": ("description",),
    "until": ("while",),
    "values": ("enum",),
    "vars": ("set", "env"),
    "when": ("if",),
    "with": ("inputs",),
    "workflow": ("call",),
    "working_directory": ("cwd",),
}
"""Words of other workflow languages, and the keys that have that meaning here."""


_ADVICE = {
    "continue_on_error": "write `on_error: continue`",
    "depends_on": "steps run in the order of the file: leave it out; branches of `parallel` have `needs`",
    "uses": "`call` runs another workflow of yours; an action of GitHub is not run here, but its command can "
    "be a `run` step",
    "with": "values for a command stand in `env`, those for a workflow that you `call` in its `inputs`",
}
"""What to do instead of words of other workflow languages that no single key has the meaning of."""


def _plain(word: str) -> str:
    return word[:60].casefold().replace("-", "_")
