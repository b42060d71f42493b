"""The fields of a form, each as a question with one line for an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from msgspec import UNSET

from coupler.cli.chat.parts import Choice, Listing
from coupler.cli.sessions.wording import clean, one_line
from coupler.fields.form_fields import ChoiceField, ChoicesField, Field, NumberField, Option, SwitchField

YES = frozenset({"y", "yes", "true", "on", "1"})
NO = frozenset({"n", "no", "false", "off", "0"})

Value: TypeAlias = str | int | float | bool | Sequence[str]


def question(field: Field) -> Listing:
    """The field as it is shown before its line."""
    needed = "" if field.required else " (may be left out)"
    options = getattr(field, "options", ())
    choices = tuple(Choice(f"{number}", _meaning(option)) for number, option in enumerate(options, 1))
    return Listing(f"{one_line(field.title)}{needed}", choices, clean(field.description or ""))


def hint(field: Field) -> str:
    """What to type, in a few words, and what holds if nothing is typed."""
    match field:
        case ChoiceField(options=options):
            expected = f"1-{len(options)}"
        case ChoicesField(options=options):
            expected = f"numbers of 1-{len(options)}, with commas between"
        case SwitchField():
            expected = "y/n"
        case _:
            expected = one_line(field.expected())
    return expected if field.default is UNSET else f"{expected} [{_spoken(field.default)}]"


def answer(field: Field, typed: str) -> Value | None:
    """The value that was typed; None leaves the field out. Raises ValueError with a sentence."""
    typed = typed.strip()
    if typed:
        value: Value = _parsed(field, typed)
    elif field.default is not UNSET:
        value = field.default
    elif field.required:
        raise ValueError("this one is needed")
    else:
        return None
    field.read(value)
    return value


def _parsed(field: Field, typed: str) -> Any:
    match field:
        case SwitchField():
            return _boolean(typed)
        case NumberField(whole=whole):
            return _number(typed, int if whole else float)
        case ChoiceField(options=options):
            return _chosen(typed, options)
        case ChoicesField(options=options):
            return [_chosen(word.strip(), options) for word in typed.split(",") if word.strip()]
    return typed


def _chosen(typed: str, options: Sequence[Option]) -> str:
    """An option by its number or its name."""
    if typed.isascii() and typed.isdecimal() and 0 < int(typed[:9]) <= len(options):
        return options[int(typed) - 1].const
    for option in options:
        if typed in (option.const, option.title):
            return option.const
    raise ValueError(f"choose from 1-{len(options)}")


def _boolean(typed: str) -> bool:
    word = typed.lower()
    if word not in YES | NO:
        raise ValueError("answer y or n")
    return word in YES


def _number(typed: str, kind: type[int] | type[float]) -> int | float:
    try:
        return kind(typed)
    except ValueError:
        raise ValueError("that is no whole number" if kind is int else "that is no number") from None


def _meaning(option: Option) -> str:
    more = f": {option.description}" if option.description else ""
    return one_line(f"{option.title}{more}")


def _spoken(default: Any) -> str:
    if isinstance(default, bool):
        return "y" if default else "n"
    return one_line(", ".join(map(str, default)) if isinstance(default, list | tuple) else str(default))
