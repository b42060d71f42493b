"""A function's docstring, as a model is shown it: what the function does, and what each parameter means."""

from __future__ import annotations

import inspect
import re
from typing import NamedTuple

_SECTION = re.compile(r"(?:Args|Arguments|Parameters):\s*$")
_PARAMETER = re.compile(r"\*{0,2}(?P<name>\w+)\s*(?:\([^)]*\))?\s*:\s*(?P<text>.*)$")


class Docstring(NamedTuple):
    """What it says, without the section about parameters; and that section."""

    description: str
    parameters: dict[str, str]


def read_docstring(text: str | None) -> Docstring:
    """Read a docstring whose section `Args:` has lines of the form `name: what it means`."""
    lines = inspect.cleandoc(text or "").splitlines()
    begin = next((at for at, line in enumerate(lines) if _SECTION.match(line)), None)
    if begin is None:
        return Docstring("\n".join(lines).strip(), {})
    end = next(
        (at for at in range(begin + 1, len(lines)) if lines[at].strip() and not lines[at][0].isspace()),
        len(lines),
    )
    rest = "\n".join(lines[:begin]).rstrip(), "\n".join(lines[end:]).strip()
    return Docstring("\n\n".join(filter(None, rest)), _parameters(lines[begin + 1 : end]))


def _parameters(lines: list[str]) -> dict[str, str]:
    """A line that is indented further than the first goes on with what the one before it said."""
    found: dict[str, str] = {}
    name: str | None = None
    indent = next((len(line) - len(line.lstrip()) for line in lines if line.strip()), 0)
    for line in filter(str.strip, lines):
        begins = len(line) - len(line.lstrip()) <= indent
        match = _PARAMETER.match(line.strip()) if begins else None
        if match is not None:
            name = match["name"]
            found[name] = match["text"].strip()
        elif name is not None:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found
