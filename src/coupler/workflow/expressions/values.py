"""The values of expressions: how each reads as text or JSON, and the limits of one evaluation."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, ItemsView, Iterable, KeysView, Mapping, Sequence, ValuesView
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
