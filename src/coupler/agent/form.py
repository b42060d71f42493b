"""A form: what an agent wants to know, from a type or a JSON Schema, and what the user made of it.

    Form.of(Settings)                   a dataclass, a msgspec Struct, a TypedDict, a pydantic model
    Form.of(Literal["small", "large"])  one value: an Enum, bool, int, float, str, date, list of choices
    Form.of({"type": "object", …})      a flat JSON Schema

Titles and descriptions come from `Annotated[int, msgspec.Meta(title=…, ge=1)]`, a dataclass field's
`metadata`, pydantic's `Field`, or the schema; the description of the form is the class's docstring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, overload

from msgspec import UNSET

from coupler.agent.sensitive import asks_for_secret, names_secret, names_secret_number
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
from coupler.fields.schema_forms import outline
from coupler.fields.type_forms import (
    SINGLE,
    WITH_FIELDS,
    fields_of_type,
    own_docstring,
    read_type,
    single_field,
)
from coupler.redaction.known_secrets import beginning_of
from coupler.schema import v1

__all__ = ["Form", "FormError"]

T = TypeVar("T")

MOST_OPTIONS = 1_000
"""Choices of one field."""
LONGEST_PROBLEM = 500
"""Characters of what a type finds wrong with a value."""

YES, NO = "Yes", "No"

Build = Callable[[dict[str, Any]], Any]


class Form(Generic[T]):
    """Fields, and what is made of their values."""

    def __init__(
        self, fields: list[Field], build: Build, *, title: str | None = None, description: str | None = None
    ) -> None:
        if not fields:
            raise ValueError("the form has no field: there is nothing to ask")
        if len(fields) > MOST_FIELDS:
            raise ValueError(f"the form has more than {MOST_FIELDS} fields: ask for less at once")
        for field in fields:
            _refuse_too_many_options(field)
            _refuse_secret(field)
        self.fields = tuple(fields)
        self.title = title
        self.description = description
        self._build = build

    @overload
    @staticmethod
    def of(spec: type[T]) -> Form[T]: ...
    @overload
    @staticmethod
    def of(spec: object) -> Form[Any]: ...
    @staticmethod
    def of(spec: Any) -> Form[Any]:
        """The form for a type or a JSON Schema; ValueError says which field cannot be in one, and why."""
        if isinstance(spec, Form):
            return spec
        if isinstance(spec, Mapping):
            return _of_schema(spec)
        if isinstance(spec, type) and hasattr(spec, "model_json_schema") and hasattr(spec, "model_validate"):
            return _of_model(spec)
        return _of_type(spec)

    @property
    def schema(self) -> v1.ElicitationSchema:
        """The form as clients are told of it."""
        return v1.ElicitationSchema(
            title=self.title or UNSET,
            properties={field.name: field.as_property() for field in self.fields},
            required=tuple(field.name for field in self.fields if field.required) or UNSET,
            description=self.description or UNSET,
        )

    @property
    def sole_choice(self) -> tuple[Option, ...] | None:
        """The answers, if the form is one choice or a yes or no: it can be asked without a form then."""
        if len(self.fields) != 1:
            return None
        match self.fields[0]:
            case ChoiceField() as field:
                return field.options
            case SwitchField():
                return (Option("yes", YES, True), Option("no", NO, False))
        return None

    def parse(self, content: object) -> T:
        """What the client sent, as the type that was asked for; raises `FormError`.

        What the form did not ask for is left out.
        """
        if not isinstance(content, Mapping):
            raise FormError("expected the values of the form's fields")
        return self._made(
            {field.keyword: value for field in self.fields if (value := _read(field, content)) is not UNSET}
        )

    def choose(self, option: Option) -> T:
        """The result of one of `sole_choice`."""
        return self._made({self.fields[0].keyword: option.value})

    def explain(self) -> str:
        """What is to be answered, in words, for clients that show text only."""
        if [field.name for field in self.fields] == [SINGLE]:
            return f"Please answer with {self.fields[0].expected()}."
        lines = [
            f"- {field.title}: {field.expected()}"
            + ("" if field.required else " (optional)")
            + (f". {field.description}" if field.description else "")
            for field in self.fields
        ]
        return "Please answer with:\n\n" + "\n".join(lines)

    def _made(self, values: dict[str, Any]) -> T:
        try:
            made: T = self._build(values)
        except FormError:
            raise
        except (ValueError, TypeError) as error:
            # What the type itself checks, for example in `__post_init__`.
            raise FormError(_shortened(error) or type(error).__name__) from None
        return made


def _read(field: Field, content: Mapping[Any, Any]) -> Any:
    if field.name in content:
        return field.read(content[field.name])
    if field.required:
        raise FormError("is missing", field.name)
    return field.absent


def _of_type(spec: object) -> Form[Any]:
    read = read_type(spec)
    if not isinstance(read, WITH_FIELDS):
        return Form([single_field(read, spec)], _single_value)
    return Form(fields_of_type(read), lambda values: read.cls(**values), description=own_docstring(read.cls))


def _of_schema(schema: Mapping[str, Any]) -> Form[Any]:
    found = outline(schema)
    build: Build = _single_value if found.is_single else dict
    return Form(found.fields, build, title=found.title, description=found.description)


def _of_model(model: Any) -> Form[Any]:
    found = outline(model.model_json_schema())
    if found.is_single:
        raise ValueError(
            f"the model {model.__name__} has no fields of its own: give the type that it is made of"
        )

    def build(values: dict[str, Any]) -> Any:
        try:
            return model.model_validate(values)
        except ValueError as error:
            raise _model_error(error) from None

    return Form(found.fields, build, title=found.title, description=found.description)


def _single_value(values: dict[str, Any]) -> Any:
    return values.get(SINGLE)


def _model_error(error: ValueError) -> FormError:
    """The first thing that pydantic found, without its links and without the value."""
    errors = getattr(error, "errors", None)
    first = next(iter(errors()), None) if callable(errors) else None
    if not isinstance(first, Mapping):
        return FormError(_shortened(error))
    place = first.get("loc") or (None,)
    return FormError(_shortened(first.get("msg")), None if place[0] is None else str(place[0]))


def _shortened(problem: object) -> str:
    return beginning_of(str(problem), LONGEST_PROBLEM)


def _refuse_too_many_options(field: Field) -> None:
    if isinstance(field, ChoiceField | ChoicesField) and len(field.options) > MOST_OPTIONS:
        raise ValueError(f"the field {field.name!r:.100} has more than {MOST_OPTIONS} choices: offer less")


def is_secret(field: Field) -> bool:
    """Whether a secret is asked for. Only what is typed can be one: a choice cannot give one away."""
    labels = (field.name, field.keyword, field.title)
    match field:
        case TextField():
            is_named = field.format == "password" or any(map(names_secret, labels))
        case NumberField():
            is_named = any(map(names_secret_number, labels))
        case _:
            return False
    return is_named or asks_for_secret(field.description or "")


def _refuse_secret(field: Field) -> None:
    if is_secret(field):
        raise ValueError(
            f"the field {field.name!r:.100} looks like a secret, and forms are no place for one: "
            "ask for secrets with turn.ask_url"
        )
