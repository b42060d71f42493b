"""Reads the fields of a form from a Python type."""

from __future__ import annotations

import enum
from datetime import date, datetime
from typing import Any, Literal, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, UNSET, inspect
from msgspec.structs import replace

from coupler.fields import readable
from coupler.fields.form_fields import (
    ChoiceField,
    ChoicesField,
    Field,
    NumberField,
    Option,
    SwitchField,
    TextField,
    distinct,
    pattern_of,
)

SINGLE = "value"
"""The name of the field in a form that is one value."""

WITH_FIELDS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType)

COLLECTIONS: dict[type[inspect.Type], type] = {
    inspect.ListType: list,
    inspect.SetType: set,
    inspect.FrozenSetType: frozenset,
    inspect.VarTupleType: tuple,
}
FACTORIES = (list, set, frozenset, tuple)

KNOWN = "text, numbers, bool, dates, an Enum or Literal, and lists of the latter two"


def read_type(spec: object) -> inspect.Type:
    """Read a type with msgspec's inspection; raises ValueError if no form can be made of it."""
    try:
        return inspect.type_info(spec)
    except (TypeError, NameError, ValueError) as error:
        raise ValueError(f"no form can be made of {spec!r:.100}: {error}") from None


def fields_of_type(type: inspect.StructType | inspect.DataclassType | inspect.TypedDictType) -> list[Field]:
    """One field of the form for each of the type."""
    labels = _dataclass_labels(declared_class(type.cls)) if isinstance(type, inspect.DataclassType) else {}
    annotations = get_type_hints(declared_class(type.cls), include_extras=True)
    return [
        _field(each, labels.get(each.name, {}), annotations.get(each.name))
        for each in type.fields
        if not isinstance(type, inspect.DataclassType) or each.name in labels
    ]


def single_field(type: inspect.Type, annotation: object) -> Field:
    """The one field of a form that is not an object."""
    return _field(inspect.Field(SINGLE, SINGLE, type), {}, annotation)


def declared_class(cls: type) -> type:
    """The class as it was written: `Pair` of `Pair[int]`."""
    return get_origin(cls) or cls


def own_docstring(cls: type) -> str | None:
    """The first paragraph of what a class says of itself, not of what Python made up or it inherited."""
    cls = declared_class(cls)
    text = cls.__dict__.get("__doc__")
    if not isinstance(text, str) or text.startswith(f"{cls.__name__}("):
        return None
    return " ".join(text.strip().split("\n\n")[0].split()) or None


def _dataclass_labels(cls: type) -> dict[str, dict[str, str]]:
    """For each field that can be given: the labels in its `metadata`."""
    from dataclasses import fields

    return {
        field.name: {
            key: value
            for key in ("title", "description", "format")
            if isinstance(value := field.metadata.get(key), str)
        }
        for field in fields(cls)
        if field.init
    }


def _field(declared: inspect.Field, labels: dict[str, str], annotation: object) -> Field:
    name = declared.encode_name
    outer, outer_labels = _without_metadata(declared.type)
    inner, is_optional = _without_none(outer, name)
    inner, inner_labels = _without_metadata(inner)
    labels = {**inner_labels, **outer_labels, **labels}
    common: dict[str, Any] = {
        "name": name,
        "keyword": declared.name,
        "title": labels.get("title") or readable(name),
        "description": labels.get("description"),
        "required": declared.required and not is_optional,
        "absent": None if declared.required and is_optional else UNSET,
    }
    field = _kind_of_field(inner, common, labels.get("format"))
    if isinstance(field, ChoiceField | ChoicesField):
        field = replace(field, options=_as_written(field.options, annotation))
    default = _default_of(declared)
    return field if default is None else field.with_default(default)


def _without_metadata(type: inspect.Type) -> tuple[inspect.Type, dict[str, Any]]:
    if isinstance(type, inspect.Metadata):
        return type.type, type.extra_json_schema or {}
    return type, {}


def _without_none(type: inspect.Type, name: str) -> tuple[inspect.Type, bool]:
    if isinstance(type, inspect.LiteralType) and None in type.values:
        return inspect.LiteralType(tuple(value for value in type.values if value is not None)), True
    if not isinstance(type, inspect.UnionType):
        return type, False
    others = [each for each in type.types if not isinstance(each, inspect.NoneType)]
    if len(others) != 1:
        raise ValueError(f"the field {name!r} is of several types: a form has one for each field")
    return others[0], len(others) < len(type.types)


def _kind_of_field(type: inspect.Type, common: dict[str, Any], format: str | None) -> Field:
    match type:
        case inspect.StrType():
            return _text(type, common, format)
        case inspect.IntType() | inspect.FloatType():
            return _number(type, common)
        case inspect.BoolType():
            return SwitchField(**common)
        case inspect.DateType():
            return TextField(**common, format="date", make=date.fromisoformat)
        case inspect.DateTimeType():
            return TextField(**common, format="date-time", make=datetime.fromisoformat)
        case inspect.EnumType() | inspect.LiteralType():
            return ChoiceField(**common, options=_options(type, common["name"]))
        case inspect.ListType() | inspect.SetType() | inspect.FrozenSetType() | inspect.VarTupleType():
            return _choices(type, common)
    raise _refusal(type, common["name"])


def _refusal(type: inspect.Type, name: str) -> ValueError:
    if isinstance(type, (*WITH_FIELDS, inspect.DictType, inspect.NamedTupleType)):
        return ValueError(f"the field {name!r} is an object itself: a form is flat, so ask for its parts")
    kind = type.__class__.__name__.removesuffix("Type")
    return ValueError(f"the field {name!r} cannot be part of a form ({kind}): there are {KNOWN}")


def _text(type: inspect.StrType, common: dict[str, Any], format: str | None) -> TextField:
    return TextField(
        **common,
        shortest=type.min_length,
        longest=type.max_length,
        pattern=pattern_of(type.pattern, common["name"]),
        format=format,
    )


def _number(type: inspect.IntType | inspect.FloatType, common: dict[str, Any]) -> NumberField:
    if type.multiple_of is not None:
        raise ValueError(f"the field {common['name']!r}: forms know no `multiple_of`, check it yourself")
    if isinstance(type, inspect.FloatType):
        return NumberField(
            **common, whole=False, minimum=type.ge, maximum=type.le, above=type.gt, below=type.lt
        )
    minimum = type.ge if type.gt is None else type.gt + 1
    maximum = type.le if type.lt is None else type.lt - 1
    return NumberField(**common, whole=True, minimum=minimum, maximum=maximum)


def _choices(type: Any, common: dict[str, Any]) -> ChoicesField:
    item, _ = _without_metadata(type.item_type)
    if not isinstance(item, inspect.EnumType | inspect.LiteralType):
        raise ValueError(
            f"the field {common['name']!r} is a list of anything: a form has lists of given choices only, "
            f"such as list[Literal[…]]"
        )
    return ChoicesField(
        **common,
        options=_options(item, common["name"]),
        fewest=type.min_length,
        most=type.max_length,
        make=COLLECTIONS[type.__class__],
    )


def _options(type: inspect.EnumType | inspect.LiteralType, name: str) -> tuple[Option, ...]:
    if isinstance(type, inspect.EnumType):
        return distinct((_member(member) for member in type.cls), name)
    return distinct((Option(str(value), str(value), value) for value in type.values), name)


def _as_written(options: tuple[Option, ...], annotation: object) -> tuple[Option, ...]:
    """The options in the order of the annotation: msgspec sorts what a Literal lists."""
    order = [(value.__class__, value) for value in _literal_values(annotation)]
    places = {key: place for place, key in reversed(list(enumerate(order)))}
    return tuple(sorted(options, key=lambda option: places.get((option.value.__class__, option.value), 0)))


def _literal_values(annotation: object) -> list[Any]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    # A `type` statement of Python 3.12 keeps what it stands for in `__value__`.
    inside = (getattr(annotation, "__value__", None), *get_args(annotation))
    return [value for part in inside if part is not None for value in _literal_values(part)]


def _member(member: enum.Enum) -> Option:
    # Values on the wire are text. What is no text goes by its name.
    const = str(member.value) if isinstance(member.value, str) else member.name
    title = readable(member.name.lower() if member.name.isupper() else member.name)
    return Option(const, title, member)


def _default_of(declared: inspect.Field) -> Any:
    """The default, or None if there is none that can be shown."""
    if declared.default is not NODEFAULT:
        return None if declared.default is UNSET else declared.default
    return declared.default_factory() if declared.default_factory in FACTORIES else None
