"""Where a value comes from, so that whoever it surprises can find it."""

from __future__ import annotations

import os
from typing import Literal

import msgspec

from coupler.config.errors import shown

Layer = Literal["user", "project", "environment", "command line"]
"""From the weakest to the strongest."""


class Origin(msgspec.Struct, frozen=True):
    """The layer, and the place in it."""

    layer: Layer
    file: str | None = None
    line: int | None = None
    variable: str | None = None

    @property
    def directory(self) -> str | None:
        """The directory that relative paths of this origin start from."""
        return None if self.file is None else os.path.dirname(self.file)

    def __str__(self) -> str:
        if self.file is not None:
            line = "" if self.line is None else f" line {self.line}"
            return f"{shown(self.file, 1000)}{line}"
        if self.variable is not None:
            return f"the variable {self.variable}"
        return f"the {self.layer}"


COMMAND_LINE = Origin("command line")


class Entry(msgspec.Struct, frozen=True):
    """One text of a list that several origins have added to."""

    text: str
    origin: Origin
