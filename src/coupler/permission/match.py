"""How far a pattern fits: it fits, it may fit, or it does not.

To allow, a pattern must fit strictly. To ask or deny, it is enough that it may: what only the running command
knows, or another way to write the same thing, must not slip through.
"""

from __future__ import annotations

import enum
import fnmatch
import functools
import re
import unicodedata


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


def folded(text: str) -> str:
    """The text without what some file system, shell or reader does not tell apart.

    Case, ways to compose a letter, invisible characters, and blanks or dots at the end.
    """
    visible = "".join(character for character in text if unicodedata.category(character) != "Cf")
    composed = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())
    return composed if composed in {".", ".."} else composed.rstrip(" .") or composed
