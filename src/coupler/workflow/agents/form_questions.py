"""Forms that an agent wants to be filled in during a step: asked one field at a time, if it is simple."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from coupler.forms.field import ChoiceField, Field, FormError, NumberField, SwitchField, TextField
from coupler.workflow.errors import Parked
from coupler.workflow.journal.happenings import AnswerAsked, AnswerGiven, Noted
from coupler.workflow.language.definition import Input, InputType, Position

if TYPE_CHECKING:
    from coupler.client.elicitation import FormAnswer, FormRequest
    from coupler.workflow.engine.attempt import Attempt

MOST_FIELDS = 20
"""Fields of a form that a person is asked for one after the other."""


async def answers_to(form: FormRequest, attempt: Attempt) -> FormAnswer:
    """The values by the fields' names; False, which declines, if nobody is there or it is no simple form."""
    inputs = {field.name: _input(field, attempt) for field in form.fields}
    if len(inputs) > MOST_FIELDS or any(declared is None for declared in inputs.values()):
        attempt.emit(
            Noted(text=f"a form of the agent was declined, because it is no simple one: {form.message}")
        )
        return False
    answers: dict[str, Any] = {}
    try:
        async with attempt.asking:
            for field in form.fields:
                declared = inputs[field.name]
                assert declared is not None
                value = await _answer(f"{form.message}\n{_title(field)}", declared, attempt)
                if value is not None:
                    answers[field.name] = field.read(field.write(value))
    except Parked:
        attempt.emit(Noted(text=f"a form of the agent was declined, because nobody is there: {form.message}"))
        return False
    except FormError as error:
        attempt.emit(Noted(text=f"a form of the agent was declined, because an answer does not fit: {error}"))
        return False
    return answers


async def _answer(question: str, declared: Input, attempt: Attempt) -> Any:
    attempt.emit(AnswerAsked(question=question, choices=declared.enum))
    answer = await attempt.front.ask(attempt.place, question, declared)
    attempt.emit(AnswerGiven(text=answer.text, by=answer.by))
    return answer.value


def _title(field: Field) -> str:
    described = f" ({field.description})" if field.description else ""
    return f"{field.title}{described}: {field.expected()}"


def _input(field: Field, attempt: Attempt) -> Input | None:
    """A field as a question of the language; None for what is more than one answer."""
    kind: InputType
    more: dict[str, Any] = {}
    match field:
        case SwitchField():
            kind = "boolean"
        case ChoiceField():
            kind, more = "string", {"enum": tuple(option.const for option in field.options)}
        case NumberField():
            kind = "integer" if field.whole else "number"
            more = {"min": field.minimum, "max": field.maximum}
        case TextField():
            kind, more = "string", {"min": field.shortest, "max": field.longest}
        case _:
            return None
    default = field.default if field.default is not UNSET else UNSET if field.required else None
    return Input(
        name=field.name,
        type=kind,
        required=field.required,
        default=default,
        position=Position(attempt.workflow.file, 1, 1),
        **more,
    )
