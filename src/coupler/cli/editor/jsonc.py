"""Edits JSON with comments and trailing commas, as people write settings, without touching the rest.

A change is made in the text: whatever it is not about stays as it was, to the last space. The result is
what the editors read: of two members with one name the last counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

MAX_DEPTH = 200
"""Levels of nested objects and lists, at most."""

_GAP = re.compile(r"(?:[ \t\r\n\ufeff]|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_PLAIN = re.compile(r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_INDENT = re.compile(r"^([ \t]+)[\"{}\]]", re.MULTILINE)


class JsoncError(Exception):
    """The text is not JSON, or a value in it has the wrong type."""

    def __init__(self, text: str, place: int, problem: str) -> None:
        self.line = text.count("\n", 0, place) + 1
        self.column = place - (text.rfind("\n", 0, place) + 1) + 1
        super().__init__(f"line {self.line}, column {self.column}: {problem}")


class JsonNode(NamedTuple):
    """A value, and where it stands in the text."""

    start: int
    end: int
    value: Any
    """The decoded value, without members that later ones of the same name override."""
    members: dict[str, JsonNode] | None = None
    """The members of an object; None for any other value."""
    last: int | None = None
    """The position of the last member's end."""
    comma: int | None = None
    """The position of the comma after the last member."""


class JsoncDocument:
    """A text of settings; an empty one, and one of nothing but comments, is an empty object."""

    def __init__(self, text: str) -> None:
        self.text = text
        start = _gap(text, 0)
        self.root = None if start == len(text) else _value(text, start, 0)
        if self.root is not None:
            rest = _gap(text, self.root.end)
            if rest < len(text):
                _refuse(text, rest, "there is something after the end")
            if self.root.members is None:
                _refuse(text, start, "there should be an object, which begins with `{`")

    def get(self, path: Sequence[str]) -> Any:
        """The value at a path of names; None if there is none."""
        node = self.root
        for name in path:
            if node is None or node.members is None:
                return None
            node = node.members.get(name)
        return None if node is None else node.value

    def changed(self, path: Sequence[str], value: Any, indent: str) -> JsoncDocument:
        """A document with this value at a path of names; objects on the way are made.

        `indent` is what one level is moved by, if the text itself does not show it.
        """
        if self.root is None:
            gap = "" if not self.text or self.text.endswith("\n") else _newline(self.text)
            return JsoncDocument(f"{self.text}{gap}{{}}{_newline(self.text)}").changed(path, value, indent)
        node, depth = self.root, 0
        while depth < len(path) and node.members is not None and path[depth] in node.members:
            node, depth = node.members[path[depth]], depth + 1
        if depth == len(path):
            return self if node.value == value else self._with_replaced(node, value, indent)
        if node.members is None:
            _refuse(self.text, node.start, f"`{path[depth - 1]}` should be an object, which begins with `{{`")
        for name in reversed(path[depth + 1 :]):
            value = {name: value}
        return self._with_member(node, path[depth], value, indent)

    def _with_replaced(self, node: JsonNode, value: Any, indent: str) -> JsoncDocument:
        shown = self._written(value, self._indent_at(node.start), indent)
        return JsoncDocument(f"{self.text[: node.start]}{shown}{self.text[node.end :]}")

    def _with_member(self, node: JsonNode, name: str, value: Any, indent: str) -> JsoncDocument:
        """Adds a member, after the last of an object and the comments behind that."""
        text, close = self.text, node.end - 1
        around = self._indent_at(node.start)
        inside = self._indent_of_members(node) or around + self._unit(indent)
        shown = f"{json.dumps(name, ensure_ascii=False)}: {self._written(value, inside, indent)}"
        newline = _newline(text)
        before = text[:close].rstrip(" \t\r\n")
        if node.last is not None and node.comma is None:
            before = f"{before[: node.last]},{before[node.last :]}"
        comma = "," if node.comma is not None else ""
        return JsoncDocument(f"{before}{newline}{inside}{shown}{comma}{newline}{around}{text[close:]}")

    def _written(self, value: Any, around: str, indent: str) -> str:
        """Writes objects over several lines, everything else in one."""
        if not isinstance(value, dict) or not value:
            return json.dumps(value, ensure_ascii=False)
        inside, newline = around + self._unit(indent), _newline(self.text)
        members = (
            f"{inside}{json.dumps(name, ensure_ascii=False)}: {self._written(each, inside, indent)}"
            for name, each in value.items()
        )
        return f"{{{newline}{f',{newline}'.join(members)}{newline}{around}}}"

    def _unit(self, usual: str) -> str:
        """The indent of one level: the least of any line."""
        found = [match[1] for match in _INDENT.finditer(self.text)]
        tabs = [each for each in found if each.startswith("\t")]
        return "\t" if tabs else min(found, key=len, default=usual)

    def _indent_at(self, place: int) -> str:
        """The indent of the line of a position."""
        line = self.text[self.text.rfind("\n", 0, place) + 1 : place]
        return line[: len(line) - len(line.lstrip(" \t"))]

    def _indent_of_members(self, node: JsonNode) -> str | None:
        """The indent of an object's members; None if none begins a line."""
        for member in reversed([*(node.members or {}).values()]):
            begin = self.text.rfind("\n", 0, member.start) + 1
            if begin > node.start:
                return self._indent_at(member.start)
        return None


def _value(text: str, start: int, depth: int) -> JsonNode:
    if depth > MAX_DEPTH:
        _refuse(text, start, f"it is nested more than {MAX_DEPTH} times")
    if start >= len(text):
        _refuse(text, start, "the text ends in the middle")
    if text[start] == "{":
        return _object(text, start, depth)
    if text[start] == "[":
        return _list(text, start, depth)
    if text[start] == '"':
        word, end = _string(text, start)
        return JsonNode(start, end, word)
    match = _PLAIN.match(text, start)
    if match is None:
        _refuse(text, start, f"there should be a value, not {text[start]!r}")
    return JsonNode(start, match.end(), json.loads(match[0]))


def _object(text: str, start: int, depth: int) -> JsonNode:
    members: dict[str, JsonNode] = {}
    last = comma = None
    place = _gap(text, start + 1)
    while not text.startswith("}", place):
        if last is not None and comma is None:
            _refuse(text, last, "a comma is missing here")
        if not text.startswith('"', place):
            _refuse(text, place, "there should be a name in double quotes, or `}`")
        name, end = _string(text, place)
        colon = _gap(text, end)
        if not text.startswith(":", colon):
            _refuse(text, colon, f"there should be a `:` after the name {name!r}")
        member = _value(text, _gap(text, colon + 1), depth + 1)
        members.pop(name, None)  # so that the last one in the text is the last one here
        members[name] = member
        last, place = member.end, _gap(text, member.end)
        comma = place if text.startswith(",", place) else None
        if comma is not None:
            place = _gap(text, comma + 1)
    value = {name: member.value for name, member in members.items()}
    return JsonNode(start, place + 1, value, members, last, comma)


def _list(text: str, start: int, depth: int) -> JsonNode:
    items: list[Any] = []
    place = _gap(text, start + 1)
    while not text.startswith("]", place):
        item = _value(text, place, depth + 1)
        items.append(item.value)
        place = _gap(text, item.end)
        if text.startswith(",", place):
            place = _gap(text, place + 1)
        elif not text.startswith("]", place):
            _refuse(text, item.end, "a comma or `]` is missing here")
    return JsonNode(start, place + 1, items)


def _string(text: str, start: int) -> tuple[str, int]:
    match = _STRING.match(text, start)
    if match is None:
        _refuse(text, start, "this text in quotes does not end on its line")
    try:
        return json.loads(match[0]), match.end()
    except ValueError:
        _refuse(text, start, "this text in quotes has a `\\` that means nothing")


def _gap(text: str, start: int) -> int:
    """The position of the next thing that is no space and no comment."""
    match = _GAP.match(text, start)
    assert match is not None
    if text.startswith("/*", match.end()):
        _refuse(text, match.end(), "this comment does not end")
    return match.end()


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _refuse(text: str, place: int, problem: str) -> NoReturn:
    raise JsoncError(text, place, problem)
