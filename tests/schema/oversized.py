"""Makes oversized messages from the types of the schema, for every list, map, object, number and text.

A message is described by its type and the path to the part that is blown up; everything around that part is
valid, so that a reader gets as far as it can.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cache
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from schema.strategies import structs_of

PART = "@part@"
"""What stands in a message for the part that is blown up."""


class Oversized(NamedTuple):
    """A message as JSON text with one part left out, where that part is, and what belongs there."""

    path: str
    frame: bytes
    part: str
    """list, map, object, number, text or any."""
    good: bytes
    """One valid item of the list or member of the map."""

    def filled(self, content: bytes) -> bytes:
        """The message with this content in place of its part."""
        return self.frame.replace(f'"{PART}"'.encode(), content, 1)


def oversized(kind: Hashable, seen: set[type]) -> Iterator[Oversized]:
    """Every part of the type that a peer can make as large as it likes.

    `seen` are the Structs that an earlier message had already; their parts are not repeated.
    """
    for path, value, part, good in _parts(_described(kind), "", seen):
        yield Oversized(path or "(whole)", msgspec.json.encode(value), part, msgspec.json.encode(good))


def contents(part: Oversized, size: int) -> Iterator[tuple[str, bytes]]:
    """What to fill a part with so that it has about `size` bytes, each with its name."""
    good = part.good
    many = size // (len(good) + 1)
    if part.part == "list":
        yield "good items", b"[" + b",".join([good] * many) + b"]"
    if part.part == "map":
        members = (b'"k%d":%b' % (number, good) for number in range(size // (len(good) + 11)))
        yield "good members", b"{" + b",".join(members) + b"}"
    yield "bad items", b"[" + b"1," * (size // 2) + b"1]"
    yield "empty lists", b"[" + b"[]," * (size // 3) + b"[]]"
    yield "empty objects", b"[" + b"{}," * (size // 3) + b"{}]"
    yield "members", b"{" + b",".join(b'"k%d":0' % number for number in range(size // 12)) + b"}"
    yield "the same member", b"{" + b'"k":0,' * (size // 6) + b'"k":0}'
    yield "a long key", b'{"' + b"k" * size + b'":' + (good if part.part == "map" else b"0") + b"}"
    yield "nested lists", b"[" * (size // 2) + b"]" * (size // 2)
    yield "nested a little", b"[" + (b"[" * 150 + b"]" * 150 + b",") * (size // 301) + b"0]"
    yield "digits", b"1" * size
    yield "many long numbers", b"[" + b",".join([b"1" * 4000] * (size // 4001)) + b"]"
    yield "a long fraction", b"0." + b"1" * size
    yield "a long text", b'"' + b"x" * size + b'"'
    yield "a text of commas", b'"' + b",[{" * (size // 3) + b'"'
    yield "escapes", b'"' + rb"\u0000" * (size // 6) + b'"'
    yield "lone surrogates", b'"' + rb"\ud800" * (size // 6) + b'"'


@cache
def _described(kind: Hashable) -> inspect.Type:
    return inspect.type_info(kind)


Part = tuple[str, Any, str, Any]


def _parts(kind: inspect.Type, path: str, seen: set[type]) -> Iterator[Part]:
    """The parts of a type: the path, a valid value around PART, what the part is, and a valid item of it."""
    match kind:
        case inspect.ListType():
            yield path, PART, "list", _valid(kind.item_type)
            for inner, value, part, good in _parts(kind.item_type, f"{path}[]", seen):
                yield inner, [value], part, good
        case inspect.DictType():
            yield path, PART, "map", _valid(kind.value_type)
            for inner, value, part, good in _parts(kind.value_type, f"{path}{{}}", seen):
                yield inner, {"k": value}, part, good
        case inspect.UnionType():
            for option in kind.types:
                yield from _parts(option, path, seen)
        case inspect.CustomType():
            for struct in structs_of(kind.cls):
                yield from _parts(_described(struct), path, seen)
        case inspect.StructType():
            if kind.cls not in seen:
                seen.add(kind.cls)
                yield from _parts_of_struct(kind, path, seen)
        case inspect.StrType():
            yield path, PART, "text", "x"
        case inspect.IntType() | inspect.FloatType():
            yield path, PART, "number", 1
        case inspect.AnyType():
            yield path, PART, "any", 0


def _parts_of_struct(kind: inspect.StructType, path: str, seen: set[type]) -> Iterator[Part]:
    around = _valid(kind)
    yield path, PART, "object", 0
    for field in kind.fields:
        where = f"{path}.{field.encode_name}".lstrip(".")
        for inner, value, part, good in _parts(field.type, where, seen):
            yield inner, {**around, field.encode_name: value}, part, good


def _valid(kind: inspect.Type) -> Any:
    """The smallest valid JSON value of a type."""
    match kind:
        case inspect.BoolType():
            return True
        case inspect.StrType():
            return "x"
        case inspect.IntType() | inspect.FloatType() | inspect.AnyType():
            return 1
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.ListType():
            return []
        case inspect.DictType():
            return {}
        case inspect.UnionType():
            return _valid(next(each for each in kind.types if not isinstance(each, inspect.NoneType)))
        case inspect.CustomType():
            return _valid(_described(structs_of(kind.cls)[0]))
        case inspect.StructType():
            tag = {kind.tag_field: kind.tag} if kind.tag_field else {}
            needed = {field.encode_name: _valid(field.type) for field in kind.fields if field.required}
            scope = (
                {"sessionId": "s"} if {"request_id", "session_id"} <= {f.name for f in kind.fields} else {}
            )
            return {**tag, **scope, **needed}
    raise NotImplementedError(kind)
