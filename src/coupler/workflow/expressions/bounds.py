"""What one evaluation may take: processor time, memory, and the size of what it makes.

An expression may come from somebody else's repository, and what it works on from a program or a model. Every
operation of `evaluation`, `operations` and `filters` asks here before it makes something large, and tells
afterwards what it has made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from sys import getsizeof
from time import thread_time

MOST_TEXT = 10 * 1024 * 1024
"""Characters of one text, and of all that a template gives."""
MOST_ITEMS = 500_000
"""Items of one list."""
MOST_RANGE = 100_000
"""Numbers of one `range`."""
MOST_PARTS = 1_000_000
"""Values inside of one value, with every repetition counted."""
MOST_MEMORY = 48 * 1024 * 1024
"""Bytes of everything that one evaluation makes."""
MOST_SECONDS = 0.5
"""Processor time of one evaluation."""
MOST_BITS = 4_096
"""Bits of a number."""
MOST_WIDTH = 10_000
"""Columns that a text is filled up to, and decimal places."""


class EvaluationError(Exception):
    """An expression that cannot be evaluated; the message says why, and what to do."""


class MissingNameError(EvaluationError):
    """An expression that names what is not there."""


class Bounds:
    """The account of one evaluation."""

    def __init__(self) -> None:
        self._end = thread_time() + MOST_SECONDS
        self._memory = MOST_MEMORY

    def tick(self) -> None:
        """Called at every operation; each of them is short, so that time is up soon after its end."""
        if thread_time() > self._end:
            raise EvaluationError(f"it takes more than {MOST_SECONDS} seconds: do this work in a `run` step")

    def charge(self, size: int) -> None:
        """Bytes that were made, or are about to be."""
        self._memory -= size
        if self._memory < 0:
            raise EvaluationError(
                f"it takes more than {MOST_MEMORY >> 20} MiB of memory: do this work in a `run` step"
            )

    def text(self, made: str) -> str:
        self.tick()
        self.charge(getsizeof(made))
        return made

    def items(self, made: Iterable[object]) -> list[object]:
        """A list of what was made one by one; its items have been charged for."""
        kept: list[object] = []
        for item in made:
            if len(kept) >= MOST_ITEMS:
                raise EvaluationError(f"a list has more than {MOST_ITEMS:,} items: make it shorter")
            if not len(kept) % 256:
                self.tick()
            kept.append(item)
        self.charge(getsizeof(kept))
        return kept

    def texts(self, made: Sequence[str]) -> list[str]:
        """The parts of a text that was split."""
        if len(made) > MOST_ITEMS:
            raise EvaluationError(f"the text has more than {MOST_ITEMS:,} parts: make it shorter")
        self.tick()
        self.charge(sum(map(getsizeof, made)) + getsizeof(made))
        return list(made)

    def weigh(self, *values: object) -> None:
        """Refuse what is larger than it looks: a value that holds another many times over."""
        waiting = list(values)
        parts, characters = 0, 0
        while waiting:
            value = waiting.pop()
            parts += 1
            if isinstance(value, str):
                characters += len(value)
            elif isinstance(value, Mapping):
                waiting.extend(value.keys())
                waiting.extend(value.values())
            elif isinstance(value, list | tuple):
                waiting.extend(value)
            if parts + len(waiting) > MOST_PARTS or characters > 2 * MOST_TEXT:
                raise EvaluationError("a value is too large for this: use a part of it")
            if not parts % 1024:
                self.tick()
        self.tick()


def check_length(length: int) -> None:
    """Refuse a text before it is made."""
    if length > MOST_TEXT:
        raise EvaluationError(f"a text has more than {MOST_TEXT:,} characters: make it shorter")


def check_items(length: int) -> None:
    """Refuse a list before it is made."""
    if length > MOST_ITEMS:
        raise EvaluationError(f"a list has more than {MOST_ITEMS:,} items: make it shorter")


def check_width(*widths: int) -> None:
    if any(abs(width) > MOST_WIDTH for width in widths):
        raise EvaluationError(f"a width is more than {MOST_WIDTH:,}: make it smaller")
