"""Asks the user what an agent asks: permission requests, forms, and pages to open.

One dialog is open at a time. Whatever an agent calls its options, what they do is said beside them. The
fields of a form are asked one by one, each with a menu, or with one line for an answer. The protocols of the
fronts are here, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

from msgspec import UNSET

from coupler.cli.chat.menu import Choose, Menu, WantsDetails
from coupler.cli.chat.transcript import (
    Listing,
    ListingItem,
    NumberedPart,
    Part,
    PermissionPart,
    Remark,
    Transcript,
)
from coupler.client.elicitation import FormRequest, UrlRequest
from coupler.client.policy import PermissionRequest, Verdict
from coupler.fields.form_fields import ChoiceField, ChoicesField, Field, NumberField, Option, SwitchField
from coupler.permission.action import option_label
from coupler.runtime.terminal_text import clean, one_line
from coupler.schema.v1 import PermissionOption

YES = frozenset({"y", "yes", "true", "on", "1"})
NO = frozenset({"n", "no", "false", "off", "0"})

LEAVE_OUT = "Leave it out"

FieldValue: TypeAlias = str | int | float | bool | Sequence[str]


class UserLeft(Exception):  # noqa: N818 - nothing has failed
    """The user has left, by Ctrl-D or the end of the input."""


class InputInterrupted(Exception):  # noqa: N818 - nothing has failed
    """The user pressed Ctrl-C where something was to be typed."""


class DialogFront(Protocol):
    """A front that dialogs can use: it shows parts and reads answers."""

    async def ask(self, question: str) -> str:
        """Reads an answer to a question on the screen; raises `UserLeft` and `InputInterrupted`."""

    def show(self, part: Part) -> None:
        """Shows a part after everything that is on the screen."""


class ChatFront(DialogFront, Protocol):
    """A front for a whole conversation: it shows a transcript and reads what is typed."""

    transcript: Transcript
    can_ask: bool
    """True if there is somebody to answer questions."""

    @property
    def choose(self) -> Choose | None:
        """Shows menus; None if there is nobody to choose."""

    async def read(self) -> str:
        """Reads the next line for the agent; raises `UserLeft` and `InputInterrupted`."""

    def show_whole(self, part: NumberedPart) -> None:
        """Shows all there is of a part that was collapsed."""

    def clear(self) -> None:
        """Empties the screen, if there is one."""

    def refresh(self) -> None:
        """Shows changes of the transcript; a front may do so later, by itself."""

    def working(self, interrupt: Callable[[], None]) -> AbstractContextManager[None]:
        """Shows the agent's progress meanwhile, and passes on what interrupts it."""


class Dialogs:
    """Asks the questions of one conversation, one after the other."""

    def __init__(
        self,
        front: DialogFront,
        interrupt: Callable[[], None] = lambda: None,
        choose: Choose | None = None,
    ) -> None:
        """`interrupt` cancels the turn; a front that never raises `InputInterrupted` needs none.

        Without `choose` choices are typed on a line, and permissions are asked elsewhere.
        """
        self._front = front
        self._interrupt = interrupt
        self._choose = choose
        self._turn = asyncio.Lock()

    async def permission(self, request: PermissionRequest) -> Verdict:
        """Asks for one of the options; None, and the turn is cancelled, if none is chosen."""
        assert self._choose is not None  # fronts without menus are asked for no permission
        async with self._turn:
            self._front.show(PermissionPart(request.tool_call))
            menu = permission_menu(request.options)
            while True:
                try:
                    (number,) = await self._choose(menu)
                except (UserLeft, InputInterrupted):
                    self._interrupt()
                    return None
                except WantsDetails:
                    self._front.show(PermissionPart(request.tool_call, is_whole=True))
                else:
                    return request.options[number].option_id

    async def form(self, request: FormRequest) -> dict[str, FieldValue] | bool | None:
        """Asks for the values of a form; False if the user declines, None if the turn is cancelled."""
        async with self._turn:
            keys = "Ctrl-D declines, Ctrl-C cancels the turn."
            self._front.show(Remark(one_line(request.message), keys, "question"))
            try:
                return await self._filled_in(request.fields)
            except UserLeft:
                return False
            except InputInterrupted:
                self._interrupt()
                return None

    async def page(self, request: UrlRequest) -> bool | None:
        """Asks to open a page, and returns whether the user does; nothing is opened by itself."""
        async with self._turn:
            where = f"{one_line(request.message)}\n{one_line(request.url)}"
            title = f"The agent asks you to open a page of {one_line(request.host)}"
            self._front.show(Remark(title, where, "question"))
            try:
                return await self._is_agreed("  Open it in your browser, then answer y; n declines: ")
            except UserLeft:
                return False
            except InputInterrupted:
                self._interrupt()
                return None

    async def _filled_in(self, fields: Sequence[Field]) -> dict[str, FieldValue]:
        values: dict[str, FieldValue] = {}
        for field in fields:
            menu = None if self._choose is None else field_menu(field)
            self._front.show(field_question(field, has_menu=menu is not None))
            value = await (self._answered(field) if menu is None else self._chosen(field, menu))
            if value is not None:
                values[field.name] = value
        return values

    async def _answered(self, field: Field) -> FieldValue | None:
        while True:
            typed = await self._front.ask(f"  {field_hint(field)}: ")
            try:
                return field_value(field, typed)
            except ValueError as error:
                self._front.show(Remark(one_line(str(error)), severity="warning"))

    async def _chosen(self, field: Field, menu: Menu) -> FieldValue | None:
        assert self._choose is not None
        while True:
            try:
                return menu_value(field, await self._choose(menu))
            except ValueError as error:
                self._front.show(Remark(one_line(str(error)), severity="warning"))

    async def _is_agreed(self, question: str) -> bool:
        while True:
            word = (await self._front.ask(question)).strip().lower()
            if word in YES | NO:
                return word in YES


def permission_menu(options: Sequence[PermissionOption]) -> Menu:
    """The options of a permission request; Enter alone never chooses one that holds for always."""
    labels = tuple(one_line(option_label(option.kind, option.name)) for option in options)
    kinds = [option.kind for option in options]
    preselected = next((kinds.index(kind) for kind in ("allow_once", "reject_once") if kind in kinds), None)
    return Menu(labels, preselected, has_details=True)


def field_menu(field: Field) -> Menu | None:
    """The menu for a field; None if it is answered with a line."""
    has_default = field.default is not UNSET
    match field:
        case ChoicesField(options=options):
            marked = (n for n, each in enumerate(options) if has_default and each.const in field.default)
            return Menu(tuple(map(_meaning, options)), 0, tuple(marked))
        case ChoiceField(options=options):
            labels = tuple(map(_meaning, options))
            default = [n for n, each in enumerate(options) if has_default and each.const == field.default]
        case SwitchField():
            labels, default = ("Yes", "No"), [0 if field.default else 1] if has_default else []
        case _:
            return None
    if field.required or default:
        return Menu(labels, default[0] if default else 0)
    return Menu((*labels, LEAVE_OUT), len(labels))


def menu_value(field: Field, chosen: Sequence[int]) -> FieldValue | None:
    """The value that was chosen in a field's menu; None leaves it out. Raises ValueError with a sentence."""
    match field:
        case ChoicesField(options=options) if chosen or field.required:
            consts = [options[number].const for number in chosen]
            field.read(consts)
            return consts
        case ChoiceField(options=options) if chosen[0] < len(options):
            return options[chosen[0]].const
        case SwitchField() if chosen[0] < len((True, False)):
            return chosen[0] == 0
    return None


def field_question(field: Field, *, has_menu: bool = False) -> Listing:
    """The field as it is shown before its line, or its menu."""
    needed = "" if field.required else " (optional)"
    options = () if has_menu else getattr(field, "options", ())
    choices = tuple(ListingItem(f"{number}", _meaning(option)) for number, option in enumerate(options, 1))
    return Listing(f"{one_line(field.title)}{needed}", choices, clean(field.description or ""))


def field_hint(field: Field) -> str:
    """A hint what to type, and the default if nothing is typed."""
    match field:
        case ChoiceField(options=options):
            expected = f"1-{len(options)}"
        case ChoicesField(options=options):
            expected = f"numbers of 1-{len(options)}, with commas between"
        case SwitchField():
            expected = "y/n"
        case _:
            expected = one_line(field.expected())
    return expected if field.default is UNSET else f"{expected} [{_default_text(field.default)}]"


def field_value(field: Field, typed: str) -> FieldValue | None:
    """Parses a typed value; None leaves the field out. Raises ValueError with a sentence."""
    typed = typed.strip()
    if typed:
        value: FieldValue = _parsed(field, typed)
    elif field.default is not UNSET:
        value = field.default
    elif field.required:
        raise ValueError("this one is required")
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
    """Finds an option by its number or its name."""
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


def _default_text(default: Any) -> str:
    if isinstance(default, bool):
        return "y" if default else "n"
    return one_line(", ".join(map(str, default)) if isinstance(default, list | tuple) else str(default))
