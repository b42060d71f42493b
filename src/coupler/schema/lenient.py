"""Reads a message again that the strict decoder refused, and keeps what is good of it.

One walk over the types applies the schema's markers (`coupler.schema.markers`) and the overrides below. It
works from the inside out: a bad leaf that may be replaced leaves its siblings alone. Whatever is replaced or
dropped is logged. The walk is many times slower than the strict decoder, so that it is bounded: a list has
at most `MAX_ITEMS` items, and a message at most `MAX_READS` values that have a type.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from functools import cache
from typing import Any, Literal, TypeVar, cast

from msgspec import UNSET, Struct, inspect

from coupler.schema.base import (
    DEFAULT_ON_ERROR,
    DEFAULT_ON_NULL,
    KEEP_UNKNOWN_STRING,
    MAX_ITEMS,
    SKIP_INVALID_ITEMS,
    STRICT,
    DecodingError,
    Leniency,
    Unknown,
    join_path,
)
from coupler.schema.decoding import choose_variant
from coupler.schema.markers import MARKERS

log = logging.getLogger("coupler.schema")

T = TypeVar("T")

# Where Coupler is kinder than the schema: one bad MCP server must not cost the session, and an unknown
# `format` is an annotation, never a reason to refuse.
OVERRIDES = {
    ("NewSessionRequest", "mcpServers"): DEFAULT_ON_NULL | SKIP_INVALID_ITEMS,
    ("LoadSessionRequest", "mcpServers"): DEFAULT_ON_NULL | SKIP_INVALID_ITEMS,
    ("ResumeSessionRequest", "mcpServers"): DEFAULT_ON_NULL | SKIP_INVALID_ITEMS,
    ("ForkSessionRequest", "mcpServers"): DEFAULT_ON_NULL | SKIP_INVALID_ITEMS,
    ("StringPropertySchema", "format"): KEEP_UNKNOWN_STRING,
}

MAX_READS = 100_000
"""Values of a message that are read one by one; one with more is refused."""

MAX_PROBLEMS = 10
"""Dropped items of a message that are told one by one; of the others it is said how many they are."""

_INT64 = 2**63 - 1
_UINT64 = 2**64 - 1


def read_leniently(kind: type[T], value: object, role: Literal["agent", "client"]) -> T:
    """Read plain JSON data as `kind`. No data at all is an object without fields, where none is required."""
    described = _describe(cast(Hashable, kind))
    if value is None and isinstance(described, inspect.StructType):
        value = None if any(field.required for field in described.fields) else {}
    reader = _Reader(open_world=role == "client")
    try:
        return cast(T, reader.read_whole(described, value))
    finally:
        for problem in reader.problems:
            log.warning("%s; the item is dropped", problem)
        if reader.untold:
            log.warning("%d more items of the same message are dropped", reader.untold)


def dropped_items(kind: type[Any], value: object) -> tuple[list[str], int]:
    """Return why items of what an agent has read as `kind` were dropped, and how many more were."""
    reader = _Reader(open_world=False)
    reader.read_whole(_describe(cast(Hashable, kind)), value)
    return reader.problems, reader.untold


@cache
def _describe(kind: Hashable) -> inspect.Type:
    return inspect.type_info(kind)


@cache
def _leniency(struct: type, name: str) -> Leniency:
    if name == "_meta":
        return DEFAULT_ON_ERROR
    for owner in struct.__mro__:
        override = OVERRIDES.get((owner.__name__, name)) or MARKERS.get(owner.__name__, {}).get(name)
        if override:
            return override
    return STRICT


class _TooManyReads(Exception):  # noqa: N818
    """The message has too many values; no rule of leniency applies to that."""


class _Reader:
    """Reads plain JSON data as a type; in an open world, what a newer peer may send is kept."""

    def __init__(self, *, open_world: bool) -> None:
        self._open_world = open_world
        self._reads = 0
        self.problems: list[str] = []
        """Why items of lists were dropped; those beyond MAX_PROBLEMS are counted only."""
        self.untold = 0

    def read_whole(self, kind: inspect.Type, value: Any) -> Any:
        """Read a whole message; raises DecodingError, also if it has too many values."""
        try:
            return self.read(kind, value, "", STRICT)
        except _TooManyReads:
            message = f"more than {MAX_READS} values would have to be read one by one: send less at once"
            raise DecodingError("", message) from None

    def read(self, kind: inspect.Type, value: Any, path: str, leniency: Leniency) -> Any:
        self._reads += 1
        if self._reads > MAX_READS:
            raise _TooManyReads
        return _READ[type(kind)](self, kind, value, path, leniency)

    def _any(self, kind: inspect.AnyType, value: Any, path: str, leniency: Leniency) -> Any:
        return value

    def _boolean(self, kind: inspect.BoolType, value: Any, path: str, leniency: Leniency) -> bool:
        if not isinstance(value, bool):
            raise DecodingError.expected("a boolean", value, path)
        return value

    def _string(self, kind: inspect.StrType, value: Any, path: str, leniency: Leniency) -> str:
        if not isinstance(value, str):
            raise DecodingError.expected("a string", value, path)
        if len(value) < (kind.min_length or 0):
            raise DecodingError(path, "must not be empty")
        return value

    def _integer(self, kind: inspect.IntType, value: Any, path: str, leniency: Leniency) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise DecodingError.expected("an integer", value, path)
        lowest, highest = kind.ge, kind.le
        if lowest == 0 and highest == _INT64:
            highest = _UINT64
        if lowest is not None and highest is not None and not lowest <= value <= highest:
            raise DecodingError(path, f"expected an integer from {lowest} to {highest}, got one outside")
        return value

    def _number(self, kind: inspect.FloatType, value: Any, path: str, leniency: Leniency) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise DecodingError.expected("a number", value, path)
        try:
            return float(value)
        except OverflowError:
            raise DecodingError(path, "expected a number, got one that is too large") from None

    def _enumeration(self, kind: inspect.LiteralType, value: Any, path: str, leniency: Leniency) -> str:
        if not isinstance(value, str):
            raise DecodingError.expected("a string", value, path)
        if value in kind.values or self._open_world or KEEP_UNKNOWN_STRING in leniency:
            return value
        raise DecodingError.not_among(kind.values, value, path)

    def _array(self, kind: inspect.ListType, value: Any, path: str, leniency: Leniency) -> list[Any]:
        if not isinstance(value, list):
            raise DecodingError.expected("an array", value, path)
        if SKIP_INVALID_ITEMS in leniency:
            return self._valid_items(kind, value, path)
        if len(value) > MAX_ITEMS:
            raise DecodingError.too_many(len(value), path)
        return [
            self.read(kind.item_type, item, f"{path}[{index}]", STRICT) for index, item in enumerate(value)
        ]

    def _valid_items(self, kind: inspect.ListType, value: list[Any], path: str) -> list[Any]:
        items = []
        for index, item in enumerate(value[:MAX_ITEMS]):
            try:
                items.append(self.read(kind.item_type, item, f"{path}[{index}]", STRICT))
            except DecodingError as error:
                self._drop(error)
        if len(value) > MAX_ITEMS:
            self._drop(DecodingError.too_many(len(value), path), len(value) - MAX_ITEMS)
        return items

    def _drop(self, error: DecodingError, count: int = 1) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(str(error))
            count -= 1
        self.untold += count

    def _map(self, kind: inspect.DictType, value: Any, path: str, leniency: Leniency) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise DecodingError.expected("an object", value, path)
        if len(value) > MAX_ITEMS:
            raise DecodingError.too_many(len(value), path)
        return {
            key: self.read(kind.value_type, item, join_path(path, key), STRICT) for key, item in value.items()
        }

    def _either(self, kind: inspect.UnionType, value: Any, path: str, leniency: Leniency) -> Any:
        if value is None and kind.includes_none:
            return None
        options = [option for option in kind.types if not isinstance(option, inspect.NoneType)]
        if len(options) == 1:
            return self.read(options[0], value, path, leniency)
        if isinstance(options[0], inspect.StructType):
            return self._tagged(cast(list[inspect.StructType], options), value, path)
        return self._first_that_fits(options, value, path)

    def _tagged(self, options: list[inspect.StructType], value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise DecodingError.expected("an object", value, path)
        field = cast(str, options[0].tag_field)
        where, tag = join_path(path, field), value.get(field)
        if not isinstance(tag, str):
            raise (
                DecodingError.expected("a string", tag, where)
                if field in value
                else DecodingError.missing(where)
            )
        for option in options:
            if option.tag == tag:
                return self._struct(option, value, path, STRICT)
        if self._open_world:
            return Unknown(tag, value)
        raise DecodingError.not_among([option.tag for option in options], tag, where)

    def _first_that_fits(self, options: list[inspect.Type], value: Any, path: str) -> Any:
        problems = []
        for option in options:
            try:
                return self.read(option, value, path, STRICT)
            except DecodingError as error:
                problems.append(error.problem.removeprefix("expected ").partition(",")[0])
        raise DecodingError.expected(" or ".join(problems), value, path)

    def _custom(self, kind: inspect.CustomType, value: Any, path: str, leniency: Leniency) -> Any:
        try:
            chosen = choose_variant(kind.cls, value)
        except DecodingError as error:
            raise error.below(path) from None
        return chosen if isinstance(chosen, Unknown) else self.read(_describe(chosen), value, path, STRICT)

    def _struct(self, kind: inspect.StructType, value: Any, path: str, leniency: Leniency) -> Struct:
        if not isinstance(value, dict):
            raise DecodingError.expected("an object", value, path)
        if kind.tag_field and value.get(kind.tag_field, kind.tag) != kind.tag:
            raise DecodingError(join_path(path, kind.tag_field), f'expected "{kind.tag}"')
        fields = {}
        for field in kind.fields:
            where = join_path(path, field.encode_name)
            if field.encode_name in value:
                fields[field.name] = self._field(kind.cls, field, value[field.encode_name], where)
            elif field.required:
                raise DecodingError.missing(where)
        try:
            return kind.cls(**{name: given for name, given in fields.items() if given is not UNSET})
        except ValueError as error:
            raise DecodingError(path, str(error)) from None

    def _field(self, struct: type, field: inspect.Field, value: Any, path: str) -> Any:
        """The field's value; UNSET leaves it to the Struct's default."""
        leniency = _leniency(struct, field.encode_name)
        if value is None and DEFAULT_ON_NULL in leniency:
            log.debug("%s: got null; the default is used", path)
            return _empty(field.type)
        try:
            return self.read(field.type, value, path, leniency)
        except DecodingError as error:
            if DEFAULT_ON_ERROR not in leniency:
                raise
            log.debug("%s; the default is used", error)
            return _empty(field.type) if field.required else UNSET


def _empty(kind: inspect.Type) -> list[Any] | dict[str, Any]:
    return {} if isinstance(kind, inspect.DictType) else []


_READ: dict[type[inspect.Type], Callable[..., Any]] = {
    inspect.AnyType: _Reader._any,
    inspect.BoolType: _Reader._boolean,
    inspect.StrType: _Reader._string,
    inspect.IntType: _Reader._integer,
    inspect.FloatType: _Reader._number,
    inspect.LiteralType: _Reader._enumeration,
    inspect.ListType: _Reader._array,
    inspect.DictType: _Reader._map,
    inspect.UnionType: _Reader._either,
    inspect.CustomType: _Reader._custom,
    inspect.StructType: _Reader._struct,
}
