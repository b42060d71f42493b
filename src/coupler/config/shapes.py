"""The shapes of values in `coupler.toml` that other files have not, and what is noted while it is read.

A value that is wrong is never repeated: it may be a secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec

from coupler.config.files import KeyPath, ListItem, Origin
from coupler.config.lookup import MOST_PROBLEMS
from coupler.fields.nodes import ListNode, MappingNode, Node, ScalarNode, SourcePosition
from coupler.fields.shapes import WRONG, Choice, ListOf, MappingOf, Names, Notes, Schema, Text, unlike
from coupler.fields.tables import Key

_CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f]")
_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_MODEL = re.compile(r"[A-Za-z][A-Za-z0-9_-]*:\S.*")

_AGE = re.compile(r"(\d{1,6})([mhdw])", re.ASCII)
_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) ?([kmgt]b)", re.ASCII)
_BYTES = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}

_NOWHERE = SourcePosition("", 0, 0)
"""The position of all nodes: where a value stands is found by its path, and only if somebody asks."""

Setter = Literal["user", "trusted project", "project"]
"""Files that may set a key: the user's alone; a project's too, once the user trusts it; any project's."""


class Setting(Key, frozen=True):
    """A key of `coupler.toml` that has one name: also says who may set it."""

    setter: Setter = "user"
    variable: str | None = None
    """An environment variable that sets it too."""
    unset: Any = None
    """The value if nobody sets it; that of the field."""


class Fault(NamedTuple):
    """Something that is wrong: where, and how a sentence goes on right after the key's name."""

    path: KeyPath
    message: str


class TomlTable(MappingNode, frozen=True):
    """A table."""

    @property
    def words(self) -> str:
        return "a table"

    def key(self, name: str) -> Any:
        """The value of a key, which has the same path."""
        return self.values[name]


class TomlScalar(ScalarNode, frozen=True):
    """A value that is neither a table nor a list."""

    @property
    def words(self) -> str:
        kinds = {str: "a text", bool: "true or false", int: "a number", float: "a number"}
        return kinds.get(type(self.value), "a date or time")


class SettingNotes(Notes):
    """Collects what is wrong with values, and knows where each stands."""

    def __init__(self, origin_at: Callable[[KeyPath], Origin], home: str | None = None) -> None:
        super().__init__()
        self.faults: list[Fault] = []
        self.home = home
        """The directory that `~` stands for."""
        self._origin_at = origin_at
        self._places: dict[int, tuple[KeyPath, Node]] = {}
        """Paths of nodes by their identity, which no other node has as long as they are there."""

    def node(self, value: Any, path: KeyPath) -> Node:
        """Make the node of a value that stands at a path."""
        node: Node
        match value:
            case dict():
                values = {name: self.node(each, (*path, name)) for name, each in value.items()}
                node = TomlTable(_NOWHERE, {}, values)
            case list() | tuple():
                node = ListNode(_NOWHERE, tuple(self.node(each, (*path, n)) for n, each in enumerate(value)))
            case _:
                node = TomlScalar(_NOWHERE, value, str(value))
        self._places[id(node)] = path, node
        return node

    def origin(self, node: Node) -> Origin:
        """Return where a value was set."""
        return self._origin_at(self._places[id(node)][0])

    def wrong(self, node: Node, message: str) -> Any:
        self.faults.append(Fault(self._places[id(node)][0], f": {message}"))
        return WRONG

    def unfit(self, node: Node, key: str, message: str) -> Any:
        self.faults.append(Fault(self._places[id(node)][0], f" {message}"))
        return WRONG

    def unknown(self, node: MappingNode, name: str, title: str, advice: Callable[[], str]) -> Any:
        # More than a few are only counted: comparing words takes its time.
        about = f"; {advice()}" if len(self.faults) < MOST_PROBLEMS else ""
        return self.unfit(node.key(name), name, f"is unknown{about}")

    def misnamed(self, node: MappingNode, name: str, key: str, words: str) -> Any:
        return self.unfit(node.key(name), name, f"must be {words}")

    def given(self, field: str, node: Node, key: str) -> Any:
        return self.origin(node) if field == "origin" else super().given(field, node, key)


def one_of(*options: str) -> Choice:
    """One of these words, as it is written in TOML."""
    return Choice(" or ".join(f'"{option}"' for option in options), options=options)


def line_problem(text: str) -> str | None:
    """The problem with a text that must be one line, as the end of a sentence; None if it is right."""
    if not text.strip():
        return "must not be empty"
    return "must be one line without control characters" if _CONTROL_CHARACTERS.search(text) else None


def variable_problem(text: str) -> str | None:
    """The problem with a variable's name. It is not repeated: it may be a secret's value."""
    if _VARIABLE.fullmatch(text):
        return None
    return "must be a variable's name, made of letters, digits and _ (the name, never the value)"


def _value_problem(text: str) -> str | None:
    return "must be a text without control characters" if "\0" in text else None


AGENT_NAMES = Names(
    "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$", "called by letters, digits, `_`, `-` and `.`, at most 64 of them"
)
"""A name that cannot be taken for a command line: one word, without a path in it."""


def agent_problem(text: str) -> str | None:
    """The problem with the name of an agent, as the end of a sentence; None if it is right."""
    if AGENT_NAMES.fit(text):
        return None
    return "must be the name of an agent: that of a table [agents.NAME]"


class Entry(Text, frozen=True):
    """A text of a list that several origins may add to; it has its own origin."""

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        text = super().read(node, key, notes)
        assert isinstance(notes, SettingNotes)
        return WRONG if text is WRONG else ListItem(text, notes.origin(node))


def entries(words: str, check: Callable[[str], str | None] = line_problem) -> ListOf:
    """A list of texts; those of all origins are combined."""
    return ListOf(Entry(check=check), words)


LINE = Text(check=line_problem)
ANY_TEXT = Text(check=_value_problem)
TEXTS_BY_NAME = MappingOf(
    ANY_TEXT, "a table of texts", Names(r"^[^=\x00-\x1f\x7f]+$", "a name without `=` and control characters")
)


class File(Text, frozen=True):
    """A file: absolute, below `~`, or relative to the file that names it."""

    words: str = "a path"

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        path = Text(self.words, pattern="").read(node, key, notes)
        if path is WRONG:
            return WRONG
        if line_problem(path):
            return notes.unfit(node, key, "must be a path: it is empty, or has control characters")
        path = self._absolute(path, node, key, notes)
        return path if path is WRONG else os.path.normpath(path)

    def _absolute(self, path: str, node: Node, key: str, notes: Notes) -> Any:
        assert isinstance(notes, SettingNotes)
        directory = notes.origin(node).directory
        if path == "~" or path.startswith("~/"):
            return _at_home(path, node, key, notes)
        if path.startswith("~"):
            return notes.unfit(node, key, "names another user's home: write the path whole")
        if not os.path.isabs(path) and directory is None:
            return notes.unfit(node, key, "must be an absolute path, or begin with ~/")
        return os.path.join(directory or "", path)


def _at_home(path: str, node: Node, key: str, notes: SettingNotes) -> Any:
    if notes.home is None:
        return notes.unfit(node, key, "begins with ~, but this user has no home directory: write it whole")
    return os.path.join(notes.home, path[2:])


class Program(Text, frozen=True):
    """A program: a name on the `PATH`, or a path, which may be relative to the file that names it."""

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        program = LINE.read(node, key, notes)
        return WRONG if program is WRONG else self.located(program, node, key, notes)

    def located(self, program: str, node: Node, key: str, notes: Notes) -> Any:
        """Return a program as it can be started from anywhere."""
        assert isinstance(notes, SettingNotes)
        if program.startswith("~/"):
            return _at_home(program, node, key, notes)
        directory = notes.origin(node).directory
        if os.path.dirname(program) and not os.path.isabs(program) and directory is not None:
            return os.path.normpath(os.path.join(directory, program))
        return program


PROGRAM = Program()


class CommandLine(msgspec.Struct, frozen=True):
    """A command line, or the list of its words."""

    words: str = "a text, or a list of its words"

    def is_like(self, node: Node) -> bool:
        return isinstance(node, ListNode) or LINE.is_like(node)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        if isinstance(node, ListNode):
            words = ListOf(ANY_TEXT, self.words).read(node, key, notes)
        elif LINE.is_like(node):
            words = self._split(LINE.read(node, key, notes), node, key, notes)
        else:
            return unlike(self, node, key, notes)
        if words is WRONG:
            return WRONG
        if not words or not words[0].strip():
            return notes.unfit(node, key, "must name a program: it is empty")
        program = PROGRAM.located(words[0], node, key, notes)
        return WRONG if program is WRONG else (program, *words[1:])

    def _split(self, line: Any, node: Node, key: str, notes: Notes) -> Any:
        import shlex

        try:
            return line if line is WRONG else shlex.split(line)
        except ValueError:
            return notes.unfit(node, key, "cannot be split into words: a quote is open")

    def schema(self) -> Schema:
        return {"anyOf": [LINE.schema(), {"type": "array", "items": ANY_TEXT.schema()}]}


class CommandLines(msgspec.Struct, frozen=True):
    """A command line, or a list of them."""

    words: str = "a command line or a list of them"

    def is_like(self, node: Node) -> bool:
        return isinstance(node, ListNode) or LINE.is_like(node)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        if isinstance(node, ListNode):
            return ListOf(LINE, self.words).read(node, key, notes)
        line = LINE.read(node, key, notes) if LINE.is_like(node) else unlike(self, node, key, notes)
        return WRONG if line is WRONG else (line,)

    def schema(self) -> Schema:
        return {"anyOf": [LINE.schema(), {"type": "array", "items": LINE.schema()}]}


class Scalar(msgspec.Struct, frozen=True):
    """A text, a number, true or false."""

    words: str = "a text, a number, true or false"

    def is_like(self, node: Node) -> bool:
        return isinstance(node, ScalarNode) and isinstance(node.value, str | int | float)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        if not isinstance(node, ScalarNode) or not self.is_like(node):
            return unlike(self, node, key, notes)
        return node.value

    def schema(self) -> Schema:
        return {"type": ["string", "number", "boolean"]}


class KeepRule(msgspec.Struct, frozen=True):
    """A limit of age and size; what goes beyond is deleted, the oldest first."""

    age: int | None = None
    """Seconds since something last happened in it."""
    size: int | None = None
    """Bytes of all together."""
    words: str = ""
    """The rule as the user wrote it."""

    def __str__(self) -> str:
        return self.words


class Keep(msgspec.Struct, frozen=True):
    """An age, a size, or a list of both."""

    words: str = 'an age such as "90d", a size such as "2GB", or a list of both'

    def is_like(self, node: Node) -> bool:
        return isinstance(node, ListNode) or LINE.is_like(node)

    def read(self, node: Node, key: str, notes: Notes) -> Any:
        parts = node.nodes if isinstance(node, ListNode) else (node,)
        if not parts:
            return notes.unfit(node, key, f"must be {self.words}: it is empty")
        found: dict[str, int] = {}
        texts = []
        for part in parts:
            if not isinstance(part, ScalarNode) or not isinstance(part.value, str):
                return unlike(self, part, key, notes)
            limit = self._limit(part.value)
            if isinstance(limit, str):
                return notes.unfit(part, key, limit)
            if limit[0] in found:
                return notes.unfit(part, key, f"is a second {limit[0]}: one age and one size can be set")
            found.update([limit])
            texts.append(part.value)
        return KeepRule(**found, words=" and ".join(texts))

    def _limit(self, text: str) -> tuple[str, int] | str:
        """Return the kind of limit and its amount, or what is wrong."""
        for name, parse in (("age", parse_age), ("size", parse_size)):
            try:
                amount = parse(text)
            except ValueError:
                continue
            return (
                (name, amount) if amount else "must be more than nothing: with 0 everything would be deleted"
            )
        return f"must be {self.words}; an age ends with m, h, d or w"

    def schema(self) -> Schema:
        return {"anyOf": [LINE.schema(), {"type": "array", "items": LINE.schema(), "minItems": 1}]}


def model_problem(text: str) -> str | None:
    """The problem with the name of a model and its provider, as the end of a sentence.

    None if it is right.
    """
    if _CONTROL_CHARACTERS.search(text):
        return "must be one line without control characters"
    if not _MODEL.fullmatch(text):
        return 'must name provider and model, as "anthropic:NAME", "openai:NAME" or "ollama:NAME"'
    return None


def address_problem(text: str) -> str | None:
    """The problem with the address of a server, as the end of a sentence; None if it is right."""
    # Imported on use: hardly any file has an address.
    from urllib.parse import urlsplit

    if _CONTROL_CHARACTERS.search(text) or " " in text:
        return "must be one line without spaces or control characters"
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is no address: look at its host and port"
    if parts.scheme not in ("https", "http") or not host:
        return "must begin with https:// or http:// and name a host"
    if parts.username is not None or parts.password is not None:
        return "must hold no password: keys are variables, or stored by `coupler login coder`"
    if parts.query or parts.fragment:
        return "must end with its path: it has a `?` or `#`"
    return None


def parse_age(text: str) -> int:
    """Convert an age such as `30d` to seconds; raises ValueError for what is none."""
    match = _AGE.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is no age: write it as 12h, 30d or 8w")
    return int(match[1]) * _SECONDS[match[2]]


def parse_size(text: str) -> int:
    """Convert a size such as `2GB` to bytes; raises ValueError for what is none."""
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is no size: write it as 500MB or 2GB")
    return round(float(match[1]) * _BYTES[match[2]])


MODEL = Text('a model as "provider:name"', check=model_problem)
"""One is not repeated if it is wrong: somebody may have put a key there."""
ADDRESS = Text("an address", check=address_problem)
VARIABLE = Text("a variable name", check=variable_problem)
