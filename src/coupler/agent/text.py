"""Text and content as agents hand them over, checked before a client gets to see them."""

from __future__ import annotations

from typing import get_args

from coupler.schema.v1 import ContentBlock

BLOCKS: tuple[type, ...] = get_args(ContentBlock)


def plain_text(value: object, what: str) -> str:
    """The value as a plain `str`: subclasses of it are welcome, but the encoder knows none."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"{what} is text, not {type(value).__name__}")


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
