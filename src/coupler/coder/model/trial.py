"""Whether a model answers with a key: one small request, whose answer is not waited for to its end."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING

from coupler.coder.model.errors import ModelError
from coupler.runtime.extras import MissingExtraError

if TYPE_CHECKING:
    from coupler.coder.model.choice import ModelChoice

QUESTION = "Answer with the one word: ready"

_HOPELESS = frozenset({"auth", "no_model"})
"""Kinds of trouble that will not pass by themselves."""


class Verdict(Enum):
    """What was found out."""

    WORKS = "works"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    """It could not be reached, or what is needed to ask it is not installed."""


async def tried(choice: ModelChoice, key: str | None, seconds: float) -> tuple[Verdict, str]:
    """What becomes of a request with this key, and a sentence about it without the key."""
    try:
        from coupler.coder.model.chat_model import made
        from coupler.langchain.errors import failure_of
    except ImportError:
        return Verdict.UNKNOWN, 'the coder needs more packages: pip install "coupler[coder]"'
    try:
        model = made(choice, key)
        async with asyncio.timeout(seconds):
            async for _ in model.astream(QUESTION):
                break
    except MissingExtraError as error:
        return Verdict.UNKNOWN, str(error)
    except ModelError as error:
        return Verdict.REFUSED, str(error)
    except TimeoutError:
        return Verdict.UNKNOWN, f"there was no answer within {seconds:g} seconds."
    except Exception as error:
        # Whatever a provider's package raises: it is told apart by its kind, and told by its words.
        failure = failure_of(error, error)
        sentence = str(failure or error)
        if key is not None:
            sentence = sentence.replace(key, "…")
        kind = failure.data.get("kind") if failure is not None else None
        return (Verdict.REFUSED if kind in _HOPELESS else Verdict.UNKNOWN), sentence
    return Verdict.WORKS, ""
