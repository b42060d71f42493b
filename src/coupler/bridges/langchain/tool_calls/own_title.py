"""Titles that tools give their own calls, as "Read app.py:10-40".

A tool's author knows best which of its arguments matter; but arguments are a model's words, may be of any
type, and are incomplete while the model still writes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from coupler.bridges.langchain.tool_calls.arguments import Arguments, in_short, relative
from coupler.bridges.langchain.tool_calls.overrides import LONGEST_TITLE

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

Title: TypeAlias = Callable[["Told"], str | None]
"""Makes a title of what is known of a call's arguments; None as long as that is too little."""


class Told:
    """The arguments of a call, as far as the model has written them, in words for people."""

    def __init__(self, args: Arguments, cwd: str) -> None:
        self._args = args
        self._cwd = cwd

    def text(self, name: str) -> str | None:
        """An argument as one short line."""
        return in_short(self._args.get(name))

    def path(self, name: str) -> str | None:
        """An argument that is a path, without the part that all paths of the session begin with."""
        shown = self.text(name)
        return relative(shown, self._cwd) if shown is not None else None

    def number(self, name: str) -> int | None:
        """An argument that is a whole number."""
        value = self._args.get(name)
        return value if type(value) is int else None


def naming_text(verb: str, argument: str) -> Title:
    """Titles of a verb and an argument, as "Run make test"."""

    def title(told: Told) -> str | None:
        text = told.text(argument)
        return None if text is None else f"{verb} {text}"

    return title


def naming_path(verb: str, argument: str = "path") -> Title:
    """Titles of a verb and an argument that is a path, as "Write app.py"."""

    def title(told: Told) -> str | None:
        path = told.path(argument)
        return None if path is None else f"{verb} {path}"

    return title


def own_title(tool: BaseTool | None, args: Arguments, cwd: str) -> str | None:
    """The title that the tool itself gives this call, if it does."""
    made: Title | None = getattr(tool, "title_of", None)
    title = made(Told(args, cwd)) if made is not None else None
    return title if title is None or len(title) <= LONGEST_TITLE else f"{title[: LONGEST_TITLE - 1]}…"
