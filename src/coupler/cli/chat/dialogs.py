"""What an agent asks its user: whether it may do something, a form to fill in, a page to look at.

One dialog is open at a time. Whatever an agent calls its options, what they do is said beside them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

from msgspec import UNSET

from coupler.cli.chat.rendering import Choice, Listing, Numbered, Part, Remark, Transcript, Wanted
from coupler.cli.terminal import clean, one_line
from coupler.client.elicitation import FormRequest, UrlRequest
from coupler.client.policy import PermissionRequest, Verdict
from coupler.fields.form_fields import ChoiceField, ChoicesField, Field, NumberField, Option, SwitchField
from coupler.schema.v1 import PermissionOption


class Dialogs:
    """The questions of one conversation, asked one after the other."""

    def __init__(self, front: Asking, interrupt: Callable[[], None] = lambda: None) -> None:
        """`interrupt` cancels the turn; a front that never raises `Interrupted` needs none."""
        self._front = front
        self._interrupt = interrupt
        self._turn = asyncio.Lock()

    async def permission(self, request: PermissionRequest) -> Verdict:
        """The option that is chosen; None, and the turn is cancelled, if none is."""
        async with self._turn:
            self._front.show(Wanted(request.tool_call, request.options))
            while True:
                try:
                    typed = await self._front.ask(f"  1-{len(request.options)}, or s to see all of it: ")
                except (Left, Interrupted):
                    self._interrupt()
                    return None
                option = chosen(typed, request.options)
                if option is not None:
                    return option.option_id
                if typed.strip() == "s":
                    self._front.show(Wanted(request.tool_call, request.options, is_whole=True))
                else:
                    self._front.show(Remark(f"Choose 1-{len(request.options)}.", severity="warning"))

    async def form(self, request: FormRequest) -> dict[str, Value] | bool | None:
        """The values that were typed; False if the user declines, None if the turn is cancelled."""
        async with self._turn:
            keys = "Ctrl-D declines, Ctrl-C cancels the turn."
            self._front.show(Remark(one_line(request.message), keys, "question"))
            try:
                return await self._filled_in(request.fields)
            except Left:
                return False
            except Interrupted:
                self._interrupt()
                return None

    async def page(self, request: UrlRequest) -> bool | None:
        """Whether the user goes to the page; nothing is opened by itself."""
        async with self._turn:
            where = f"{one_line(request.message)}\n{one_line(request.url)}"
            title = f"The agent asks you to open a page of {one_line(request.host)}"
            self._front.show(Remark(title, where, "question"))
            try:
                return await self._is_agreed("  Open it in your browser, then answer y; n declines: ")
            except Left:
                return False
            except Interrupted:
                self._interrupt()
                return None

    async def _filled_in(self, fields: Sequence[Field]) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for field in fields:
            self._front.show(question(field))
            value = await self._answered(field)
            if value is not None:
                values[field.name] = value
        return values

    async def _answered(self, field: Field) -> Value | None:
        while True:
            typed = await self._front.ask(f"  {hint(field)}: ")
            try:
                return answer(field, typed)
            except ValueError as error:
                self._front.show(Remark(one_line(str(error)), severity="warning"))

    async def _is_agreed(self, question: str) -> bool:
        while True:
            word = (await self._front.ask(question)).strip().lower()
            if word in YES | NO:
                return word in YES


def chosen(typed: str, options: Sequence[PermissionOption]) -> PermissionOption | None:
    """The option whose number was typed."""
    word = typed.strip()
    number = int(word) if word.isascii() and word.isdecimal() and len(word) < 4 else 0
    return options[number - 1] if 0 < number <= len(options) else None


# The fields of a form, each as a question with one line for an answer.


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


# What a conversation needs of whatever people sit in front of.


class Left(Exception):  # noqa: N818 - nothing has failed
    """Whoever sat there has left, by Ctrl-D or the end of the input."""


class Interrupted(Exception):  # noqa: N818 - nothing has failed
    """Ctrl-C, where something was to be typed."""


class Asking(Protocol):
    """What a dialog needs: somebody who sees, and who types."""

    async def ask(self, question: str) -> str:
        """An answer to something that stands on the screen; raises `Left` and `Interrupted`."""

    def show(self, part: Part) -> None:
        """Show a part after everything that is on the screen."""


class Front(Asking, Protocol):
    """Shows a transcript and reads what is typed."""

    transcript: Transcript
    can_ask: bool
    """Whether there is somebody to answer questions."""

    async def read(self) -> str:
        """The next line for the agent; raises `Left` and `Interrupted`."""

    def show_whole(self, part: Numbered) -> None:
        """Show all there is of a part that was collapsed."""

    def refresh(self) -> None:
        """The transcript has changed; a front may do so later, by itself."""

    def working(self, interrupt: Callable[[], None]) -> AbstractContextManager[None]:
        """The agent works meanwhile: show how it gets on, and pass on what interrupts it."""
