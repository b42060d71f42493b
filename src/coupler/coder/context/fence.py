"""Fences around texts of others: a model sees where they begin and end, and they cannot pretend to end."""

from __future__ import annotations

import re


def fenced(tag: str, text: str, **attributes: str) -> str:
    """The text between `<tag …>` and `</tag>`; tags of that name in it are made harmless."""
    harmless = re.sub(rf"<(?=\s*/?\s*{re.escape(tag)}\b)", "&lt;", text, flags=re.IGNORECASE)
    words = "".join(f' {name}="{_attribute(value)}"' for name, value in attributes.items())
    return f"<{tag}{words}>\n{harmless.strip()}\n</{tag}>"


def _attribute(value: str) -> str:
    plain = "".join(each if each.isprintable() else "�" for each in value)
    return plain.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
