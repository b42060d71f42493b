"""Hypothesis strategies: any JSON, and valid values of any type of the schema."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from coupler.schema import v1

TEXT = st.text(max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@cache
def values(kind: Hashable) -> st.SearchStrategy[Any]:
    """Valid values of a type, as a program would build them."""
    return _described(inspect.type_info(kind))


def structs_of(mixin: type[Any]) -> list[type[msgspec.Struct]]:
    return [kind for kind in mixin.__subclasses__() if issubclass(kind, msgspec.Struct)]


def _described(kind: inspect.Type) -> st.SearchStrategy[Any]:
    match kind:
        case inspect.AnyType():
            return JSON
        case inspect.NoneType():
            return st.none()
        case inspect.BoolType():
            return st.booleans()
        case inspect.StrType():
            return st.text(min_size=kind.min_length or 0, max_size=8)
        case inspect.IntType():
            return st.integers(kind.ge, kind.le)
        case inspect.FloatType():
            return st.floats(allow_nan=False, allow_infinity=False)
        case inspect.LiteralType():
            return st.sampled_from(list(kind.values))
        case inspect.ListType():
            return st.lists(_described(kind.item_type), max_size=2)
        case inspect.DictType():
            return st.dictionaries(TEXT, _described(kind.value_type), max_size=2)
        case inspect.UnionType():
            return st.one_of([_described(option) for option in kind.types])
        case inspect.CustomType():
            return st.one_of([values(struct) for struct in structs_of(kind.cls)])
        case inspect.StructType():
            return _struct(kind)
    raise NotImplementedError(kind)


def _struct(kind: inspect.StructType) -> st.SearchStrategy[Any]:
    required = {field.name: _field(kind, field) for field in kind.fields if field.required}
    optional = {field.name: _field(kind, field) for field in kind.fields if not field.required}
    fields = st.fixed_dictionaries(required, optional=optional)
    return fields.map(lambda given: _completed(kind.cls, given)).map(lambda given: kind.cls(**given))


def _field(kind: inspect.StructType, field: inspect.Field) -> st.SearchStrategy[Any]:
    strategy = _described(field.type)
    # A list of options holds either single ones or groups, never both.
    if kind.cls.__name__ == "SessionConfigSelect" and field.name == "options":
        return st.one_of(
            [st.lists(values(struct), max_size=2) for struct in structs_of(v1.SessionConfigSelectItem)]
        )
    return strategy


def _completed(struct: type[msgspec.Struct], given: dict[str, Any]) -> dict[str, Any]:
    """An elicitation belongs to a session or to a request."""
    scoped = {"request_id", "session_id"} <= set(struct.__struct_fields__)
    return {"session_id": "s", **given} if scoped and "request_id" not in given else given
