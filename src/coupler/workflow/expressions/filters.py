"""The filters and tests of expressions.

Each filter gets the evaluation first, each test its bounds; then come the value and the arguments. Those of
Jinja2 have their names, arguments and results, but lists instead of iterators. Left out are those for HTML,
those that come out differently each time, and those whose time cannot be bounded.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import filters as jinja

from coupler.workflow.expressions.values import (
    SECONDS_A_COMPARISON,
    TEXT_METHODS,
    Bounds,
    EvaluationError,
    ShellText,
    Unknown,
    as_json_text,
    as_text,
    check_bits,
    check_items,
    check_length,
    check_width,
    compare,
    iterable,
    join_texts,
    kind_of,
    operate,
    print_format,
    replace_text,
    split_text,
)

if TYPE_CHECKING:
    from coupler.workflow.expressions.evaluation import Evaluation


Filter = Callable[..., object]

LONGEST_REWORKED = 1024 * 1024
"""Characters of a text that a filter takes apart word by word."""


LONGEST_PATH = 1_000
"""Characters of an `attribute`."""


class Group(NamedTuple):
    """A group of `groupby`: what the items have in common, and the items."""

    grouper: object
    list: list[object]


def _on_text(function: Callable[..., str], longest: int | None = None) -> Filter:
    """A filter that makes a text of a text."""

    def filtered(evaluation: Evaluation, value: object, *arguments: object, **named: object) -> str:
        text = as_text(value, evaluation.bounds)
        if longest is not None and len(text) > longest:
            raise EvaluationError(
                f"the text has more than {longest:,} characters, which is too long for this filter"
            )
        return evaluation.bounds.text(function(text, *arguments, **named))

    return filtered


def _on_value(function: Callable[..., object]) -> Filter:
    def filtered(evaluation: Evaluation, value: object, *arguments: object, **named: object) -> object:
        return function(value, *arguments, **named)

    return filtered


def _int(evaluation: Evaluation, value: object, default: int = 0, base: int = 10) -> int:
    if isinstance(value, str):
        check_bits(len(value))  # of base 2, and longer ones of other bases
    return jinja.do_int(value, default, base)


def _operation(function: Callable[..., object]) -> Filter:
    """Return a filter made of an operation on texts."""

    def filtered(evaluation: Evaluation, value: object, *arguments: object, **named: object) -> object:
        return function(evaluation.bounds, as_text(value, evaluation.bounds), *arguments, **named)

    return filtered


def _default(evaluation: Evaluation, value: object, instead: object = "", boolean: bool = False) -> object:
    """Return `instead` for a missing value; with `boolean`, also for one that counts as false."""
    return instead if isinstance(value, Unknown) or (boolean and not value) else value


def _json(evaluation: Evaluation, value: object, indent: int | None = None) -> str:
    return as_json_text(value, evaluation.bounds, indent)


def _lines(evaluation: Evaluation, value: object) -> list[str]:
    """Return the lines of a text without their ends; nothing follows the last line end."""
    text = as_text(value, evaluation.bounds)
    lines = split_text(evaluation.bounds, text, "\n")
    if lines and not lines[-1]:
        del lines[-1]
    return [line.removesuffix("\r") for line in lines]


def _quote(evaluation: Evaluation, value: object) -> str:
    words = value if isinstance(value, list | tuple) else [value]
    quoted = (shlex.quote(as_text(word, evaluation.bounds)) for word in words)
    return join_texts(evaluation.bounds, quoted, " ")


def _raw(evaluation: Evaluation, value: object) -> str:
    words = value if isinstance(value, list | tuple) else [value]
    return ShellText(join_texts(evaluation.bounds, words, " "))


def _join(evaluation: Evaluation, value: object, between: str = "", attribute: str | None = None) -> str:
    items = iterable(value)
    if attribute is not None:
        items = (_part(evaluation, item, attribute) for item in items)
    return join_texts(evaluation.bounds, items, between)


def _indent(
    evaluation: Evaluation, value: object, width: int | str = 4, first: bool = False, blank: bool = False
) -> str:
    text = as_text(value, evaluation.bounds)
    indention = width if isinstance(width, str) else " " * min(width, 10_001)
    check_width(len(indention))
    check_items(text.count("\n"))
    check_length(len(text) + len(indention) * (text.count("\n") + 1))
    return evaluation.bounds.text(jinja.do_indent(text, indention, first, blank))


def _center(evaluation: Evaluation, value: object, width: int = 80) -> str:
    check_width(width)
    return evaluation.bounds.text(as_text(value, evaluation.bounds).center(width))


def _truncate(
    evaluation: Evaluation,
    value: object,
    length: int = 255,
    killwords: bool = False,
    end: str = "...",
    leeway: int = 0,
) -> str:
    text = as_text(value, evaluation.bounds)
    if len(text) <= length + leeway:
        return text
    kept = text[: max(length - len(end), 0)]
    return evaluation.bounds.text((kept if killwords else kept.rsplit(" ", 1)[0]) + end)


def _format(evaluation: Evaluation, value: object, *values: object, **named: object) -> str:
    text = as_text(value, evaluation.bounds)
    return print_format(evaluation.bounds, text, named or values)


def _round(evaluation: Evaluation, value: object, precision: int = 0, method: str = "common") -> object:
    if not isinstance(value, int | float):
        raise EvaluationError(f"it is {kind_of(value)}: only numbers are rounded")
    if not -300 <= precision <= 300:
        raise EvaluationError("the precision is a number from -300 to 300")
    return jinja.do_round(value, precision, method)  # type: ignore[arg-type]


def _length(evaluation: Evaluation, value: object) -> int:
    if isinstance(value, str | list | tuple | range | Mapping):
        return len(value)
    raise EvaluationError(f"it is {kind_of(value)}, which has no length")


def _list(evaluation: Evaluation, value: object) -> list[object]:
    return evaluation.bounds.items(iterable(value))


def _reverse(evaluation: Evaluation, value: object) -> object:
    if isinstance(value, str):
        return evaluation.bounds.text(value[::-1])
    return _list(evaluation, value)[::-1]


def _first(evaluation: Evaluation, value: object) -> object:
    return next(iter(iterable(value)), Unknown(lambda: "a list without items has no first one"))


def _last(evaluation: Evaluation, value: object) -> object:
    last: object = Unknown(lambda: "a list without items has no last one")
    if isinstance(value, str | list | tuple | range):
        return value[-1] if value else last
    for item in iterable(value):
        last = item
    return last


def _items(evaluation: Evaluation, value: object) -> list[object]:
    if not isinstance(value, Mapping):
        raise EvaluationError(f"it is {kind_of(value)}: only mappings have `items`")
    return evaluation.bounds.items(value.items())


def _sum(evaluation: Evaluation, value: object, attribute: str | None = None, start: object = 0) -> object:
    total = start
    for item in iterable(value):
        number = item if attribute is None else _part(evaluation, item, attribute)
        if not isinstance(number, int | float):
            raise EvaluationError(f"`sum` adds numbers, and an item is {kind_of(number)}")
        total = operate(evaluation.bounds, "+", total, number)
    return total


def _batch(evaluation: Evaluation, value: object, size: int, fill: object = None) -> list[object]:
    items = _list(evaluation, value)
    check_items(size)
    if size < 1:
        raise EvaluationError("a batch has at least one item")
    batches = [items[start : start + size] for start in range(0, len(items), size)]
    if batches and fill is not None:
        batches[-1] += [fill] * (size - len(batches[-1]))
    return evaluation.bounds.items(batches)


def _dictsort(
    evaluation: Evaluation,
    value: object,
    case_sensitive: bool = False,
    by: str = "key",
    reverse: bool = False,
) -> list[object]:
    pairs = _items(evaluation, value)
    place = {"key": 0, "value": 1}.get(by)
    if place is None:
        raise EvaluationError("`by` is `key` or `value`")
    return _sorted(evaluation, pairs, _folding(evaluation, lambda pair: pair[place], case_sensitive), reverse)


def _sort(
    evaluation: Evaluation,
    value: object,
    reverse: bool = False,
    case_sensitive: bool = False,
    attribute: str | None = None,
) -> list[object]:
    key = _key(evaluation, attribute, case_sensitive)
    return _sorted(evaluation, _list(evaluation, value), key, reverse)


def _sorted(
    evaluation: Evaluation, items: list[object], key: Callable[[Any], Any], reverse: bool
) -> list[object]:
    keys = evaluation.bounds.items(key(item) for item in items)
    evaluation.bounds.weigh(keys)
    evaluation.bounds.check_time(len(keys) * len(keys).bit_length() * SECONDS_A_COMPARISON)
    order = sorted(range(len(items)), key=keys.__getitem__, reverse=reverse)  # type: ignore[arg-type]
    return evaluation.bounds.items(items[place] for place in order)


def _least(
    evaluation: Evaluation, value: object, case_sensitive: bool = False, attribute: str | None = None
) -> object:
    return _first(evaluation, _sort(evaluation, value, False, case_sensitive, attribute))


def _greatest(
    evaluation: Evaluation, value: object, case_sensitive: bool = False, attribute: str | None = None
) -> object:
    return _first(evaluation, _sort(evaluation, value, True, case_sensitive, attribute))


def _unique(
    evaluation: Evaluation, value: object, case_sensitive: bool = False, attribute: str | None = None
) -> list[object]:
    key = _key(evaluation, attribute, case_sensitive)
    seen: dict[str, object] = {}
    for item in iterable(value):
        seen.setdefault(as_json_text(key(item), evaluation.bounds), item)
    return evaluation.bounds.items(seen.values())


def _groupby(
    evaluation: Evaluation,
    value: object,
    attribute: str,
    default: object = None,
    case_sensitive: bool = False,
) -> list[object]:
    def part(item: object) -> object:
        found = evaluation.part(item, attribute)
        return default if isinstance(found, Unknown) and default is not None else evaluation.known(found)

    key = _folding(evaluation, part, case_sensitive)
    items = _sorted(evaluation, _list(evaluation, value), key, False)
    groups = (list(group) for _, group in groupby(items, key))
    return evaluation.bounds.items(Group(part(group[0]), group) for group in groups)


def _key(evaluation: Evaluation, attribute: str | None, case_sensitive: bool) -> Callable[[Any], Any]:
    """Return the key to compare items by: themselves, or parts named by `attribute`, separated by commas."""
    if attribute is None:
        return _folding(evaluation, lambda item: item, case_sensitive)
    paths = path_names(attribute, ",")
    fold = _folding(evaluation, lambda part: part, case_sensitive)
    if len(paths) == 1:
        return lambda item: fold(_part(evaluation, item, attribute))
    return lambda item: [fold(_part(evaluation, item, path.strip())) for path in paths]


def path_names(path: object, between: str = ".") -> list[str]:
    """Return the parts of an `attribute="a.b.c"`."""
    text = str(path)
    if len(text) > LONGEST_PATH:
        raise EvaluationError(f"an `attribute` has more than {LONGEST_PATH:,} characters: make it shorter")
    return text.split(between)


def _folding(evaluation: Evaluation, key: Callable[[Any], Any], case_sensitive: bool) -> Callable[[Any], Any]:
    def folded(item: object) -> object:
        part = key(item)
        if isinstance(part, str) and not case_sensitive:
            return evaluation.bounds.text(part.lower())
        return part

    return folded


def _part(evaluation: Evaluation, item: object, attribute: str) -> object:
    return evaluation.known(evaluation.part(item, attribute))


def _map(evaluation: Evaluation, value: object, *arguments: object, **named: object) -> list[object]:
    """Apply `map(attribute="a.b", default=…)` or `map("filter", arguments …)`."""
    items = iterable(value)
    attribute = named.get("attribute")
    if not arguments and isinstance(attribute, str):
        parts = (evaluation.part(item, attribute) for item in items)
        if "default" in named:
            return evaluation.bounds.items(_default(evaluation, part, named["default"]) for part in parts)
        return evaluation.bounds.items(map(evaluation.known, parts))
    if not arguments or not isinstance(arguments[0], str):
        raise EvaluationError('`map` needs the name of a filter, or `attribute="…"`')
    name, *rest = arguments
    return evaluation.bounds.items(evaluation.filter(str(name), item, *rest, **named) for item in items)


def _choose(wanted: bool) -> Filter:
    """Return the filter `select("test", arguments …)`, or its opposite."""

    def chosen(evaluation: Evaluation, value: object, *arguments: object) -> list[object]:
        return _chosen(evaluation, iterable(value), lambda item: item, arguments, wanted)

    return chosen


def _choose_by(wanted: bool) -> Filter:
    """Return the filter `selectattr("a.b", "test", arguments …)`, or its opposite."""

    def chosen(evaluation: Evaluation, value: object, path: str, *arguments: object) -> list[object]:
        return _chosen(
            evaluation, iterable(value), lambda item: evaluation.part(item, path), arguments, wanted
        )

    return chosen


def _chosen(
    evaluation: Evaluation,
    items: Iterable[object],
    part: Callable[[object], object],
    arguments: tuple[object, ...],
    wanted: bool,
) -> list[object]:
    """The items whose part passes a test, or fails it; without a test, whether it counts as true."""

    def passes(item: object) -> bool:
        if not arguments:
            return bool(evaluation.known(part(item)))
        return evaluation.test(str(arguments[0]), part(item), *arguments[1:])

    return evaluation.bounds.items(item for item in items if passes(item) is wanted)


FILTERS: Mapping[str, Filter] = {
    "abs": _on_value(lambda number: abs(number)),
    "batch": _batch,
    "capitalize": _on_text(str.capitalize),
    "center": _center,
    "count": _length,
    "d": _default,
    "default": _default,
    "dictsort": _dictsort,
    "filesizeformat": _on_value(jinja.do_filesizeformat),
    "first": _first,
    "float": _on_value(jinja.do_float),
    "format": _format,
    "groupby": _groupby,
    "indent": _indent,
    "int": _int,
    "items": _items,
    "join": _join,
    "json": _json,
    "last": _last,
    "length": _length,
    "lines": _lines,
    "list": _list,
    "lower": _on_text(str.lower),
    "map": _map,
    "max": _greatest,
    "min": _least,
    "quote": _quote,
    "raw": _raw,
    "reject": _choose(False),
    "rejectattr": _choose_by(False),
    "replace": _operation(replace_text),
    "reverse": _reverse,
    "round": _round,
    "select": _choose(True),
    "selectattr": _choose_by(True),
    "sort": _sort,
    "string": _on_text(lambda text: text),
    "sum": _sum,
    "title": _on_text(jinja.do_title, LONGEST_REWORKED),
    "tojson": _json,
    "trim": _operation(TEXT_METHODS["strip"]),
    "truncate": _truncate,
    "unique": _unique,
    "upper": _on_text(str.upper),
    "urlencode": _on_text(jinja.do_urlencode, LONGEST_REWORKED),
    "wordcount": _on_value(lambda text: len(str(text)[:LONGEST_REWORKED].split())),
}


def _is_number(bounds: Bounds, value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(bounds: Bounds, value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _remainder(bounds: Bounds, value: object, divisor: object) -> object:
    return operate(bounds, "%", value, divisor)


def _comparison(sign: str) -> Callable[..., bool]:
    return lambda bounds, value, other: compare(bounds, sign, value, other)


TESTS: Mapping[str, Callable[..., bool]] = {
    "defined": lambda bounds, value: not isinstance(value, Unknown),
    "undefined": lambda bounds, value: isinstance(value, Unknown),
    "none": lambda bounds, value: value is None,
    "boolean": lambda bounds, value: isinstance(value, bool),
    "true": lambda bounds, value: value is True,
    "false": lambda bounds, value: value is False,
    "integer": _is_integer,
    "float": lambda bounds, value: isinstance(value, float),
    "number": _is_number,
    "string": lambda bounds, value: isinstance(value, str),
    "mapping": lambda bounds, value: isinstance(value, Mapping),
    "sequence": lambda bounds, value: isinstance(value, str | list | tuple | range),
    "iterable": lambda bounds, value: isinstance(value, str | list | tuple | range | Mapping),
    "lower": lambda bounds, value: as_text(value, bounds).islower(),
    "upper": lambda bounds, value: as_text(value, bounds).isupper(),
    "odd": lambda bounds, value: _remainder(bounds, value, 2) == 1,
    "even": lambda bounds, value: _remainder(bounds, value, 2) == 0,
    "divisibleby": lambda bounds, value, divisor: _remainder(bounds, value, divisor) == 0,
    "in": _comparison("in"),
    **dict.fromkeys(("==", "eq", "equalto"), _comparison("eq")),
    **dict.fromkeys(("!=", "ne"), _comparison("ne")),
    **dict.fromkeys((">", "gt", "greaterthan"), _comparison("gt")),
    **dict.fromkeys((">=", "ge"), _comparison("gteq")),
    **dict.fromkeys(("<", "lt", "lessthan"), _comparison("lt")),
    **dict.fromkeys(("<=", "le"), _comparison("lteq")),
}
