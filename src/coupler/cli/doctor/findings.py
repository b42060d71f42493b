"""What a doctor found out, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["ok", "note", "problem"]
"""As it should be; worth knowing; something that does not work, or disturbs."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    about: str
    level: Level
    sentence: str
    remedy: str | None = None
