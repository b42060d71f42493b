"""What an agent asks its user: whether it may do something, a form to fill in, a page to look at.

One dialog is open at a time. Whatever an agent calls its options, what they do is said beside them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from coupler.cli.chat.form_answers import NO, YES, Value, answer, hint, question
from coupler.cli.chat.front import Asking, Interrupted, Left
from coupler.cli.chat.parts import Remark, Wanted
from coupler.cli.sessions.wording import one_line
from coupler.client.elicitation import FormRequest, UrlRequest
from coupler.client.policy import PermissionRequest, Verdict
from coupler.fields.form_fields import Field
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
