"""The fields of a form that an agent wants to have filled in, and whether an answer fits them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import UNSET, UnsetType

from coupler.fields.bounded_regex import Pattern
from coupler.fields.form_fields import (
    MOST_FIELDS,
    ChoiceField,
    ChoicesField,
    Field,
    FormError,
    NumberField,
    Option,
    SwitchField,
    TextField,
)
from coupler.schema.v1 import (
    BooleanPropertySchema,
    ElicitationPropertySchema,
    ElicitationSchema,
    EnumOption,
    IntegerPropertySchema,
    MultiSelectItems,
    MultiSelectPropertySchema,
    NumberPropertySchema,
    StringMultiSelectItems,
    StringPropertySchema,
    TitledMultiSelectItems,
)


def fields_of(schema: ElicitationSchema) -> tuple[Field, ...]:
    """What can be filled in. A field of a kind that is not known here is left out, unless it is required."""
    if schema.type != "object":
        raise ValueError(f"the form is of the type {schema.type!r:.100}: only objects can be filled in")
    required = frozenset(schema.required or ())
    if unknown := sorted(required - schema.properties.keys()):
        raise ValueError(f"the form requires the field {unknown[0]!r:.100}, which it does not have")
    if len(schema.properties) > MOST_FIELDS:
        raise ValueError(f"the form has more than {MOST_FIELDS} fields: ask for less at once")
    fields: list[Field] = []
    for name, part in schema.properties.items():
        field = _field(part, _common(name, part, name in required))
        if field is not None:
            fields.append(field)
        elif name in required:
            raise ValueError(f"the form requires the field {name!r:.100}, whose kind is not known here")
    return tuple(fields)


def checked(answer: Mapping[str, Any], fields: Iterable[Field]) -> dict[str, Any]:
    """The answer as it is sent; raises FormError, which does not repeat the value, if it does not fit."""
    by_name = {field.name: field for field in fields}
    for name in answer:
        if name not in by_name:
            offered = ", ".join(by_name) or "none at all"
            raise FormError(f"the form has no field {name!r:.100}, only {offered:.500}")
    content: dict[str, Any] = {}
    for name, field in by_name.items():
        if answer.get(name) is not None:
            content[name] = field.read(field.write(answer[name]))
        elif field.required:
            raise FormError("is missing", name)
    return content


def _common(name: str, part: ElicitationPropertySchema, required: bool) -> dict[str, Any]:
    return {
        "name": name,
        "keyword": name,
        "title": getattr(part, "title", None) or name,
        "description": getattr(part, "description", None) or None,
        "required": required,
        "default": _or_unset(getattr(part, "default", None)),
    }


def _field(part: ElicitationPropertySchema, common: dict[str, Any]) -> Field | None:
    match part:
        case StringPropertySchema():
            return _text_or_choice(part, common)
        case NumberPropertySchema(minimum=minimum, maximum=maximum):
            return NumberField(**common, whole=False, minimum=_known(minimum), maximum=_known(maximum))
        case IntegerPropertySchema(minimum=minimum, maximum=maximum):
            return NumberField(**common, whole=True, minimum=_known(minimum), maximum=_known(maximum))
        case BooleanPropertySchema():
            return SwitchField(**common)
        case MultiSelectPropertySchema():
            options = _items(part.items)
            if options is None:
                return None
            fewest, most = _known(part.min_items), _known(part.max_items)
            return ChoicesField(**common, options=options, fewest=fewest, most=most)
    return None


def _text_or_choice(part: StringPropertySchema, common: dict[str, Any]) -> Field:
    if part.one_of:
        return ChoiceField(**common, options=_titled(part.one_of))
    if part.enum:
        return ChoiceField(**common, options=_plain(part.enum))
    return TextField(
        **common,
        shortest=_known(part.min_length),
        longest=_known(part.max_length),
        pattern=_pattern(_known(part.pattern)),
        format=_known(part.format),
    )


def _pattern(source: str | None) -> Pattern | None:
    """The pattern, if it can be matched in bounded time; else only the agent can tell what fits."""
    try:
        return None if source is None else Pattern(source)
    except ValueError:
        return None


def _items(items: MultiSelectItems) -> tuple[Option, ...] | None:
    match items:
        case StringMultiSelectItems(enum):
            return _plain(enum)
        case TitledMultiSelectItems(any_of):
            return _titled(any_of)
    return None


def _plain(values: Iterable[str]) -> tuple[Option, ...]:
    return tuple(Option(value, value, value) for value in dict.fromkeys(values))


def _titled(options: Iterable[EnumOption]) -> tuple[Option, ...]:
    by_const = {option.const: option for option in options}
    return tuple(
        Option(const, option.title, const, _known(option.description)) for const, option in by_const.items()
    )


def _known(value: Any | UnsetType | None) -> Any:
    return None if value is UNSET else value


def _or_unset(value: Any) -> Any:
    return UNSET if value is None else value
