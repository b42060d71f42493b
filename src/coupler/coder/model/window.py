"""The window of a model: how many tokens it takes in, and what is taken for granted if nobody says."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

USUAL_WINDOW, SMALL_WINDOW = 128_000, 32_000
"""Tokens that a model takes in of which nothing else is known; the smaller one on machines of one's own."""


def window_of(model: BaseChatModel) -> int:
    """The tokens that a model can read."""
    known = (model.profile or {}).get("max_input_tokens")
    return known if isinstance(known, int) and known > 0 else USUAL_WINDOW
