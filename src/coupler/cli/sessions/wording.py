"""How sessions are put into words: names, times and sizes, and text that a stranger wrote.

Whatever is in the store may come from a model or from the output of a program. None of it may move a cursor,
change colours or reorder a line of the terminal that it is shown on.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from pathlib import Path

SESSION = "sess_"
"""How every session's id begins; what follows is random."""

SHORT = 8
"""Characters of an id that tell sessions apart well enough."""

_ESCAPE_SEQUENCES = re.compile(
    # Strings for the terminal, such as a window's title; colours and moves of the cursor; the rest.
    "(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\n\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\\\|\x9c)"
    "|(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|\x1b[ -/]*[0-~]"
)
_LINE_ENDS = re.compile("\r\n|[\r\u2028\u2029]")
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
# JSON lets these stand as they are inside strings.
_UNSEEN_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_SURROGATES = re.compile("[\ud800-\udfff]")

_UNITS = (("year", 365 * 86400), ("month", 30 * 86400), ("day", 86400), ("hour", 3600), ("minute", 60))


def clean(text: str) -> str:
    """The text without anything that a terminal would obey; lines and tabs stay."""
    text = _LINE_ENDS.sub("\n", _ESCAPE_SEQUENCES.sub("", text))
    return _SURROGATES.sub("\ufffd", _UNSEEN.sub("", text))


def one_line(text: str) -> str:
    """The text clean, in one line."""
    return " ".join(clean(text).split())


def quiet_json(text: str) -> str:
    """JSON that means the same, with everything escaped that a terminal would obey."""
    return _UNSEEN_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def short_id(id: str) -> str:
    """What people type to mean this session."""
    return clean(id[len(SESSION) :][:SHORT] if id.startswith(SESSION) else id)


def short_agent(identity: str) -> str:
    """An agent without the directory that its file is in."""
    return one_line(re.split(r"[/\\]", identity)[-1])


def short_directory(path: str) -> str:
    """A path as people write it, with ~ for their home."""
    path = one_line(path)
    try:
        home = str(Path.home())
    except RuntimeError:
        return path
    if path == home:
        return "~"
    return f"~{path[len(home) :]}" if path.startswith(f"{home}/") else path


def moment(at: int) -> datetime | None:
    """A time of the store; None if it is none."""
    try:
        return datetime.fromtimestamp(at / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def timestamp(at: int) -> str | None:
    """A time for programs."""
    when = moment(at)
    return None if when is None else when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def local_time(at: int) -> str:
    """A time for the person at this terminal."""
    when = moment(at)
    return "at an unknown time" if when is None else when.astimezone().strftime("%Y-%m-%d %H:%M")


def universal_time(at: int) -> str:
    """A time for people anywhere."""
    when = moment(at)
    return "unknown" if when is None else when.strftime("%Y-%m-%d %H:%M UTC")


def ago(at: int) -> str:
    """How long ago that was."""
    seconds = int(time.time() - at / 1000)
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{count(seconds // size, unit)} ago"
    return "just now"


def count(number: int, noun: str) -> str:
    """As many of these, in words: 1 session, 2 sessions."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(number: int) -> str:
    """A number of bytes."""
    if number < 1000:
        return count(number, "byte")
    return f"{number / 1000:.1f} KB" if number < 999_950 else f"{number / 1_000_000:.1f} MB"
