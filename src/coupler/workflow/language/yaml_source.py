"""Parses YAML into a tree in which every node knows its line and column.

The text may be a stranger's: its size, its depth and what its anchors expand to are bounded, and what could
mean two things (tags, merge keys, keys that stand twice) is refused. Values are those of YAML 1.2's core:
only `true` and `false` are booleans, and a date is a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NoReturn

from coupler.fields.nodes import ListNode, MappingNode, Node, Problem, ScalarNode, SourcePosition
from coupler.runtime.extras import import_extra
from coupler.runtime.formatting import printable
from coupler.workflow.errors import InvalidWorkflowError

MOST_BYTES = 1024 * 1024
"""Most bytes of a file."""
MOST_CHARACTERS = 4 * MOST_BYTES
"""Characters of all texts, each counted as often as an alias repeats it."""
MOST_NODES = 20_000
"""Values, each counted as often as an alias repeats it."""
MOST_DEPTH = 64
"""Lists and mappings inside of each other."""
BIGGEST_INTEGER = 2**63 - 1

_UNFIT = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_HALF = re.compile("[\ud800-\udfff]")
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_MISPLACED = ("expected <block end>", "did not find expected '-' indicator", "did not find expected key")
"""Messages of PyYAML, compiled or not, about a line whose indentation fits no line before it."""
_VALUE = re.compile(r":\s.*")
_NULL = ("", "~", "null", "Null", "NULL")
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


def parse_yaml(source: bytes | str, file: str) -> Node:
    """Parse a text into a tree; raises InvalidWorkflowError."""
    text = _decoded(source, file)
    yaml: Any = import_extra("yaml", extra="workflows", feature="A workflow")
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        return _Composer(text.splitlines(), file, yaml, yaml.parse(text, Loader=loader)).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        _refuse(SourcePosition(file, line, column), _syntax_words(error, text.splitlines(), line, column))
    except yaml.YAMLError as error:
        _refuse(SourcePosition(file, 1, 1), f"this is no YAML: {printable(str(error))}")


def _decoded(source: bytes | str, file: str) -> str:
    if len(source) > MOST_BYTES:
        _refuse(
            SourcePosition(file, 1, 1), f"the file is too large: a workflow has at most {MOST_BYTES:,} bytes"
        )
    text = (source if isinstance(source, str) else _from_utf_8(source, file)).removeprefix("\ufeff")
    if unfit := _UNFIT.search(text):
        start = unfit.start()
        place = SourcePosition(file, text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))
        _refuse(
            place, f"the character {printable(unfit[0])} is not allowed: leave it out, or escape it in quotes"
        )
    return text


def _from_utf_8(source: bytes, file: str) -> str:
    try:
        return source.decode()
    except UnicodeDecodeError as error:
        before = source[: error.start].decode().splitlines(keepends=True) or [""]
        is_new_line = before[-1].endswith(("\n", "\r"))
        line, column = (len(before) + 1, 1) if is_new_line else (len(before), len(before[-1]) + 1)
        _refuse(SourcePosition(file, line, column), "this is no UTF-8: save the file in that encoding")


def _syntax_words(error: Any, lines: list[str], line: int, column: int) -> str:
    problem = printable(str(error.problem or error.context or "it cannot be read"))
    written = lines[line - 1] if 0 < line <= len(lines) else ""
    is_first = not written[: column - 1].strip()
    if "cannot start any token" in problem and written.lstrip(" ").startswith("\t"):
        return "a tab cannot indent YAML: use spaces"
    if any(words in problem for words in _MISPLACED):
        return f"this is no YAML: {_misplaced_words(written, is_first)}"
    if "mapping values are not allowed" in problem and ": " not in written[: column - 1]:
        return f"this is no YAML: {_misplaced_words(written, is_first=True)}"
    if "could not find expected ':'" in problem and error.context_mark:
        return f"this is no YAML: line {error.context_mark.line + 1} has no `:` after its key, or needs a `-`"
    if "unexpected end of stream" in problem and error.context_mark:
        return f"this is no YAML: the quote of line {error.context_mark.line + 1} is not closed"
    if "expected ',' or" in problem and error.context_mark:
        return f"this is no YAML: the bracket of line {error.context_mark.line + 1} is not closed"
    if "mapping values are not allowed" in problem:
        return "this is no YAML: a text with `: ` in it needs quotes around it"
    if "cannot start any token" in problem:
        return "this is no YAML: a text that starts with this character needs quotes around it"
    return f"this is no YAML: {problem}"


def _misplaced_words(written: str, is_first: bool) -> str:
    # Its value is not repeated: it may be a password.
    line = f"`{printable(_VALUE.sub(': …', written.strip()), 60)}`"
    if not is_first:
        return f"a value ends in the midst of {line}: put quotes around all of it, or a line's end behind it"
    return (
        f"{line} is indented differently from the lines around it: begin it below the first letter, "
        "or the `-`, of the line that it goes with"
    )


def _refuse(position: SourcePosition, message: str) -> NoReturn:
    raise InvalidWorkflowError([Problem(position, message)])


@dataclass
class _Composer:
    """Makes the tree from the parser's events, within the limits."""

    lines: list[str]
    file: str
    yaml: Any
    events: Iterator[Any]
    anchors: dict[str, Node | None] = field(default_factory=dict)
    """None: still being read, so that an alias to it would have no end."""
    weights: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Nodes and characters below each anchored node."""
    nodes: int = 0
    characters: int = 0

    def document(self) -> Node:
        next(self.events)
        event = next(self.events)
        if isinstance(event, self.yaml.StreamEndEvent):
            _refuse(SourcePosition(self.file, 1, 1), "the file is empty: a workflow has at least `steps`")
        root = self._node(next(self.events), 0)
        next(self.events)
        event = next(self.events)
        if not isinstance(event, self.yaml.StreamEndEvent):
            _refuse(self._position(event), "a second document begins here: a file has one workflow")
        return root

    def _node(self, event: Any, depth: int) -> Node:
        if isinstance(event, self.yaml.AliasEvent):
            return self._alias(event)
        self._check(event, depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        before = self.nodes, self.characters
        node = self._composed(event, depth)
        self._count(event, 1, len(node.text) if isinstance(node, ScalarNode) else 0)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
            self.weights[id(node)] = self.nodes - before[0], self.characters - before[1]
        return node

    def _composed(self, event: Any, depth: int) -> Node:
        if isinstance(event, self.yaml.ScalarEvent):
            return self._scalar(event)
        if isinstance(event, self.yaml.SequenceStartEvent):
            return ListNode(self._position(event), (*self._items(depth),))
        return self._fields(event, depth)

    def _check(self, event: Any, depth: int) -> None:
        if event.tag is not None:
            _refuse(
                self._position(event),
                "tags (`!…`) are not allowed: write a plain value, and `not` in an expression",
            )
        if depth > MOST_DEPTH:
            _refuse(self._position(event), f"lists and mappings are more than {MOST_DEPTH} deep here")

    def _count(self, event: Any, nodes: int, characters: int) -> None:
        self.nodes += nodes
        self.characters += characters
        if self.nodes > MOST_NODES or self.characters > MOST_CHARACTERS:
            _refuse(
                self._position(event),
                f"the workflow is too large here, with what its aliases repeat: "
                f"at most {MOST_NODES:,} values and {MOST_CHARACTERS:,} characters",
            )

    def _alias(self, event: Any) -> Node:
        name = event.anchor
        if name not in self.anchors:
            _refuse(self._position(event), f"there is no anchor `&{printable(name, 60)}` above")
        node = self.anchors[name]
        if node is None:
            _refuse(self._position(event), f"`*{printable(name, 60)}` stands inside of what it repeats")
        self._count(event, *self.weights[id(node)])
        return node

    def _items(self, depth: int) -> Iterator[Node]:
        while not isinstance(event := next(self.events), self.yaml.SequenceEndEvent):
            yield self._node(event, depth + 1)

    def _fields(self, event: Any, depth: int) -> MappingNode:
        fields = MappingNode(self._position(event), {}, {})
        while not isinstance(event := next(self.events), self.yaml.MappingEndEvent):
            key = self._key(event, depth, fields)
            fields.keys[key.text] = key
            fields.values[key.text] = self._node(next(self.events), depth + 1)
        return fields

    def _key(self, event: Any, depth: int, fields: MappingNode) -> ScalarNode:
        place = self._position(event)
        key = self._node(event, depth + 1)
        if not isinstance(key, ScalarNode):
            _refuse(place, "a key must be a text; a value that begins with `{{` needs quotes around it")
        if not isinstance(key.value, str):
            _refuse(place, "a key must be a text: put it in quotes")
        if key.value == "<<" and event.style in (None, ""):
            _refuse(place, "merge keys (`<<`) are no part of YAML 1.2: repeat the keys, or use `defaults`")
        if first := fields.keys.get(key.value):
            _refuse(place, f"`{printable(key.value, 60)}` stands twice; first in line {first.position.line}")
        return key

    def _scalar(self, event: Any) -> ScalarNode:
        place, text = self._position(event), event.value
        if _HALF.search(text):
            _refuse(place, "half of a character cannot be escaped: write the character itself")
        if event.style in (None, ""):
            return ScalarNode(place, self._value(text, place), text)
        if event.style == "|":
            return ScalarNode(place, text, text, True, self._indent(event.start_mark.line + 1))
        return ScalarNode(place, text, text)

    def _value(self, text: str, place: SourcePosition) -> str | int | float | bool | None:
        if text in _NULL:
            return None
        if text in _BOOLEANS:
            return _BOOLEANS[text]
        if _INTEGER.fullmatch(text):
            return self._integer(text, place)
        if _FLOAT.fullmatch(text):
            number = float(text)
            if number in (float("inf"), float("-inf")):
                _refuse(place, "this number is too large: put it in quotes if it is a text")
            return number
        if _NO_NUMBER.fullmatch(text):
            _refuse(place, "a workflow has no infinite numbers: put it in quotes if it is a text")
        return str(text)

    def _integer(self, text: str, place: SourcePosition) -> int:
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        digits = text.lstrip("+-0ox") or "0"
        number = int(text[2:] if base != 10 else text, base) if len(digits) < 30 else BIGGEST_INTEGER + 1
        if abs(number) > BIGGEST_INTEGER:
            _refuse(place, "this number is too large: put it in quotes if it is a text")
        return number

    def _indent(self, line: int) -> int:
        """Return the indentation of the first line from here that is not blank."""
        for written in islice(self.lines, line, None):
            if written.strip():
                return len(written) - len(written.lstrip(" "))
        return 0

    def _position(self, event: Any) -> SourcePosition:
        return SourcePosition(self.file, event.start_mark.line + 1, event.start_mark.column + 1)
