"""Menus in the terminal: one of several choices, or some of them, by arrow keys, numbers and Enter.

`MenuState` knows what is chosen after which key; `run_menu` draws it and reads the keys.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

MENU_ROWS = 12
"""Lines of a menu; a longer one scrolls."""

MOVES = {"up": -1, "c-p": -1, "s-tab": -1, "down": 1, "c-n": 1, "tab": 1}
DETAILS_KEY = "s"


class Menu(Struct, frozen=True):
    """Choices, and the one that Enter takes before anything else was pressed."""

    choices: tuple[str, ...]
    preselected: int | None = None
    marked: tuple[int, ...] | None = None
    """Those that are chosen before anything was pressed, if several can be; else None."""
    has_details: bool = False
    """True if a key asks to see more before the choice."""

    def not_preselected(self) -> Menu:
        """The menu in which Enter alone takes nothing."""
        return Menu(self.choices, None, self.marked, self.has_details)


class WantsDetails(Exception):  # noqa: N818 - nothing has failed
    """The user wants to see more before the choice."""


Choose: TypeAlias = Callable[[Menu], Awaitable[tuple[int, ...]]]
"""Shows a menu, and returns the numbers of what was chosen, from 0 on.

Raises `WantsDetails`, and `UserLeft` and `InputInterrupted` as a question does.
"""


class MenuState:
    """A menu after the keys that were pressed: where its cursor stands, and what is marked."""

    def __init__(self, menu: Menu) -> None:
        self.menu = menu
        self.cursor = menu.preselected
        self.marked = None if menu.marked is None else set(menu.marked)
        self._typed = ""

    def move(self, by: int) -> None:
        """Moves the cursor up or down, around the ends."""
        start = self.cursor if self.cursor is not None else (-1 if by > 0 else 0)
        self._put((start + by) % len(self.menu.choices))

    def type(self, character: str) -> None:
        """Moves the cursor to the choice whose number, or beginning, is typed."""
        for typed in (self._typed + character.lower(), character.lower()):
            found = self._named(typed)
            if found is not None:
                self.cursor, self._typed = found, typed
                return

    def toggle(self) -> None:
        """Marks the choice at the cursor, or takes the mark away."""
        if self.marked is not None and self.cursor is not None:
            self.marked ^= {self.cursor}

    @property
    def chosen(self) -> tuple[int, ...] | None:
        """The choice that Enter makes; None if nothing is selected yet."""
        if self.marked is not None:
            return tuple(sorted(self.marked))
        return None if self.cursor is None else (self.cursor,)

    def _put(self, cursor: int) -> None:
        self.cursor, self._typed = cursor, ""

    def _named(self, typed: str) -> int | None:
        if typed.isascii() and typed.isdecimal():
            number = int(typed[:9])
            return number - 1 if 0 < number <= len(self.menu.choices) else None
        if self.menu.has_details:
            return None  # letters are keys, and the labels are the agent's
        begun = (n for n, choice in enumerate(self.menu.choices) if choice.lower().startswith(typed))
        return next(begun, None)


async def run_menu(menu: Menu) -> tuple[int, ...]:
    """Draws a menu below what is on the screen until something is chosen, and takes it away again.

    Raises KeyboardInterrupt for Ctrl-C, EOFError for Ctrl-D, and `WantsDetails`.
    """
    from prompt_toolkit.application import Application
    from prompt_toolkit.data_structures import Point
    from prompt_toolkit.layout import Dimension, FormattedTextControl, HSplit, Layout, Window

    state = MenuState(menu)
    choices = Window(
        FormattedTextControl(
            lambda: _drawn(state),
            focusable=True,
            show_cursor=False,
            get_cursor_position=lambda: Point(0, state.cursor or 0),
        ),
        height=Dimension(max=MENU_ROWS),
        dont_extend_height=True,
        wrap_lines=True,
    )
    hint = Window(FormattedTextControl(f"  {_hint(menu)}", style="fg:ansibrightblack"), wrap_lines=True)
    application: Application[tuple[int, ...]] = Application(
        Layout(HSplit([choices, hint])), key_bindings=_keys(state), erase_when_done=True
    )
    return await application.run_async(handle_sigint=False)


def _drawn(state: MenuState) -> StyleAndTextTuples:
    fragments: StyleAndTextTuples = []
    width = len(str(len(state.menu.choices)))
    for number, choice in enumerate(state.menu.choices):
        is_here = number == state.cursor
        mark = "" if state.marked is None else ("[x] " if number in state.marked else "[ ] ")
        fragments.append(("fg:ansicyan bold", "▸ " if is_here else "  "))
        fragments.append(("fg:ansicyan", f"{number + 1:>{width}} "))
        fragments.append(("bold" if is_here else "", f"{mark}{choice}\n"))
    style, last = fragments[-1][:2]
    fragments[-1] = (style, last.removesuffix("\n"))
    return fragments


def _hint(menu: Menu) -> str:
    moves = f"↑ ↓ or 1-{len(menu.choices)} move"
    if menu.marked is not None:
        return f"{moves}, Space marks, Enter takes what is marked"
    enter = f"Enter chooses, {moves}" if menu.preselected is not None else f"{moves}, Enter chooses"
    return f"{enter}, {DETAILS_KEY} shows all of it" if menu.has_details else enter


def _keys(state: MenuState) -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.keys import Keys

    keys = KeyBindings()
    for key, by in MOVES.items():
        keys.add(key)(lambda event, by=by: state.move(by))

    @keys.add("enter")
    def choose(event: KeyPressEvent) -> None:
        if (chosen := state.chosen) is not None:
            event.app.exit(result=chosen)

    @keys.add("c-c")
    def interrupt(event: KeyPressEvent) -> None:
        event.app.exit(exception=KeyboardInterrupt())

    @keys.add("c-d")
    def leave(event: KeyPressEvent) -> None:
        event.app.exit(exception=EOFError())

    @keys.add(Keys.Any)
    def type_character(event: KeyPressEvent) -> None:
        if event.data == " ":
            state.toggle()
        elif event.data == DETAILS_KEY and state.menu.has_details:
            event.app.exit(exception=WantsDetails())
        elif event.data.isprintable():
            state.type(event.data)

    return keys
