"""The operators and methods of expressions: Python's own, refused before they make something too large."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, ItemsView, Iterable, KeysView, Mapping, ValuesView
from string import Formatter
from typing import Any

from coupler.workflow.expressions.values import (
    MOST_ITEMS,
    MOST_RANGE,
    Bounds,
    EvaluationError,
    as_text,
    check_bits,
    check_items,
    check_length,
    check_search,
    check_width,
    kind_of,
)

Operation = Callable[[Bounds, Any, Any], object]

MOST_RANGE_END = 2**63
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


def operate(bounds: Bounds, sign: str, left: object, right: object) -> object:
    """Apply an operator with two sides."""
    bounds.tick()
    if isinstance(left, int | float) and isinstance(right, int | float):
        return _calculate(sign, left, right)
    match sign, left, right:
        case "+", str(), str():
            check_length(len(left) + len(right))
            return bounds.text(left + right)
        case "+", list() | tuple(), list() | tuple():
            check_items(len(left) + len(right))
            return bounds.items([*left, *right])
        case "*", str() | list(), int():
            return repeat(bounds, left, right)
        case "*", int(), str() | list():
            return repeat(bounds, right, left)
        case "%", str(), _:
            return print_format(bounds, left, right)
    hint = ": `~` joins texts" if sign == "+" else ""
    raise EvaluationError(f"`{sign}` does not go with {kind_of(left)} and {kind_of(right)}{hint}")


_CALCULATIONS: dict[str, Callable[[Any, Any], object]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}


def _calculate(sign: str, left: float, right: float) -> object:
    bits = max((side.bit_length() for side in (left, right) if isinstance(side, int)), default=0)
    if sign == "**" and isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * abs(right)
    check_bits(bits)
    return _CALCULATIONS[sign](left, right)


def repeat(bounds: Bounds, what: str | list[object], times: int) -> object:
    times = max(times, 0)
    if isinstance(what, str):
        check_length(len(what) * times)
        return bounds.text(what * times)
    check_items(len(what) * times)
    return bounds.items(what * times)


def negate(value: object) -> object:
    if not isinstance(value, int | float):
        raise EvaluationError(f"`-` does not go with {kind_of(value)}")
    return -value


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
    "in": lambda item, container: item in container,
    "notin": lambda item, container: item not in container,
}


def compare(bounds: Bounds, sign: str, left: object, right: object) -> bool:
    if isinstance(left, str | int | float) and isinstance(right, str | int | float):
        bounds.tick(sum(len(side) for side in (left, right) if isinstance(side, str)))
    else:
        bounds.weigh(left, right)
    return bool(_COMPARISONS[sign](left, right))


def join(bounds: Bounds, values: Iterable[object], between: str = "") -> str:
    """Join many values to one text, whose length is counted before it is made."""
    length = 0
    parts: list[str] = []
    for value in values:
        parts.append(as_text(value, bounds))
        length += len(parts[-1]) + len(between)
        check_length(length)
        check_items(len(parts))
        bounds.tick()
    return bounds.text(between.join(parts))


_DIRECTIVE = re.compile(
    r"%(?:\((?P<key>[^)]*)\))?(?P<layout>[-+ #0]*\d*(?:\.\d+)?)(?P<kind>[diouxXeEfFgGcs%]?)"
)


def print_format(bounds: Bounds, text: str, values: object) -> str:
    """`%` as in C: each directive by itself, so that the length is known on the way."""
    waiting = list(values) if isinstance(values, list | tuple) else [values]

    def written(directive: re.Match[str]) -> str:
        key, layout, kind = directive["key"], directive["layout"], directive["kind"]
        if not kind:
            raise EvaluationError(f"`{directive[0][:20]}` is no directive of a format")
        if kind == "%":
            bounds.tick()
            return "%"
        check_width(*(int(number) for number in re.findall(r"\d{1,9}", layout)))
        if key is None and not waiting:
            raise EvaluationError("the format has more directives than values")
        value = waiting.pop(0) if key is None else _keyed(values, key)
        return bounds.text(f"%{layout}{kind}" % (as_text(value, bounds) if kind == "s" else value,))

    made = _DIRECTIVE.sub(written, text)
    if waiting and not isinstance(values, Mapping):
        raise EvaluationError("the format has more values than directives")
    check_length(len(made))
    return bounds.text(made)


def _keyed(values: object, key: str) -> object:
    if not isinstance(values, Mapping) or key not in values:
        raise EvaluationError(f"the format names `{key[:60]}`, which was not given")
    return values[key]


def brace_format(bounds: Bounds, text: str, *values: object, **named: object) -> str:
    """`format`: fields are numbers and names; there is no way into a value."""
    made: list[str] = []
    number = 0
    for literal, field, layout, conversion in Formatter().parse(text):
        made.append(literal)
        if field is None:
            continue
        if conversion or "{" in (layout or ""):
            raise EvaluationError("a field of a format has a name and a layout, nothing else")
        if not field:
            field, number = str(number), number + 1
        value = _field(field, values, named)
        check_width(*(int(digits) for digits in re.findall(r"\d{1,9}", layout or "")))
        plain = value if isinstance(value, int | float) and layout else as_text(value, bounds)
        made.append(bounds.text(format(plain, layout or "")))
    return join(bounds, made)


def _field(field: str, values: tuple[object, ...], named: Mapping[str, object]) -> object:
    if field.isdecimal() and int(field[:9]) < len(values):
        return values[int(field[:9])]
    if field in named:
        return named[field]
    raise EvaluationError(f"the format has a field `{field[:60]}`, which was not given")


def number_range(bounds: Bounds, *ends: int) -> range:
    if any(abs(end) > MOST_RANGE_END for end in ends):
        raise EvaluationError("the ends of a range have 64 bits at most: use smaller ones")
    numbers = range(*ends)
    if len(numbers) > MOST_RANGE:
        raise EvaluationError(f"a range has more than {MOST_RANGE:,} numbers: make it shorter")
    return numbers


def replace(bounds: Bounds, text: str, old: str, new: str, count: int = -1) -> str:
    found = text.count(old) if count < 0 else min(text.count(old), count)
    check_length(len(text) + found * (len(new) - len(old)))
    return bounds.text(text.replace(old, new, count))


def split(bounds: Bounds, text: str, between: str | None = None, most: int = -1) -> list[str]:
    return bounds.texts(text.split(between, most if 0 <= most < MOST_ITEMS else MOST_ITEMS))


def _split_from_right(bounds: Bounds, text: str, between: str | None = None, most: int = -1) -> list[str]:
    if between is not None:
        check_search(text, between)
    return bounds.texts(text.rsplit(between, most if 0 <= most < MOST_ITEMS else MOST_ITEMS))


def split_lines(bounds: Bounds, text: str) -> list[str]:
    check_items(sum(map(text.count, _LINE_ENDS)))
    return bounds.texts(text.splitlines())


def _join_method(bounds: Bounds, between: str, values: Iterable[object]) -> str:
    return join(bounds, iterable(values), between)


def _fill(name: str) -> Callable[..., str]:
    def filled(bounds: Bounds, text: str, width: int, *filling: str) -> str:
        check_width(width)
        return bounds.text(getattr(text, name)(width, *filling))

    return filled


def _slow_method(name: str) -> Callable[..., object]:
    """Return a method that compares each character with each that is sought."""
    method = _plain_method(name)

    def called(bounds: Bounds, text: str, *arguments: object) -> object:
        if arguments and isinstance(arguments[0], str):
            check_search(text, arguments[0])
        return method(bounds, text, *arguments)

    return called


def _plain_method(name: str) -> Callable[..., object]:
    """Return a method whose result is hardly larger than the text."""

    def called(bounds: Bounds, text: str, *arguments: object) -> object:
        made = getattr(text, name)(*arguments)
        return bounds.text(made) if isinstance(made, str) else made

    return called


_PLAIN = (
    "capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit isidentifier "
    "islower isnumeric isspace istitle isupper lower partition removeprefix removesuffix startswith swapcase "
    "title upper"
)
_SLOW = "lstrip rfind rindex rpartition rstrip strip"

TEXT_METHODS: dict[str, Callable[..., object]] = {
    **{name: _plain_method(name) for name in _PLAIN.split()},
    **{name: _slow_method(name) for name in _SLOW.split()},
    **{name: _fill(name) for name in ("center", "ljust", "rjust", "zfill")},
    "format": brace_format,
    "join": _join_method,
    "replace": replace,
    "rsplit": _split_from_right,
    "split": split,
    "splitlines": split_lines,
}


def _count_item(bounds: Bounds, items: list[object], item: object) -> int:
    bounds.weigh(items, item)
    return items.count(item)


def _index_of(bounds: Bounds, items: list[object], item: object) -> int:
    bounds.weigh(items, item)
    if item not in items:
        raise EvaluationError("`index` has not found the item in the list")
    return items.index(item)


LIST_METHODS: dict[str, Callable[..., object]] = {"count": _count_item, "index": _index_of}

MAPPING_METHODS: dict[str, Callable[..., object]] = {
    "get": lambda bounds, mapping, key, default=None: mapping.get(key, default),
    "items": lambda bounds, mapping: bounds.items(mapping.items()),
    "keys": lambda bounds, mapping: bounds.items(mapping.keys()),
    "values": lambda bounds, mapping: bounds.items(mapping.values()),
}


def iterable(value: object) -> Iterable[object]:
    """Return what can be gone through: lists, the characters of texts, the keys of mappings."""
    if isinstance(value, list | tuple | range | str | Mapping | KeysView | ValuesView | ItemsView):
        return value
    raise EvaluationError(f"it is {kind_of(value)}, which has no items: a list has")
