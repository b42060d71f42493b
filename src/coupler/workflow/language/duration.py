"""How long something takes, as people write it: `500ms`, `30s`, `5m`, `2h`, or a number of seconds."""

from __future__ import annotations

import re

LONGEST = 1e9
"""Seconds, about 31 years: more is a slip of the keyboard."""

PATTERN = r"^[0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h)$"
WORDS = "a duration, such as `500ms`, `30s`, `5m` or `2h`, or a number of seconds"

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PARTS = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h)")


def seconds_in(text: str) -> float | None:
    """The seconds that a text stands for; None: it is no duration."""
    parts = _PARTS.fullmatch(text)
    return float(parts[1]) * _SECONDS[parts[2]] if parts else None
