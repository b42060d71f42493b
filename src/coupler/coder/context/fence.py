"""Fences around texts of others: a model sees where they begin and end, and they cannot pretend to end."""

from __future__ import annotations

import re

CUT = "\n[cut here: {left} more characters]"


def fenced(tag: str, text: str, **attributes: str) -> str:
    """The text between `<tag …>` and `</tag>`; tags of that name in it are made harmless."""
    harmless = re.sub(rf"<(?=\s*/?\s*{re.escape(tag)}\b)", "&lt;", text, flags=re.IGNORECASE)
    words = "".join(f' {name}="{_attribute(value)}"' for name, value in attributes.items())
    return f"<{tag}{words}>\n{harmless.strip()}\n</{tag}>"


def cut(text: str, longest: int) -> str:
    """The beginning of a text that is too long, with a word on what is missing."""
    if len(text) <= longest:
        return text
    return f"{text[:longest]}{CUT.format(left=len(text) - longest)}"


def one_line(text: str, longest: int) -> str:
    """A text of others as one line of a list."""
    line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"


def _attribute(value: str) -> str:
    plain = "".join(each if each.isprintable() else "�" for each in value)
    return plain.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
