"""A script with marks where values belong: reading on in it, and what may be put in place of a mark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from coupler.workflow.commands.shell_command import Command, Reading

MARK = "\0"
"""Stands around the number of a value; no script and no value has it."""


class Value(NamedTuple):
    """What an expression has given."""

    texts: tuple[str, ...]
    is_list: bool
    source: str


class PlacementError(Exception):
    """A value in a place where it cannot stand."""


class MarkedText:
    """A place in the text, and what has been written so far."""

    def __init__(self, text: str, values: Sequence[Value], name_of: Callable[[str], str]) -> None:
        self.text = text
        self.values = values
        self.name_of = name_of
        """The variable that holds a text."""
        self.at = 0
        self.out: list[str] = []
        self.open: list[Command] = []
        """The commands around the place, the innermost last."""

    def is_value(self) -> bool:
        return self.text.startswith(MARK, self.at)

    def take(self) -> Value:
        """The value whose mark stands here."""
        end = self.text.index(MARK, self.at + 1)
        number = int(self.text[self.at + 1 : end])
        self.at = end + 1
        return self.values[number]

    def copy(self, length: int) -> None:
        self.out.append(self.text[self.at : self.at + length])
        self.at += length

    def until(self, end: str) -> bool:
        """Whether there is more before the sign; the sign itself is copied."""
        if self.at >= len(self.text):
            return False
        if self.text[self.at] == end:
            self.copy(1)
            return False
        return True

    def check(self, value: Value) -> None:
        """Refuse a value where its command would read it as script."""
        if not self.open:
            return
        command = self.open[-1]
        word = "" if command.word_start is None else self.text[command.word_start : self.at]
        reading = command.reading(word)
        if reading is not None:
            self.check_reading(reading, value)

    def check_reading(self, reading: Reading, value: Value) -> None:
        if not reading.takes(value.texts):
            raise self.refused(value, reading.problem)

    def refused(self, value: Value, why: str) -> PlacementError:
        return PlacementError(f"`{{{{ {value.source[:80]} }}}}` cannot stand there: {why}")

    def joined(self, value: Value) -> str:
        return f"${{{self.name_of(' '.join(value.texts))}}}"
