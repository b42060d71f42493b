"""How far a pattern fits: it fits, it may fit, or it does not.

To allow, a pattern must fit strictly. To ask or deny, it is enough that it may: what only the running command
knows, or another way to write the same thing, must not slip through.
"""

from __future__ import annotations

import enum
import fnmatch
import functools
import re


class Match(enum.IntEnum):
    """How far a pattern fits."""

    NO = 0
    MAYBE = 1
    YES = 2


@functools.lru_cache(maxsize=4096)
def glob(pattern: str) -> re.Pattern[str]:
    """`*`, `?` and `[…]` within one word or one part of a path."""
    return re.compile(fnmatch.translate(pattern))


def has_wildcard(text: str) -> bool:
    """Whether a text stands for more than itself."""
    return any(character in "*?[" for character in text)
