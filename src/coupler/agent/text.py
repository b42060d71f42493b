"""Text and content as agents hand them over, checked before a client gets to see them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from coupler.schema.v1 import ContentBlock

LONGEST_PIECE = 32 * 1024
"""Characters sent at once: a long text must not keep other sessions waiting, or break a client's limit."""

BLOCKS: tuple[type, ...] = get_args(ContentBlock)


def plain_text(value: object, what: str) -> str:
    """The value as a plain `str`: subclasses of it are welcome, but the encoder knows none."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"{what} is text, not {type(value).__name__}")


def whole_text(value: object, what: str) -> str:
    """Text without halves of surrogate pairs, which no file and no pipe can hold."""
    text = plain_text(value, what)
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def block(value: object, what: str) -> ContentBlock:
    """The value if it is a content block."""
    if isinstance(value, BLOCKS):
        return value  # type: ignore[return-value]
    raise TypeError(f"{what} is text or a content block, not {type(value).__name__}")


def chosen(value: object, among: tuple[str, ...], what: str) -> str:
    """The value if it is one of the words that the protocol knows."""
    if value in among:
        return plain_text(value, what)
    raise ValueError(f"{what} is one of {', '.join(among)}, not {value!r}")


def pieces(text: str) -> Iterator[str]:
    """A text in parts that can be sent."""
    return (text[start : start + LONGEST_PIECE] for start in range(0, len(text), LONGEST_PIECE))
