"""The tests of expressions, as in `x is defined`: each gets the bounds, then its value and arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from coupler.workflow.expressions import operations
from coupler.workflow.expressions.bounds import Bounds
from coupler.workflow.expressions.values import Unknown, as_text


def _is_number(bounds: Bounds, value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(bounds: Bounds, value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _remainder(bounds: Bounds, value: object, divisor: object) -> object:
    return operations.operate(bounds, "%", value, divisor)


def _comparison(sign: str) -> Callable[..., bool]:
    return lambda bounds, value, other: operations.compare(bounds, sign, value, other)


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
