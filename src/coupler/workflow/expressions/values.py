"""The values of expressions: limits, conversion to text and JSON, operators and methods.

Operators and methods are Python's own, refused before they make something too large or take too long.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, ItemsView, Iterable, KeysView, Mapping, Sequence, ValuesView
from string import Formatter
from sys import getsizeof
from time import thread_time
from typing import Any, NamedTuple

from coupler.workflow.language.model import Json

MOST_INDENT = 8

_SURROGATE = re.compile("[\ud800-\udfff]")


class ShellText(str):
    """`| raw`: text that is a piece of shell script in a `run` step, and plain text elsewhere."""

    __slots__ = ()


class Method(NamedTuple):
    """A method that may be called in an expression."""

    name: str
    function: Callable[..., object]


class Unknown:
    """A name that is not there; only `is defined` and `default` may see it."""

    def __init__(self, tell: Callable[[], str]) -> None:
        self._tell = tell

    @property
    def message(self) -> str:
        """A sentence about the name, made only when it is needed: looking for the nearest name takes time."""
        return self._tell()


def as_text(value: object, bounds: Bounds) -> str:
    """Return a value in the midst of text: lists and mappings are JSON."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case None:
            raise EvaluationError("it is null, which has no text: give it one with `default(…, true)`")
        case Method():
            raise EvaluationError(f"`{value.name}` is a method: call it with `{value.name}()`")
    return as_json_text(value, bounds)


def as_json_text(value: object, bounds: Bounds, indent: int | None = None) -> str:
    """Return JSON in the order in which the value has its keys."""
    if indent is not None and not 0 <= indent <= MOST_INDENT:
        raise EvaluationError(f"`indent` is a number from 0 to {MOST_INDENT}")
    bounds.weigh(value, most_characters=MOST_TEXT)
    plain = _plain(value)
    if indent is None:
        made = json.dumps(plain, ensure_ascii=False, allow_nan=False)
        check_length(len(made))
    else:
        # The indentation of what is nested deep can be far longer than the value.
        made = bounds.collect(
            json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=indent).iterencode(plain)
        )
    # Bytes that are no text are kept as lone surrogates, which JSON writes as escapes.
    return bounds.text(_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", made))


def as_json(value: object, bounds: Bounds) -> Json:
    """Return a copy in plain lists and dictionaries; the texts are the same objects."""
    bounds.weigh(value)
    return _plain(value)


def _plain(value: object) -> Json:
    match value:
        case None | bool() | int():
            return value
        case str():
            return value if type(value) is str else str.__str__(value)
        case float():
            if not math.isfinite(value):
                raise EvaluationError(f"{value} is no number that JSON knows")
            return value
        case Method():
            raise EvaluationError(f"`{value.name}` is a method: call it with `{value.name}()`")
        case Mapping():
            return {_key(key): _plain(item) for key, item in value.items()}
        case list() | tuple() | range() | KeysView() | ValuesView() | ItemsView():
            return [_plain(item) for item in value]
    raise EvaluationError(f"it is {kind_of(value)}, which is no value that can be kept")


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise EvaluationError(f"a key is {kind_of(key)}: keys are texts")
    return str.__str__(key)


_KINDS: tuple[tuple[type[Any] | tuple[type[Any], ...], str], ...] = (
    (str, "a text"),
    (bool, "a boolean"),
    ((int, float), "a number"),
    (type(None), "null"),
    (Method, "a method"),
    (Mapping, "a mapping"),
    ((list, tuple, range, KeysView, ValuesView, ItemsView), "a list"),
)


def kind_of(value: object) -> str:
    """Name the kind of a value, for a sentence."""
    return next((kind for types, kind in _KINDS if isinstance(value, types)), "something else")


MOST_TEXT = 10 * 1024 * 1024
"""Characters of one text, and of all that a template gives."""
MOST_ITEMS = 500_000
"""Items of one list."""
MOST_RANGE = 100_000
"""Numbers of one `range`."""
MOST_PARTS = 1_000_000
"""Values inside of one value, with every repetition counted."""
MOST_MEMORY = 48 * 1024 * 1024
"""Bytes of everything that one evaluation makes."""
MOST_SECONDS = 0.5
"""Processor time of one evaluation."""
MOST_BITS = 4_096
"""Bits of a number."""
MOST_WIDTH = 10_000
"""Columns that a text is filled up to, and decimal places."""
MOST_COMPARED = 200_000_000
"""Characters of a text, times those that are sought in it, where Python compares each with each."""

SECONDS_A_PART = 0.6e-6
"""Processor time that a part of a value takes to be copied, compared or written as JSON."""
SECONDS_A_COMPARISON = 50e-9
"""Processor time that `sorted` takes to compare two keys."""

_TICKS = 32
"""Short operations between two looks at the clock, which take longer than such an operation."""
_SHORT = 12
"""An operation on `1 << _SHORT` characters counts as one more."""


class EvaluationError(Exception):
    """An expression that cannot be evaluated; the message says why, and what to do."""


class MissingNameError(EvaluationError):
    """An expression that names what is not there."""


class Bounds:
    """The limits of one evaluation: processor time, memory, and the size of what it makes.

    An expression may come from somebody else's repository, and what it works on from a program or a model.
    Every operation of `evaluation`, `operations` and `filters` asks here before it makes something large, and
    reports afterwards what it has made.
    """

    def __init__(self) -> None:
        self._end = thread_time() + MOST_SECONDS
        self._memory = MOST_MEMORY
        self._ticks = _TICKS

    def tick(self, size: int = 0) -> None:
        """Count an operation on so many characters, and now and then look at the clock."""
        self._ticks -= 1 + (size >> _SHORT)
        if self._ticks < 0:
            self.check_time()

    def check_time(self, ahead: float = 0.0) -> None:
        """Raise if the time is up, or would be after so many seconds of work that cannot be interrupted."""
        self._ticks = _TICKS
        if thread_time() + ahead > self._end:
            raise EvaluationError(f"it takes more than {MOST_SECONDS} seconds: do this work in a `run` step")

    def charge(self, size: int) -> None:
        """Charge bytes that were made, or are about to be; raises if the memory is used up."""
        self._memory -= size
        if self._memory < 0:
            raise EvaluationError(
                f"it takes more than {MOST_MEMORY >> 20} MiB of memory: do this work in a `run` step"
            )

    def text(self, made: str) -> str:
        self.tick(len(made))
        self.charge(getsizeof(made))
        return made

    def collect(self, pieces: Iterable[str]) -> str:
        """Join pieces that are made one by one, until they are too long."""
        made: list[str] = []
        length = 0
        for piece in pieces:
            length += len(piece)
            check_length(length)
            self.tick()
            made.append(piece)
        return "".join(made)

    def items(self, made: Iterable[object]) -> list[object]:
        """Collect values that are made one by one into a list; the items themselves are charged already."""
        self.tick()
        if isinstance(made, range):
            self.charge(len(made) * getsizeof(MOST_ITEMS))
        kept: list[object] = []
        for item in made:
            if len(kept) >= MOST_ITEMS:
                raise EvaluationError(f"a list has more than {MOST_ITEMS:,} items: make it shorter")
            kept.append(item)
            if not len(kept) % 256:
                self.check_time()
        self.charge(getsizeof(kept))
        return kept

    def texts(self, made: Sequence[str]) -> list[str]:
        """Return the parts of a text that was split, and charge them."""
        if len(made) > MOST_ITEMS:
            raise EvaluationError(f"the text has more than {MOST_ITEMS:,} parts: make it shorter")
        self.check_time()
        self.charge(sum(map(getsizeof, made)) + getsizeof(made))
        return list(made)

    def weigh(self, *values: object, most_characters: int = 2 * MOST_TEXT) -> None:
        """Refuse values that are too large when everything in them is counted as often as it occurs."""
        waiting = list(values)
        parts, characters = 0, 0
        while waiting:
            value = waiting.pop()
            parts += 1
            if isinstance(value, str):
                characters += len(value)
            elif isinstance(value, int):
                characters += value.bit_length() >> 2
            elif isinstance(value, Mapping):
                waiting.extend(value.keys())
                waiting.extend(value.values())
            elif isinstance(value, list | tuple):
                waiting.extend(value)
            if parts + len(waiting) > MOST_PARTS or characters > most_characters:
                raise EvaluationError("a value is too large for this: use a part of it")
            if not parts % 1024:
                self.check_time()
        self.check_time(parts * SECONDS_A_PART)


def check_length(length: int) -> None:
    """Refuse a text before it is made."""
    if length > MOST_TEXT:
        raise EvaluationError(f"a text has more than {MOST_TEXT:,} characters: make it shorter")


def check_search(text: str, sought: str) -> None:
    """Refuse a search whose time grows with the product of both lengths."""
    if len(text) * len(sought) > MOST_COMPARED:
        raise EvaluationError(f"{len(sought):,} characters are too many to look for in a text this long")


def check_bits(bits: int) -> None:
    """Refuse a number that is longer."""
    if bits > MOST_BITS:
        raise EvaluationError(f"a number has more than {MOST_BITS:,} bits: calculate with smaller ones")


def check_items(length: int) -> None:
    """Refuse a list before it is made."""
    if length > MOST_ITEMS:
        raise EvaluationError(f"a list has more than {MOST_ITEMS:,} items: make it shorter")


def check_width(*widths: int) -> None:
    if any(abs(width) > MOST_WIDTH for width in widths):
        raise EvaluationError(f"a width is more than {MOST_WIDTH:,}: make it smaller")


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


def join_texts(bounds: Bounds, values: Iterable[object], between: str = "") -> str:
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
    return join_texts(bounds, made)


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


def replace_text(bounds: Bounds, text: str, old: str, new: str, count: int = -1) -> str:
    found = text.count(old) if count < 0 else min(text.count(old), count)
    check_length(len(text) + found * (len(new) - len(old)))
    return bounds.text(text.replace(old, new, count))


def split_text(bounds: Bounds, text: str, between: str | None = None, most: int = -1) -> list[str]:
    return bounds.texts(text.split(between, most if 0 <= most < MOST_ITEMS else MOST_ITEMS))


def _split_from_right(bounds: Bounds, text: str, between: str | None = None, most: int = -1) -> list[str]:
    if between is not None:
        check_search(text, between)
    return bounds.texts(text.rsplit(between, most if 0 <= most < MOST_ITEMS else MOST_ITEMS))


def split_lines(bounds: Bounds, text: str) -> list[str]:
    check_items(sum(map(text.count, _LINE_ENDS)))
    return bounds.texts(text.splitlines())


def _join_method(bounds: Bounds, between: str, values: Iterable[object]) -> str:
    return join_texts(bounds, iterable(values), between)


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
    "replace": replace_text,
    "rsplit": _split_from_right,
    "split": split_text,
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
