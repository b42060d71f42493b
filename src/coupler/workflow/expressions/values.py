"""Values of expressions: how each reads as text, and what of them is JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, ItemsView, KeysView, Mapping, ValuesView
from typing import Any, NamedTuple

from coupler.workflow.expressions.bounds import Bounds, EvaluationError, check_length
from coupler.workflow.language.definition import Json

MOST_INDENT = 8

_SURROGATE = re.compile("[\ud800-\udfff]")


class ShellText(str):
    """`| raw`: text that is a piece of shell script in a `run` step, and plain text elsewhere."""

    __slots__ = ()


class Method(NamedTuple):
    """What may be called in an expression."""

    name: str
    function: Callable[..., object]


class Unknown(NamedTuple):
    """A name that is not there; only `is defined` and `default` may see it."""

    message: str


def as_text(value: object, bounds: Bounds) -> str:
    """A value in the midst of text: lists and mappings are JSON."""
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
    """JSON in the order in which the value has its keys."""
    if indent is not None and not 0 <= indent <= MOST_INDENT:
        raise EvaluationError(f"`indent` is a number from 0 to {MOST_INDENT}")
    plain = as_json(value, bounds)
    made = json.dumps(plain, ensure_ascii=False, allow_nan=False, indent=indent)
    check_length(len(made))
    # Bytes that are no text are kept as lone surrogates, which JSON writes as escapes.
    return bounds.text(_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", made))


def as_json(value: object, bounds: Bounds) -> Json:
    """A copy in plain lists and dictionaries; the texts are the same objects."""
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
    """What a value is, as a sentence says it."""
    return next((kind for types, kind in _KINDS if isinstance(value, types)), "something else")
