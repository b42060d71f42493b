"""Garbage that refers to itself, looked for where it can be, and less often.

Python looks through all objects for it again and again. A heavy target has imported hundreds of thousands of
them that will never be garbage, and what a model streams makes new ones that live until its answer is
complete: a good part of the time of a turn would go into looking, and every look holds up all sessions.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

NEW_OBJECTS = 10_000
"""How many objects more there are before it is looked among the new ones; Python's own are 700 or 2,000."""

GROWTH = 0.4
"""The same as a share of the objects that are there: a heavy target's answers have more of them, too."""


@contextlib.contextmanager
def kept_while_importing() -> Iterator[None]:
    """Look for none meanwhile: what is imported stays."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def look_less_often() -> None:
    """Leave alone what is there now, and look for garbage among many new objects, not among few."""
    new, *older = gc.get_threshold()
    # Who has turned it off, or looks even less often, knows why.
    if gc.isenabled() and 0 < new < NEW_OBJECTS:
        gc.freeze()
        gc.set_threshold(max(NEW_OBJECTS, int(GROWTH * gc.get_freeze_count())), *older)
