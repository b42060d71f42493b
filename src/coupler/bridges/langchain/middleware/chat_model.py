"""Models by their names, made once: to make one loads its provider's package and opens connections."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from langchain.chat_models import init_chat_model

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


def chat_model(model: Any) -> BaseChatModel:
    """The model of this name, as `init_chat_model` knows them, or the model itself."""
    made: BaseChatModel = _named(model) if isinstance(model, str) else model
    return made


@lru_cache(maxsize=32)
def _named(name: str) -> Any:
    return init_chat_model(name)
